// Child: one running worker, from its spawn to the one waitid() that takes its status.
//
// Children that share an io_context report in the order in which the kernel saw them exit: each
// waits for its pidfd on the loop's one epoll instance, whose ready list is first in, first out.
// That order, not timestamps, decides who failed first.
#pragma once

#include "agent/core/events.h"
#include "agent/process/spawn.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>

namespace distrun::agent {

class Child {
 public:
  // Takes over the pidfd.  `on_exit` is called once, when the process has ended and been reaped.
  Child(boost::asio::io_context& io, Spawned spawned, std::function<void(ExitStatus)> on_exit);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  bool running() const { return running_; }
  // To the worker, or to its whole process group.  Nothing happens once it has been reaped: its
  // number may be somebody else's by then.
  void signal(int signo, Target target);

 private:
  void wait();
  void reap();

  pid_t pid_;
  bool running_ = true;
  boost::asio::posix::stream_descriptor pidfd_;
  std::function<void(ExitStatus)> on_exit_;
};

}  // namespace distrun::agent
