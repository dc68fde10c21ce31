// Events and effects of the agent's cores as lines of text: what a scenario file holds and what a
// failed simulation prints.
#pragma once

#include "agent/core/agent.h"
#include "agent/core/events.h"

#include <string>

namespace distrun::sim {

std::string to_line(const agent::Event& event);
std::string to_line(const agent::Effect& effect);

// "draining/stopping": the agent's phase and its group's.
std::string phases(const agent::AgentState& state);

}  // namespace distrun::sim
