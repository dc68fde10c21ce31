#include "tests/sim/faults.h"

namespace distrun::sim {

using namespace std::chrono_literals;

Faults draw_faults(Random& random) {
  Faults faults;
  const int mood = between(random, 0, 3);
  if (mood > 0) {  // 0: nothing goes wrong
    const double much = mood == 1 ? 0.1 : 1.0;
    faults.spawn_fails = 0.03 * much;
    faults.spawn_slow = 0.1 * much;
    faults.spawn_hangs = mood == 3 ? 0.01 : 0;
    faults.worker_fails = mood == 1 ? 0.1 : 0.35;
    faults.typo = 0.1;
    faults.cascade = chance(random, 0.5) ? 0.8 : 0;
    faults.deaf = 0.15 * much;
    faults.stuck = mood == 3 ? 0.1 : 0;
    faults.leaves = 0.4 * much;
    faults.dies_of_notice = 0.1 * much;
    faults.round_fails = 0.05 * much;
    faults.disband = 0.3 * much;
    faults.job_over = 0.2 * much;
    faults.given_up = 0.1 * much;
    faults.others = 0.3;
  }
  if (chance(random, 0.4)) faults.stops = between(random, 1, 4);
  if (chance(random, 0.4)) faults.notices = between(random, 1, 5);
  faults.stop_before_begin = chance(random, 0.01);
  return faults;
}

agent::AgentLimits draw_limits(Random& random) {
  agent::AgentLimits limits;
  limits.nproc = between(random, 0, 9) == 0 ? 8 : between(random, 1, 4);
  constexpr Duration kGraces[] = {0s, 100ms, 1s, 30s};
  limits.grace = kGraces[between(random, 0, 3)];
  limits.patience = chance(random, 0.5) ? Duration(1s) : Duration(10s);
  return limits;
}

rendezvous::RestartBudget::Limits draw_budget(Random& random) {
  rendezvous::RestartBudget::Limits limits;
  limits.max_restarts = between(random, 0, 3);
  if (chance(random, 0.2)) limits.window = 20s;
  return limits;
}

}  // namespace distrun::sim
