#include "rendezvous/core/restart_budget.h"

#include "runtime/base/check.h"

#include <algorithm>

namespace distrun::rendezvous {

RestartBudget::RestartBudget(Limits limits, int spent) : limits_(limits), spent_(spent) {
  DISTRUN_CHECK(limits_.max_restarts >= 0);
}

std::optional<std::string> RestartBudget::refusal(TimePoint now) const {
  const std::string most = std::to_string(limits_.max_restarts);
  if (limits_.max_restarts == 0) return "no restart is allowed (--max-restarts 0)";
  if (!limits_.window) {
    if (spent_ < limits_.max_restarts) return std::nullopt;
    return limits_.max_restarts == 1 ? "its only restart is used"
                                     : "all " + most + " restarts are used";
  }
  const auto counts = [&](TimePoint at) { return now - at < *limits_.window; };
  if (std::count_if(recent_.begin(), recent_.end(), counts) < limits_.max_restarts) {
    return std::nullopt;
  }
  return "the limit of " + most + " within " + duration_text(*limits_.window) + " is reached";
}

void RestartBudget::spend(TimePoint now) {
  DISTRUN_CHECK(!refusal(now));
  ++spent_;
  if (!limits_.window) return;
  while (!recent_.empty() && now - recent_.front() >= *limits_.window) recent_.pop_front();
  recent_.push_back(now);
}

}  // namespace distrun::rendezvous
