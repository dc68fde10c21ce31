// The life of one communicator: what may be called now, how to poll, and that it is aborted once.
//
//   absent --join--> joining --ok--> ready --close--> closing --ok--> closed (destroyed)
//                       |            |   ^               |
//                       |    enqueue |   | ok            |
//                       |     derive v   |               |
//                       |         enqueuing, deriving    |
//                       |                |               |
//                       +-- an error, the deadline, fail() --> failed --start_abort()--> aborted
//
// fail() also of an absent one: then it is never made.
//
// NCCL is always asked not to block: a call may answer "in progress", and then nothing but the
// question for its state is allowed until that is over.  So each step is begin(), the call, and
// answer() with what the call returned and what each poll after it did, until the order is to stop.
//
// Pure: the caller says what NCCL answered and what time it is, and does what he is told.
#pragma once

#include "runtime/base/time.h"
#include "runtime/nccl/core/codes.h"

#include <string>

namespace distrun::nccl {

enum class Phase { absent, joining, ready, enqueuing, deriving, closing, closed, failed, aborted };
std::string_view to_string(Phase phase);

enum class Step {
  join,     // make it
  enqueue,  // hand operations to the device
  derive,   // make another one from it: split, shrink
  close,    // ncclCommFinalize, then ncclCommDestroy
};

enum class Todo {
  call,        // make the step's call
  poll_soon,   // give up the CPU once, then ask: an enqueue takes microseconds
  poll_later,  // sleep for kPollPause, then ask: what waits for other processes takes long
  done,        // the step is over, well
  destroy,     // the same, of close: ncclCommDestroy now
  fail,        // the step has failed just now; the communicator is to be aborted
  refuse,      // not now: it is closed, or had failed before
};

struct Order {
  Todo todo = Todo::refuse;
  std::string why;  // fail, refuse
  bool timed_out = false;
};

class Life {
 public:
  static constexpr Duration kPollPause = std::chrono::milliseconds(2);
  // So long an enqueue is polled without sleeping.
  static constexpr Duration kBusy = std::chrono::milliseconds(10);

  // call, or refuse.  REQUIRES: no step is under way.
  Order begin(Step step, TimePoint now, TimePoint deadline);
  // `text`: NCCL's words, if the result is an error.  REQUIRES: a step is under way, unless the
  // communicator has failed meanwhile.
  Order answer(NcclResult result, const std::string& text, TimePoint now);
  // Somebody found that this cannot go on.  Keeps the first reason.
  void fail(const std::string& why);
  // True for one caller only, after a failure: he aborts.
  bool start_abort();

  Phase phase() const { return phase_; }
  const std::string& why() const { return why_; }

 private:
  Order fail_step(std::string why, bool timed_out);
  void enter(Phase next);

  Phase phase_ = Phase::absent;
  TimePoint began_{};
  TimePoint deadline_{};
  std::string why_;
};

}  // namespace distrun::nccl
