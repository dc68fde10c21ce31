#include "agent/process/signals.h"

#include <algorithm>
#include <cerrno>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace distrun::agent {

using boost::asio::posix::stream_descriptor;
using boost::system::error_code;

bool SameWish::is_new(int signo, Source source, TimePoint now) {
  std::vector<Unpaired>& open = unpaired_[signo];
  std::erase_if(open, [now](const Unpaired& one) { return now - one.at > kSameWish; });
  const auto other = std::find_if(open.begin(), open.end(),
                                  [source](const Unpaired& one) { return one.source != source; });
  if (other != open.end()) {
    open.erase(other);
    return false;
  }
  open.push_back({source, now});
  return true;
}

Signals::Signals(boost::asio::io_context& io, int guard_fd, const std::vector<int>& signals,
                 std::vector<int> stop_signals, Handlers handlers)
    : guard_(io, guard_fd),
      signals_fd_(io),
      signals_(signals),
      stop_signals_(std::move(stop_signals)),
      handlers_(std::move(handlers)) {}

Result<bool> Signals::start() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  for (const int signo : signals_) sigaddset(&wanted, signo);
  const int fd = ::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return os_error("signalfd", errno);
  signals_fd_.assign(fd);
  wait_for_guard();
  wait_for_signals();
  return true;
}

void Signals::stop() {
  error_code ignored;
  guard_.close(ignored);
  signals_fd_.close(ignored);
}

void Signals::on_signal(int signo, SameWish::Source source) {
  if (signo == SIGCHLD) return handlers_.child_ended();
  if (!same_wish_.is_new(signo, source, Clock::now())) return;
  const bool stops =
      std::find(stop_signals_.begin(), stop_signals_.end(), signo) != stop_signals_.end();
  stops ? handlers_.stop(signo) : handlers_.notice(signo);
}

void Signals::wait_for_guard() {
  guard_.async_wait(stream_descriptor::wait_read, [this](const error_code& ec) {
    if (ec) return;
    for (;;) {
      unsigned char signo = 0;
      const ssize_t n = ::recv(guard_.native_handle(), &signo, 1, MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (n <= 0) return handlers_.guard_lost();
      on_signal(signo, SameWish::Source::guard);
      if (!guard_.is_open()) return;
    }
    wait_for_guard();
  });
}

void Signals::wait_for_signals() {
  signals_fd_.async_wait(stream_descriptor::wait_read, [this](const error_code& ec) {
    if (ec) return;
    signalfd_siginfo info{};
    while (signals_fd_.is_open() &&
           ::read(signals_fd_.native_handle(), &info, sizeof info) == sizeof info) {
      on_signal(static_cast<int>(info.ssi_signo), SameWish::Source::direct);
    }
    if (signals_fd_.is_open()) wait_for_signals();
  });
}

}  // namespace distrun::agent
