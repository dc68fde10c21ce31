#include "agent/process/console_sink.h"

#include <boost/system/error_code.hpp>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace distrun::agent {
namespace {

// A pipe that poll calls writable takes PIPE_BUF bytes without waiting.
constexpr std::size_t kSharedWrite = 4096;

// Waking the reader and us for each 64 KiB costs more than carrying them.
constexpr int kPipeSize = 1 << 20;

epoll_event write_once() {
  epoll_event event{};
  event.events = EPOLLOUT | EPOLLONESHOT;
  return event;
}

}  // namespace

ConsoleSink::ConsoleSink(boost::asio::io_context& io, int fd, Events events)
    : ready_(io), events_(std::move(events)), fd_(fd), kind_(open(fd)) {
  if (kind_ == Kind::direct || broken_) return;
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event = write_once();
  event.events = EPOLLONESHOT;  // nothing is asked yet
  if (epoll < 0 || ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd_, &event) != 0) {
    // EPERM: this kind of file never makes its writer wait.
    if (epoll >= 0) ::close(epoll);
    kind_ = Kind::direct;
    return;
  }
  ready_.assign(epoll);
}

ConsoleSink::~ConsoleSink() {
  if (own_fd_) ::close(fd_);
}

ConsoleSink::Kind ConsoleSink::open(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    broken_ = true;  // started without this descriptor: nobody listens, and nobody is to be told
    return Kind::direct;
  }
  if (S_ISSOCK(status.st_mode)) return Kind::socket;
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return Kind::direct;
  if (S_ISCHR(status.st_mode) && ::isatty(fd) == 0) return Kind::shared;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const int own = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (own < 0) return Kind::shared;
  fd_ = own;
  own_fd_ = true;
  // Refused for a terminal, and beyond pipe-user-pages-soft: it then stays as it is.
  if (::fcntl(fd_, F_GETPIPE_SZ) < kPipeSize) ::fcntl(fd_, F_SETPIPE_SZ, kPipeSize);
  return Kind::reopened;
}

bool ConsoleSink::write_some() {
  const char* data = buffer_.data() + head_;
  std::size_t size = waiting();
  if (kind_ == Kind::shared) {
    pollfd ready{fd_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) == 0) return false;
    size = std::min(size, kSharedWrite);
  }
  const ssize_t n = kind_ == Kind::socket ? ::send(fd_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL)
                                          : ::write(fd_, data, size);
  if (n >= 0) {
    head_ += static_cast<std::size_t>(n);
    return true;
  }
  if (errno == EINTR) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    if (kind_ != Kind::direct) return false;
    pollfd ready{fd_, POLLOUT,
                 0};  // somebody else made it non-blocking, and we cannot be told when
    ::poll(&ready, 1, 100);
    return true;
  }
  fail(errno);
  return true;
}

void ConsoleSink::pump() {
  if (broken_) return forget_written();
  if (!waits_) {
    while (waiting() > 0) {
      if (!write_some()) {
        wait();
        break;
      }
    }
  }
  if (full()) was_full_ = true;
  if (empty()) forget_written();
}

void ConsoleSink::forget_written() {
  static constexpr std::size_t kKeptMemory = 4 * kFull;
  if (buffer_.capacity() > kKeptMemory) {
    buffer_ = std::string();
  } else {
    buffer_.clear();
  }
  head_ = 0;
}

void ConsoleSink::wait() {
  waits_ = true;
  epoll_event event = write_once();
  ::epoll_ctl(ready_.native_handle(), EPOLL_CTL_MOD, fd_, &event);
  ready_.async_wait(ready_.wait_read,
                    [self = shared_from_this()](const boost::system::error_code& error) {
                      self->waits_ = false;
                      if (!error && !self->closed_) self->on_ready();
                    });
}

void ConsoleSink::on_ready() {
  // Taken out, or the oneshot event would stay readable in the epoll.
  epoll_event event{};
  ::epoll_wait(ready_.native_handle(), &event, 1, 0);
  pump();
  if (head_ > kFull) {  // do not let what is written pile up in front of what is not
    buffer_.erase(0, head_);
    head_ = 0;
  }
  if (was_full_ && waiting() < kFull / 2) {
    was_full_ = false;
    if (events_.room) events_.room();
  }
  if (empty() && !closed_ && events_.empty) events_.empty();
}

void ConsoleSink::fail(int errno_value) {
  broken_ = true;
  forget_written();
  open_owner = kNobody;
  if (events_.broken) events_.broken(errno_value);
}

bool ConsoleSink::write_all(TimePoint deadline) {
  while (waiting() > 0) {
    if (write_some()) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    pollfd ready{fd_, POLLOUT, 0};
    ::poll(&ready, 1, static_cast<int>(std::min<long>(left.count(), 1000)));
  }
  forget_written();
  return true;
}

void ConsoleSink::close() {
  closed_ = true;
  events_ = {};
  boost::system::error_code ignored;  // not open: the sink never had to wait
  ready_.cancel(ignored);
}

}  // namespace distrun::agent
