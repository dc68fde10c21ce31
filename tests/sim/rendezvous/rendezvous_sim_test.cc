// A few hundred worlds of nodes, coordinators and a bad network in virtual time.  A world that
// fails prints its seed, the sentence that does not hold and its story; DISTRUN_SIM_SEED=N runs
// only that one.
#include "rendezvous/core/invariants.h"
#include "tests/sim/rendezvous/crowd.h"
#include "tests/sim/rendezvous/world.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

namespace distrun::rendezvous::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSeeds = 800;

testing::AssertionResult holds(std::uint64_t seed, Coverage& coverage) {
  World world(seed, coverage);
  if (world.run().empty()) return testing::AssertionSuccess();
  Coverage again;
  World told(seed, again, true);
  const std::string broken = told.run();
  return testing::AssertionFailure()
         << told.story() << "seed " << seed << ", step " << told.steps() << ": " << broken;
}

void expect_every_edge(const Coverage& coverage) {
  for (const auto& edge : kRoundEdges) {
    EXPECT_TRUE(coverage.round_edges.contains(edge))
        << "rendezvous: " << to_string(edge.first) << " to " << to_string(edge.second);
  }
  for (const auto& edge : kMemberEdges) {
    EXPECT_TRUE(coverage.member_edges.contains(edge))
        << "member: " << to_string(edge.first) << " to " << to_string(edge.second);
  }
}

void expect_every_situation(const Coverage& coverage) {
  const auto& seen = coverage.situations;
  for (const char* situation :
       {"the job ends: succeeded", "the job ends: failed", "the job ends: timed out",
        "a node takes over",       "a host yields",        "a node gives up",
        "a node succeeds",         "a job runs on",        "a coordinator learns of a round",
        "join is noted",           "reattach is noted",    "refuse is noted",
        "seal is noted",           "failure is noted",     "leave is noted",
        "loss is noted",           "disband is noted",     "restart is noted",
        "takeover is noted",       "over is noted",        "connections break at a seal"}) {
    EXPECT_TRUE(seen.contains(situation)) << situation;
  }
  for (int kind = 0; kind <= static_cast<int>(FaultKind::break_at_seal); ++kind) {
    const std::string fault(to_string(static_cast<FaultKind>(kind)));
    EXPECT_TRUE(seen.contains("fault: " + fault)) << fault;
  }
}

// One campaign for both: the worlds take a minute.
TEST(RendezvousSim, NoInvariantBreaksInAnyWorldAndNothingThatMattersIsUnseen) {
  Coverage coverage;
  if (const char* seed = std::getenv("DISTRUN_SIM_SEED")) {
    EXPECT_TRUE(holds(std::strtoull(seed, nullptr, 10), coverage));
    return;
  }
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) ASSERT_TRUE(holds(seed, coverage));
  expect_every_edge(coverage);
  expect_every_situation(coverage);
}

TEST(RendezvousSim, TheSameSeedTellsTheSameStory) {
  Coverage coverage;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World first(seed, coverage, true);
    World second(seed, coverage, true);
    first.run();
    second.run();
    EXPECT_EQ(first.fingerprint(), second.fingerprint()) << "seed " << seed;
  }
}

TEST(RendezvousSim, OtherSeedsTellOtherStories) {
  Coverage coverage;
  World first(1, coverage, true);
  World second(2, coverage, true);
  first.run();
  second.run();
  EXPECT_NE(first.fingerprint(), second.fingerprint());
}

TEST(RendezvousSim, ARoundCostsAnAgentAtMostFourMessages) {
  constexpr int kAgents = 500;
  CrowdPlan plan;
  plan.nodes = kAgents;
  plan.min_nodes = kAgents / 2;
  Crowd crowd(plan);
  crowd.start();
  ASSERT_TRUE(crowd.run_until_working(30s));
  EXPECT_LE(crowd.messages(), 4 * kAgents);
  const long before = crowd.messages();
  crowd.kill_every(10);
  crowd.run_for(20ms);
  ASSERT_TRUE(crowd.run_until_working(30s));
  EXPECT_EQ(crowd.rounds(), 2);
  EXPECT_LE(crowd.messages() - before, 4 * crowd.living());
}

TEST(RendezvousSim, NobodyIsLostInAnHourOfBadWeather) {
  CrowdPlan plan;
  plan.nodes = 6;
  plan.weather = {1ms, 200ms, 0.05};
  plan.careful = true;
  Crowd crowd(plan);
  crowd.start();
  crowd.run_for(1h);
  EXPECT_EQ(crowd.losses(), 0);
  EXPECT_EQ(crowd.rounds(), 1);
  EXPECT_TRUE(crowd.all_working());
}

}  // namespace
}  // namespace distrun::rendezvous::sim
