// Faults: what may go wrong in one simulated world, and how often.  Drawn from the seed, so that
// some worlds are calm enough to succeed and others are hostile throughout.
#pragma once

#include "agent/core/agent.h"
#include "runtime/base/time.h"

#include <random>

namespace distrun::sim {

using Random = std::mt19937_64;

inline bool chance(Random& random, double probability) {
  return static_cast<double>(random() >> 11) * 0x1p-53 < probability;
}
// In [low, high].  Not std::uniform_int_distribution: a seed must mean the same with every library.
inline int between(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1));
}
inline Duration micros(Random& random, int low, int high) {
  return std::chrono::microseconds(between(random, low, high));
}
inline Duration millis(Random& random, int low, int high) {
  return std::chrono::milliseconds(between(random, low, high));
}

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
  int stops = 0;              // signals of the operator, at random moments
  int notices = 0;
  bool stop_before_begin = false;
};

Faults draw_faults(Random& random);
agent::AgentLimits draw_limits(Random& random);

}  // namespace distrun::sim
