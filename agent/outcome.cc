#include "agent/outcome.h"

#include "agent/core/exit_status.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace distrun::agent {

rendezvous::Failure failure_of(const Ending& ending, const std::string& host, TimePoint now) {
  rendezvous::Failure failure;
  failure.host = host;
  failure.rank = ending.rank;
  failure.local_rank = ending.local_rank;
  failure.pid = ending.pid;
  failure.status = to_text(ending.status);
  failure.exit_code = process_exit_code(ending.status);
  failure.age = std::max(now - ending.at, Duration{});
  return failure;
}

rendezvous::Outcome outcome_of(const GroupVerdict& ended, const rendezvous::Fence& round,
                               const std::string& host, std::string report, TimePoint now) {
  rendezvous::Outcome outcome;
  outcome.round = round;
  switch (ended.result) {
    case GroupResult::succeeded:
      outcome.result = rendezvous::RoundResult::succeeded;
      break;
    case GroupResult::failed:
      outcome.result = rendezvous::RoundResult::failed;
      break;
    case GroupResult::stopped:
      outcome.result = rendezvous::RoundResult::stopped;
      break;
  }
  if (ended.first_failure) {
    outcome.failure = failure_of(*ended.first_failure, host, now);
    outcome.report = std::move(report);
  }
  outcome.failed_at_start = ended.failed_at_start;
  outcome.remains = !ended.abandoned.empty() || ended.leftovers_abandoned;
  return outcome;
}

Assignment assignment_of(const rendezvous::Welcome& welcome) {
  Assignment assignment;
  assignment.generation = welcome.round.generation;
  assignment.node_rank = welcome.node_rank;
  assignment.node_count = welcome.node_count;
  assignment.base_rank = welcome.base_rank;
  assignment.world_size = welcome.world_size;
  assignment.base_role_rank = welcome.base_role_rank;
  assignment.role_world_size = welcome.role_world_size;
  assignment.master_addr = welcome.master_addr;
  assignment.master_port = welcome.master_port;
  assignment.restart_count = welcome.restart_count;
  return assignment;
}

Event event_of(const rendezvous::Over& over, bool failed_here) {
  switch (over.result) {
    case rendezvous::OverResult::succeeded:
      return JobOver{JobResult::succeeded, 0, over.why, over.restarts, {}};
    case rendezvous::OverResult::failed:
      return JobOver{JobResult::failed, over.exit_code, over.why, over.restarts,
                     failed_here ? std::string() : over.report};
    case rendezvous::OverResult::timed_out:
      return RoundFailed{RoundError::timed_out, over.why};
    case rendezvous::OverResult::closed:
      return RoundFailed{RoundError::closed, over.why};
  }
  return RoundFailed{RoundError::closed, over.why};
}

std::string shortened(std::string report, std::size_t limit) {
  constexpr std::string_view kCut = "(the rest of this report is left out)\n";
  if (report.size() <= limit) return report;
  if (limit < kCut.size()) return {};
  const std::size_t newline = report.rfind('\n', limit - kCut.size());
  report.resize(newline == std::string::npos || newline >= limit - kCut.size() ? 0 : newline + 1);
  return report.append(kCut);
}

}  // namespace distrun::agent
