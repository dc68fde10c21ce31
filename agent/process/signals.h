// Signals: what operators and schedulers send to the agent, as events on its loop.
//
// A signal can come twice for one wish: through the guard, and directly (a scheduler signals every
// process of a step).  SameWish tells those from two wishes.
#pragma once

#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>
#include <map>
#include <vector>

namespace distrun::agent {

// Pure.  A signal that the other source delivered within kSameWish is the same wish; each delivery
// pairs with one other at most, so two Ctrl-C in a row are two.
class SameWish {
 public:
  enum class Source { guard, direct };
  static constexpr Duration kSameWish = std::chrono::milliseconds(500);

  // Whether this delivery is a wish of its own.
  bool is_new(int signo, Source source, TimePoint now);

 private:
  struct Unpaired {
    Source source;
    TimePoint at;
  };
  std::map<int, std::vector<Unpaired>> unpaired_;  // by signal; those within kSameWish
};

class Signals {
 public:
  struct Handlers {
    std::function<void(int signo)> stop;
    std::function<void(int signo)> notice;  // to be passed through to the workers
    std::function<void()> child_ended;      // some child of ours, perhaps an adopted one
    std::function<void()> guard_lost;       // the guard is dead: end everything now
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
  void on_signal(int signo, SameWish::Source source);

  boost::asio::posix::stream_descriptor guard_;
  boost::asio::posix::stream_descriptor signals_fd_;
  std::vector<int> signals_;
  std::vector<int> stop_signals_;
  Handlers handlers_;
  SameWish same_wish_;
};

}  // namespace distrun::agent
