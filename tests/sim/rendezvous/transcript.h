// Events, effects and messages of the rendezvous as lines of text, for the story of a failed seed.
#pragma once

#include "rendezvous/core/member.h"
#include "rendezvous/core/rendezvous.h"
#include "tests/sim/rendezvous/model_agent.h"

#include <string>

namespace distrun::rendezvous::sim {

std::string to_line(const Fence& fence);
std::string to_line(const AgentMessage& message);
std::string to_line(const CoordinatorMessage& message);
std::string to_line(const Event& event);
std::string to_line(const Effect& effect);
std::string to_line(const member::Event& event);
std::string to_line(const member::Effect& effect);
std::string to_line(const Exit& exit);

}  // namespace distrun::rendezvous::sim
