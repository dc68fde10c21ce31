#include "tests/sim/rendezvous/plan.h"

#include <algorithm>

namespace distrun::rendezvous::sim {

using namespace std::chrono_literals;
using distrun::sim::between;
using distrun::sim::chance;
using distrun::sim::millis;
using distrun::sim::Random;

namespace {

constexpr Duration kFaultsLast = 60s;

Weather draw_weather(Random& random) {
  switch (between(random, 0, 4)) {
    case 0:
      return {100us, 0ms, 0};
    case 1:
      return {200us, 1ms, 0};
    case 2:
      return {1ms, 20ms, 0.01};
    case 3:
      return {25ms, 50ms, 0.02};
    default:
      return {1ms, 200ms, 0.05};
  }
}

Terms draw_terms(Random& random, int nodes) {
  Terms terms;
  terms.max_nodes = between(random, std::max(1, nodes - 3), nodes + 1);
  terms.min_nodes = chance(random, 0.3) ? terms.max_nodes : between(random, 1, terms.max_nodes);
  terms.command = "train.py";
  terms.max_restarts = between(random, 0, 3);
  if (chance(random, 0.2)) terms.restart_window = 20s;
  terms.join_timeout = std::chrono::seconds(between(random, 10, 40));
  terms.last_call = millis(random, 100, 5000);
  terms.rejoin_wait = chance(random, 0.5) ? Duration(100ms) : millis(random, 0, 3000);
  if (chance(random, 0.1)) {
    terms.fixed_ranks = true;
    terms.min_nodes = terms.max_nodes;
  }
  return terms;
}

std::vector<NodePlan> draw_nodes(Random& random, int count, const Terms& terms) {
  std::vector<NodePlan> nodes;
  const bool uneven = chance(random, 0.3);
  const bool slow = chance(random, 0.3);
  for (int i = 0; i < count; ++i) {
    NodePlan node;
    node.host = i;
    node.starts = slow ? millis(random, 0, 8000) : millis(random, 0, 300);
    node.nproc = uneven ? between(random, 1, 8) : 2;
    if (chance(random, 0.2)) node.role = "other";
    if (terms.fixed_ranks) {
      // Against the order of names, which would be theirs anyhow.
      if (i < terms.max_nodes) node.asked = NodeRank{terms.max_nodes - 1 - i};
    } else if (chance(random, 0.1)) {
      node.asked = NodeRank{between(random, 0, terms.max_nodes)};
    }
    if (terms.fixed_ranks && i >= terms.max_nodes) break;
    nodes.push_back(node);
  }
  return nodes;
}

Fault draw_fault(Random& random) {
  // Kinds by weight.
  constexpr FaultKind kKinds[] = {FaultKind::kill_agent,
                                  FaultKind::kill_agent,
                                  FaultKind::kill_agent,
                                  FaultKind::crash_host,
                                  FaultKind::crash_host,
                                  FaultKind::pause_agent,
                                  FaultKind::pause_agent,
                                  FaultKind::cut_one_way,
                                  FaultKind::cut_both_ways,
                                  FaultKind::isolate_host,
                                  FaultKind::isolate_host,
                                  FaultKind::partition,
                                  FaultKind::partition,
                                  FaultKind::storm,
                                  FaultKind::kill_coordinator,
                                  FaultKind::kill_coordinator,
                                  FaultKind::crash_coordinator,
                                  FaultKind::pause_coordinator,
                                  FaultKind::pause_coordinator,
                                  FaultKind::leave,
                                  FaultKind::leave,
                                  FaultKind::newcomer,
                                  FaultKind::newcomer,
                                  FaultKind::stranger,
                                  FaultKind::break_at_seal};
  Fault fault;
  fault.kind = kKinds[static_cast<std::size_t>(between(random, 0, std::ssize(kKinds) - 1))];
  fault.at = millis(random, 0, 50'000);
  fault.target = between(random, 0, 1 << 20);
  fault.other = between(random, 0, 1 << 20);
  fault.lasts = chance(random, 0.5) ? millis(random, 10, 2500) : millis(random, 10, 20'000);
  fault.returns = chance(random, 0.6);
  return fault;
}

}  // namespace

std::string_view to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::kill_agent:
      return "an agent is killed";
    case FaultKind::crash_host:
      return "a host crashes";
    case FaultKind::pause_agent:
      return "an agent is paused";
    case FaultKind::cut_one_way:
      return "a path is cut one way";
    case FaultKind::cut_both_ways:
      return "a path is cut both ways";
    case FaultKind::isolate_host:
      return "a host is cut off";
    case FaultKind::partition:
      return "the network is parted";
    case FaultKind::storm:
      return "the network is bad";
    case FaultKind::kill_coordinator:
      return "the coordinator is killed";
    case FaultKind::crash_coordinator:
      return "the coordinator's host crashes";
    case FaultKind::pause_coordinator:
      return "the coordinator is paused";
    case FaultKind::leave:
      return "an agent leaves";
    case FaultKind::newcomer:
      return "a node comes late";
    case FaultKind::stranger:
      return "a stranger calls";
    case FaultKind::break_at_seal:
      return "connections break at the next seal";
  }
  return "?";
}

Plan draw_plan(Random& random) {
  Plan plan;
  plan.daemon = chance(random, 0.4);
  if (!plan.daemon) {
    const int rule = between(random, 0, 9);
    plan.rule = rule == 0   ? TakeoverRule::any
                : rule == 1 ? TakeoverRule::never
                            : TakeoverRule::majority;
    plan.takeover = plan.rule != TakeoverRule::never;
  }
  const int count = between(random, 2, chance(random, 0.3) ? 12 : 6);
  plan.terms = draw_terms(random, count);
  plan.weather = draw_weather(random);
  plan.nodes = draw_nodes(random, count, plan.terms);

  const int mood = between(random, 0, 4);
  // Worlds in which all machines live have something to lose: see kGoesOn.
  const bool only_connections = mood == 0 && chance(random, 0.5);
  const int faults = only_connections ? between(random, 1, 6)
                     : mood == 0      ? 0
                     : mood == 1      ? 1
                     : mood == 2      ? between(random, 2, 4)
                                      : between(random, 4, 16);
  for (int i = 0; i < faults; ++i) {
    Fault fault = draw_fault(random);
    if (only_connections) fault.kind = FaultKind::break_at_seal;
    plan.faults.push_back(fault);
  }
  plan.faults_end = faults == 0 ? Duration(10s) : kFaultsLast;

  plan.work = millis(random, 500, chance(random, 0.5) ? 10'000 : 70'000);
  plan.skewed_exit = chance(random, 0.2);
  if (chance(random, 0.5)) plan.worker_fails = chance(random, 0.5) ? 0.05 : 0.3;
  if (chance(random, 0.1)) plan.fails_at_start = 0.2;
  if (chance(random, 0.1)) plan.hangs = 0.3;
  if (chance(random, 0.5)) plan.cascade = 0.7;
  if (chance(random, 0.05)) plan.remains = 0.2;
  if (chance(random, 0.3)) plan.slow_stop = 0.3;

  plan.start_timeout = std::chrono::seconds(between(random, 60, 90));
  plan.patience = std::chrono::seconds(between(random, 30, 90));
  plan.takeover_patience = std::chrono::seconds(between(random, 10, 30));
  return plan;
}

bool Plan::only_connections_break() const {
  return weather.loss <= 0.01 && std::all_of(faults.begin(), faults.end(), [](const Fault& fault) {
           return fault.kind == FaultKind::break_at_seal;
         });
}

Duration settling_bound(const Plan& plan) {
  return plan.start_timeout + plan.patience + plan.takeover_patience + plan.terms.join_timeout +
         plan.terms.last_call + plan.work + plan.grace + 60s;
}

}  // namespace distrun::rendezvous::sim
