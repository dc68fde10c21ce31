// RestartBudget: may the job be restarted once more, and if not, why.  One budget for the whole
// job.
//
// Counts restarts after failures; a change of membership is free and never asks here.  With a
// window only the restarts within it count, so that a job of weeks is not ended by its fourth bad
// hour.
#pragma once

#include "runtime/base/time.h"

#include <deque>
#include <optional>
#include <string>

namespace distrun::rendezvous {

class RestartBudget {
 public:
  struct Limits {
    int max_restarts = 0;
    std::optional<Duration> window;  // nullopt: the whole life of the job
    bool operator==(const Limits&) const = default;
  };

  // `spent`: restarts before, of which only the number is known; they do not count in a window.
  explicit RestartBudget(Limits limits, int spent = 0);

  // nullopt: spend() would be granted.  Otherwise the reason, as one clause: "all 3 restarts are
  // used".
  std::optional<std::string> refusal(TimePoint now) const;
  // REQUIRES: no refusal(now).
  void spend(TimePoint now);
  // Restarts so far, in the whole life of the job.
  int spent() const { return spent_; }

 private:
  Limits limits_;
  int spent_ = 0;
  std::deque<TimePoint> recent_;  // at most max_restarts: those within the window
};

}  // namespace distrun::rendezvous
