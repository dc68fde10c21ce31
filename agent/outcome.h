// Outcome: what the agent says to the rendezvous and hears from it, in each other's words.
//
// The agent's core speaks of processes and kernel statuses, the rendezvous of nodes and texts;
// neither knows the other's types.  Pure; used by every RendezvousClient.
#pragma once

#include "agent/core/events.h"
#include "rendezvous/core/messages.h"
#include "runtime/base/time.h"

#include <string>

namespace distrun::agent {

// `host`: this machine's name.  `now`: when the message leaves, by the clock of Ending::at.
rendezvous::Failure failure_of(const Ending& ending, const std::string& host, TimePoint now);

// How `round` went here; it is the round of ended.generation.  `report` is carried if it failed.
rendezvous::Outcome outcome_of(const GroupVerdict& ended, const rendezvous::Fence& round,
                               const std::string& host, std::string report, TimePoint now);

Assignment assignment_of(const rendezvous::Welcome& welcome);

// JobOver, or RoundFailed for a job that ended without a verdict.  `failed_here`: the failure that
// `over` tells of is this node's own, so that its report is not needed.
Event event_of(const rendezvous::Over& over, bool failed_here);

// The first lines of `report`, at most `limit` bytes of them and of a line that says so.
std::string shortened(std::string report, std::size_t limit = rendezvous::kMaxReport);

}  // namespace distrun::agent
