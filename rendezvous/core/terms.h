// Terms compared: what two nodes of one job must have in common, in words when they have not.
#pragma once

#include "rendezvous/core/messages.h"
#include "rendezvous/core/restart_budget.h"

#include <optional>
#include <string>

namespace distrun::rendezvous {

// Why these terms cannot be anybody's; nullopt: they can.
std::optional<std::string> terms_problem(const Terms& terms);

RestartBudget::Limits budget_limits(const Terms& terms);

// "--nnodes: 4:4 here, 2:4 in the job; script: b.py here, a.py in the job"; empty: they agree.
std::string terms_difference(const Terms& here, const Terms& job);

}  // namespace distrun::rendezvous
