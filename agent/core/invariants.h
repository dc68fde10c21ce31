// What is true of any state of a WorkerGroup and of an Agent, and of any step from one state to the
// next.  Each is one sentence with one function; tests and the simulation check all of them after
// every event, and scripts/mutate shows that each of them catches a core that breaks it.
#pragma once

#include "agent/core/agent.h"
#include "agent/core/events.h"
#include "agent/core/worker_group.h"

#include <string>
#include <string_view>
#include <vector>

namespace distrun::agent {

// An empty string, or the invariant that is broken.
std::string broken_invariant(const GroupState& state, const GroupLimits& limits);
std::string broken_invariant(const AgentState& state, const AgentLimits& limits);

// The same for the step that handle(event, now) made and the effects that it returned.
std::string broken_step(const GroupState& before, const GroupState& after,
                        const GroupEffects& effects, TimePoint now);
std::string broken_step(const AgentState& before, const AgentState& after, const Effects& effects,
                        TimePoint now);

// Every sentence that the functions above can return.
std::vector<std::string_view> invariant_sentences();

}  // namespace distrun::agent
