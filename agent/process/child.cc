#include "agent/process/child.h"

#include "runtime/base/check.h"

#include <cerrno>
#include <signal.h>
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

Child::Child(boost::asio::io_context& io, Spawned spawned, std::function<void(ExitStatus)> on_exit)
    : pid_(spawned.pid), pidfd_(io, spawned.pidfd), on_exit_(std::move(on_exit)) {
  wait();
}

Child::~Child() = default;

void Child::signal(int signo, Target target) {
  if (!running_) return;
  if (target == Target::group) {
    ::kill(-pid_, signo);
    // A stopped process (SIGSTOP, a debugger) acts on no signal but SIGKILL until it continues.
    if (signo != SIGKILL) ::kill(-pid_, SIGCONT);
  } else {
    ::syscall(SYS_pidfd_send_signal, pidfd_.native_handle(), signo, nullptr, 0);
  }
}

void Child::wait() {
  pidfd_.async_wait(stream_descriptor::wait_read, [this](const boost::system::error_code& ec) {
    if (!ec) reap();
  });
}

void Child::reap() {
  siginfo_t info{};
  // P_PIDFD is 3 also where the C library does not name it.
  const int result = ::waitid(static_cast<idtype_t>(3), static_cast<id_t>(pidfd_.native_handle()),
                              &info, WEXITED | WNOHANG);
  if (result != 0 && errno == EINTR) return wait();
  DISTRUN_CHECK(result == 0);
  if (info.si_pid == 0) return wait();
  running_ = false;
  pidfd_.close();
  on_exit_(to_status(info));
}

}  // namespace distrun::agent
