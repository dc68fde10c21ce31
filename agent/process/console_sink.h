// ConsoleSink: one file descriptor of ours that others may share, written without ever blocking the
// loop and without changing its flags.
//
//   pipe, terminal   opened anew through /proc/self/fd, so that O_NONBLOCK is ours alone; where
//   that
//                    is refused: written only when poll says so, 4096 bytes at a time
//   socket           send with MSG_DONTWAIT
//   anything else    (files, /dev/null) written directly: they do not wait for a reader
//
// What is not taken waits in a buffer.  The buffer has no hard limit: its users look at full()
// before they read more.
#pragma once

#include "runtime/base/time.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>
#include <memory>
#include <string>

namespace distrun::agent {

class ConsoleSink : public std::enable_shared_from_this<ConsoleSink> {
 public:
  static constexpr std::size_t kFull = std::size_t{1} << 20;

  struct Events {
    std::function<void()> room;       // was full, is less than half full
    std::function<void()> empty;      // all is written; not called while it always is
    std::function<void(int)> broken;  // errno; from here on all text is swallowed
  };

  ConsoleSink(boost::asio::io_context& io, int fd, Events events);
  ~ConsoleSink();
  ConsoleSink(const ConsoleSink&) = delete;
  ConsoleSink& operator=(const ConsoleSink&) = delete;

  // Append to this, then call pump().
  std::string& buffer() { return buffer_; }
  // Writes what it can now, and the rest when the reader takes it.
  void pump();
  // Blocks, until the deadline at most.
  bool write_all(TimePoint deadline);

  bool full() const { return waiting() > kFull; }
  bool empty() const { return waiting() == 0; }
  std::size_t waiting() const { return buffer_.size() - head_; }
  bool broken() const { return broken_; }
  void close();  // no event is called from here on

  // One owner's line is unfinished at the end of what was written; kNobody: at a line's start.
  static constexpr int kNobody = -1;
  int open_owner = kNobody;

 private:
  enum class Kind { direct, reopened, socket, shared };

  Kind open(int fd);
  bool write_some();  // false: not now
  void wait();
  void on_ready();
  void forget_written();
  void fail(int errno_value);

  boost::asio::posix::stream_descriptor ready_;  // an epoll that holds only fd_
  Events events_;
  int fd_ = -1;
  bool own_fd_ = false;
  Kind kind_;
  std::string buffer_;
  std::size_t head_ = 0;  // written up to here
  bool was_full_ = false;
  bool waits_ = false;
  bool broken_ = false;
  bool closed_ = false;
};

}  // namespace distrun::agent
