// Plan: one world's job, nodes, weather and faults, drawn from the seed before it begins.  Some
// worlds are calm, others hostile throughout; in each the faults stop at a known time.
#pragma once

#include "rendezvous/core/member.h"
#include "tests/sim/random.h"
#include "tests/sim/rendezvous/network.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::rendezvous::sim {

struct NodePlan {
  HostId host = 0;
  Duration starts{};
  int nproc = 1;
  std::string role = "default";
  std::optional<NodeRank> asked;
};

enum class FaultKind {
  kill_agent,         // kill -9
  crash_host,         // and, if it lasts, boot it again
  pause_agent,        // SIGSTOP, SIGCONT
  cut_one_way,        // from one host to another
  cut_both_ways,      // between two hosts
  isolate_host,       // from all others
  partition,          // hosts in two groups
  storm,              // loss and delay for everybody
  kill_coordinator,   // the daemon, or the agent that hosts; a daemon starts again from its journal
  crash_coordinator,  // the host that it runs on
  pause_coordinator,  //
  leave,              // the operator stops one agent
  newcomer,           // a further node
  stranger,           // bad bytes, other flags, other token, other version, silence
  break_at_seal,      // connections of the coordinator, between a seal and its Welcomes
};
std::string_view to_string(FaultKind kind);

struct Fault {
  Duration at{};
  FaultKind kind = FaultKind::kill_agent;
  int target = 0;  // a number to choose by, among those that are there then
  int other = 0;
  Duration lasts{};
  bool returns = false;  // a killed agent is started again
};

struct Plan {
  bool daemon = true;
  TakeoverRule rule = TakeoverRule::majority;
  bool takeover = true;
  Terms terms;
  Weather weather;
  std::vector<NodePlan> nodes;
  std::vector<Fault> faults;
  Duration faults_end{};

  double worker_fails = 0;  // of groups: by itself, at any moment
  double fails_at_start = 0;
  double hangs = 0;      // never ends
  double cascade = 0;    // of the others, when one fails
  double remains = 0;    // processes survive SIGKILL
  double slow_stop = 0;  // up to the grace
  Duration grace = std::chrono::seconds(2);
  Duration work{};           // of a round that succeeds
  bool skewed_exit = false;  // nodes of a round succeed at quite different times

  Duration start_timeout{};
  Duration patience{};
  Duration takeover_patience{};

  // Connections break, and nothing else goes wrong with machines, network or coordinator.
  bool only_connections_break() const;
  // Nothing goes wrong with machines, network or coordinator.
  bool calm() const { return faults.empty() && weather.loss <= 0.01; }
};

Plan draw_plan(distrun::sim::Random& random);

// Until when, after the last fault, a job must run or be over.
Duration settling_bound(const Plan& plan);

}  // namespace distrun::rendezvous::sim
