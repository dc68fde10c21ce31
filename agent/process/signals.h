// Signals: what operators and schedulers send to the agent, as events on its loop.
//
// A signal can come twice for one wish: from the guard, and directly (a terminal signals the whole
// foreground group, a scheduler every process of a step).  So the two sources are counted apart and
// the larger count is what was wished: Ctrl-C once is 1, twice is 2, however many processes it hit.
#pragma once

#include "runtime/base/result.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <array>
#include <functional>
#include <map>
#include <vector>

namespace distrun::agent {

// Pure: how often a stop was wished, over all stop signals of both sources.
class StopCount {
 public:
  enum class Source { guard, direct };
  // Counts one; returns the new count if it grew, else 0: the other source has told it already.
  int add(Source source);

 private:
  std::array<int, 2> seen_{};
  int told_ = 0;
};

class Signals {
 public:
  struct Handlers {
    std::function<void(int signo, int count)> stop;  // count: 1 for the first, 2: the second …
    std::function<void(int signo)> notice;           // to be passed through to the workers
    std::function<void()> child_ended;               // some child of ours, perhaps an adopted one
    std::function<void()> guard_lost;                // the guard is dead: end everything now
  };

  // REQUIRES: `signals` and SIGCHLD are blocked (run_guarded does that).  `guard_fd`: the agent's
  // end of the guard's socket, owned from here on.  Those in `stop_signals` stop, the rest are
  // notices.
  Signals(boost::asio::io_context& io, int guard_fd, const std::vector<int>& signals,
          std::vector<int> stop_signals, Handlers handlers);

  Result<bool> start();  // false never; an Error if the kernel refuses a signalfd
  void stop();           // no handler is called from here on

 private:
  void wait_for_guard();
  void wait_for_signals();
  void on_signal(int signo, StopCount::Source source);

  boost::asio::posix::stream_descriptor guard_;
  boost::asio::posix::stream_descriptor signals_fd_;
  std::vector<int> signals_;
  std::vector<int> stop_signals_;
  Handlers handlers_;
  StopCount stops_;
  std::map<int, std::array<int, 2>> notices_;
};

}  // namespace distrun::agent
