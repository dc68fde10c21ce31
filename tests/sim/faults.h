// Faults: what may go wrong in one simulated world, and how often.  Drawn from the seed, so that
// some worlds are calm enough to succeed and others are hostile throughout.
#pragma once

#include "agent/core/agent.h"
#include "rendezvous/core/restart_budget.h"
#include "runtime/base/time.h"
#include "tests/sim/random.h"

namespace distrun::sim {

struct Faults {
  double spawn_fails = 0;     // at a random stage
  double spawn_hangs = 0;     // never answered
  double spawn_slow = 0;      // up to half a second
  double worker_fails = 0;    // by itself, at any moment
  double typo = 0;            // of whole worlds: every worker fails at once, in every round
  double cascade = 0;         // a failure takes this share of the others with it
  double deaf = 0;            // ignores the stop signal
  double stuck = 0;           // SIGKILL does not help
  double leaves = 0;          // has children
  double dies_of_notice = 0;  // has no handler for SIGUSR1
  double round_fails = 0;     // no place in the next round
  double disband = 0;         // of rounds: membership changes
  double job_over = 0;        // unasked, at any moment
  double given_up = 0;        // the rendezvous is gone, at any moment
  double others = 0;          // of rounds: other nodes take part, and have their own failures
  int stops = 0;              // signals of the operator, at random moments
  int notices = 0;
  bool stop_before_begin = false;
};

Faults draw_faults(Random& random);
agent::AgentLimits draw_limits(Random& random);
// What the simulated rendezvous grants.
rendezvous::RestartBudget::Limits draw_budget(Random& random);

}  // namespace distrun::sim
