// Child: one running worker, from its spawn to the one waitid() that takes its status.
//
// Children that share an Exits report in the order in which the kernel saw them exit: each has put
// its pidfd into the one epoll set of that Exits before its program began (spawn.h), and that set's
// ready list is first in, first out.  That order, not timestamps, decides who failed first.  Were
// the pidfds put there by us, after the spawn, a worker that has failed meanwhile would come behind
// its victims: we may be held up as long as they need to fail because of it.
#pragma once

#include "agent/core/events.h"
#include "agent/process/spawn.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>
#include <map>

namespace distrun::agent {

class Child;

class Exits {
 public:
  explicit Exits(boost::asio::io_context& io);
  Exits(const Exits&) = delete;
  Exits& operator=(const Exits&) = delete;

  // For spawn().
  int epoll() { return epoll_.native_handle(); }

 private:
  friend class Child;
  void add(Child& child);
  void remove(const Child& child);
  void wait();
  void collect();

  boost::asio::posix::stream_descriptor epoll_;
  bool waits_ = false;                // only for somebody: an empty one keeps no loop running
  std::map<pid_t, Child*> children_;  // that have not been reaped
};

class Child {
 public:
  // Takes over the pidfd of a worker that was spawned into `exits`, which outlives it.  `on_exit`
  // is called once, when the process has ended and been reaped.
  Child(Exits& exits, Spawned spawned, std::function<void(ExitStatus)> on_exit);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  bool running() const { return running_; }
  // To the worker, or to its whole process group.  Nothing happens once it has been reaped: its
  // number may be somebody else's by then.
  void signal(int signo, Target target);

 private:
  friend class Exits;
  void reap();
  void forget();

  Exits& exits_;
  pid_t pid_;
  int pidfd_;
  bool running_ = true;
  std::function<void(ExitStatus)> on_exit_;
};

}  // namespace distrun::agent
