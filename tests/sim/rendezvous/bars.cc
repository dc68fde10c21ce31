#include "tests/sim/rendezvous/bars.h"

#include "tests/sim/rendezvous/crowd.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

namespace distrun::rendezvous::sim {

using namespace std::chrono_literals;

namespace {

constexpr double kScaleCpu = 5;     // seconds
constexpr double kMessages = 4;     // of an agent, in a phase
constexpr double kCostRatio = 1.5;  // of an agent among many, to one among a hundred
constexpr double kHourCpu = 60;     // seconds
constexpr int kFew = 100;

double cpu() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

struct Formed {
  bool good = false;
  double seconds = 0;  // of CPU, the simulation's own cost among them
  double core = 0;     // of these, the coordinator's
  double first = 0;    // messages per agent, to the first round
  double second = 0;   // from the loss to the second
};

Formed form_twice(int agents) {
  Formed formed;
  const double begin = cpu();
  CrowdPlan plan;
  plan.nodes = agents;
  plan.min_nodes = agents / 2;
  Crowd crowd(plan);
  crowd.start();
  formed.good = crowd.run_until_working(30s);
  const long before = crowd.messages();
  formed.first = static_cast<double>(before) / agents;
  crowd.kill_every(10);
  crowd.run_for(20ms);
  formed.good = crowd.run_until_working(30s) && formed.good && crowd.rounds() == 2;
  formed.second = static_cast<double>(crowd.messages() - before) / crowd.living();
  formed.seconds = cpu() - begin;
  formed.core = crowd.core_seconds();
  return formed;
}

}  // namespace

bool bar_scale(int agents) {
  form_twice(kFew);  // warm
  Formed few;
  const int times = std::max(1, agents / kFew);
  for (int i = 0; i < times; ++i) {
    const Formed one = form_twice(kFew);
    few.seconds += one.seconds;
    few.core += one.core;
  }
  const Formed formed = form_twice(agents);
  // The simulation's own cost grows with what no longer fits into a cache: it is shown, no more.
  const double ratio = (formed.core / agents) / (few.core / (times * kFew));
  const double all = (formed.seconds / agents) / (few.seconds / (times * kFew));
  const bool good = formed.good && formed.seconds < kScaleCpu && formed.first <= kMessages &&
                    formed.second <= kMessages && ratio <= kCostRatio;
  std::printf(
      "scale: %d agents formed a round, lost a tenth, formed another%s: %.2f s of CPU (bar %.0f), "
      "%.2f and %.2f messages per agent (bar %.0f), the coordinator's CPU per agent %.1f us, %.2f "
      "times that with %d (bar %.1f; with the simulation's own %.2f times): %s\n",
      agents, formed.good ? "" : " NOT", formed.seconds, kScaleCpu, formed.first, formed.second,
      kMessages, formed.core / agents * 1e6, ratio, kFew, kCostRatio, all,
      good ? "holds" : "FAILS");
  return good;
}

bool bar_hour(int agents) {
  const double begin = cpu();
  CrowdPlan plan;
  plan.nodes = agents;
  plan.min_nodes = agents / 2;
  plan.max_restarts = 1000;
  plan.weather = {200us, 1ms, 0.001};
  Crowd crowd(plan);
  crowd.start();
  crowd.run_for(10s);
  for (int number = 0; number < 358; ++number) {
    crowd.fault(number);
    crowd.run_for(10s);
  }
  const bool works = crowd.run_until_working(20s);
  const double seconds = cpu() - begin;
  const bool good = works && !crowd.over() && seconds < kHourCpu;
  std::printf(
      "hour: %d agents, a fault every 10 s for an hour: %d rounds, %d agents live, the job %s%s; "
      "%ld messages, %ld beats; %.1f s of CPU (bar %.0f): %s\n",
      agents, crowd.rounds(), crowd.living(), works ? "runs" : "does NOT run",
      crowd.ended().c_str(), crowd.messages(), crowd.beats(), seconds, kHourCpu,
      good ? "holds" : "FAILS");
  return good;
}

bool bar_calm(int hours) {
  bool good = true;
  for (int nodes = 4; nodes <= 8; ++nodes) {
    CrowdPlan plan;
    plan.nodes = nodes;
    plan.min_nodes = 1;
    plan.weather = {1ms, 200ms, 0.05};
    plan.careful = true;
    plan.seed = static_cast<std::uint64_t>(nodes);
    Crowd crowd(plan);
    crowd.start();
    crowd.run_for(std::chrono::hours(hours));
    const bool holds = crowd.losses() == 0 && crowd.rounds() == 1 && crowd.all_working();
    good = good && holds;
    std::printf(
        "calm: %d nodes for %d hours with 5 %% loss and 200 ms jitter: %d lost, %d round(s), %ld "
        "beats: %s\n",
        nodes, hours, crowd.losses(), crowd.rounds(), crowd.beats(), holds ? "holds" : "FAILS");
  }
  return good;
}

}  // namespace distrun::rendezvous::sim
