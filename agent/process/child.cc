#include "agent/process/child.h"

#include "runtime/base/check.h"

#include <array>
#include <cerrno>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace distrun::agent {

using boost::asio::posix::stream_descriptor;

namespace {

ExitStatus to_status(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return ExitedWith{info.si_status};
  return KilledBy{.signo = info.si_status, .core_dumped = info.si_code == CLD_DUMPED};
}

}  // namespace

Exits::Exits(boost::asio::io_context& io) : epoll_(io, ::epoll_create1(EPOLL_CLOEXEC)) {}

void Exits::add(Child& child) {
  DISTRUN_CHECK(children_.emplace(child.pid(), &child).second);
  wait();
}

void Exits::remove(const Child& child) {
  children_.erase(child.pid());
  if (!children_.empty()) return;
  epoll_.cancel();
  waits_ = false;
}

void Exits::wait() {
  if (waits_ || children_.empty()) return;
  waits_ = true;
  epoll_.async_wait(stream_descriptor::wait_read, [this](const boost::system::error_code& ec) {
    if (ec) return;
    waits_ = false;
    collect();
  });
}

void Exits::collect() {
  std::array<epoll_event, 64> events;
  for (int count = 1; count > 0;) {
    count = ::epoll_wait(epoll(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      // Unknown: one whose exec failed, and that spawn has reaped.
      const auto child =
          children_.find(static_cast<pid_t>(events.at(static_cast<std::size_t>(i)).data.u64));
      if (child != children_.end()) child->second->reap();
    }
  }
  wait();
}

Child::Child(Exits& exits, Spawned spawned, std::function<void(ExitStatus)> on_exit)
    : exits_(exits), pid_(spawned.pid), pidfd_(spawned.pidfd), on_exit_(std::move(on_exit)) {
  exits_.add(*this);
}

Child::~Child() {
  forget();
}

// Closing the last descriptor of a pidfd takes it out of the epoll set.
void Child::forget() {
  if (pidfd_ < 0) return;
  exits_.remove(*this);
  ::close(pidfd_);
  pidfd_ = -1;
}

void Child::signal(int signo, Target target) {
  if (!running_) return;
  if (target == Target::group) {
    ::kill(-pid_, signo);
    // A stopped process (SIGSTOP, a debugger) acts on no signal but SIGKILL until it continues.
    if (signo != SIGKILL) ::kill(-pid_, SIGCONT);
  } else {
    ::syscall(SYS_pidfd_send_signal, pidfd_, signo, nullptr, 0);
  }
}

void Child::reap() {
  siginfo_t info{};
  int result = 0;
  do {
    // P_PIDFD is 3 also where the C library does not name it.
    result =
        ::waitid(static_cast<idtype_t>(3), static_cast<id_t>(pidfd_), &info, WEXITED | WNOHANG);
  } while (result != 0 && errno == EINTR);
  DISTRUN_CHECK(result == 0);
  if (info.si_pid == 0) return;  // a debugger has it: the set tells once more when it lets go
  running_ = false;
  forget();
  on_exit_(to_status(info));
}

}  // namespace distrun::agent
