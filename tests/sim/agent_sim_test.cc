// A few hundred worlds in virtual time.  A world that fails prints its seed, the step, the sentence
// that does not hold and the last lines of its transcript; DISTRUN_SIM_SEED=N runs only that one.
#include "agent/core/agent.h"
#include "agent/core/worker_group.h"
#include "tests/sim/transcript.h"
#include "tests/sim/world.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace distrun::sim {
namespace {

constexpr std::uint64_t kSeeds = 600;

testing::AssertionResult holds(std::uint64_t seed, Coverage& coverage) {
  World world(seed, coverage);
  const std::string broken = world.run();
  if (broken.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "seed " << seed << ", step " << world.steps() << ": " << broken << "\n"
         << world.tail();
}

// All the worlds, run once for all tests of this file.
const Coverage& coverage_of_all_seeds() {
  static const Coverage coverage = [] {
    Coverage seen;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      if (!holds(seed, seen)) break;  // the first test says so
    }
    return seen;
  }();
  return coverage;
}

bool replaying() {
  return std::getenv("DISTRUN_SIM_SEED") != nullptr;
}

TEST(AgentSim, NoInvariantBreaksInAnyWorld) {
  Coverage coverage;
  if (const char* seed = std::getenv("DISTRUN_SIM_SEED")) {
    EXPECT_TRUE(holds(std::strtoull(seed, nullptr, 10), coverage));
    return;
  }
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) ASSERT_TRUE(holds(seed, coverage));
}

TEST(AgentSim, EveryLegalChangeOfPhaseIsSeen) {
  if (replaying()) GTEST_SKIP() << "DISTRUN_SIM_SEED is set: one world sees less than all of them";
  const Coverage& coverage = coverage_of_all_seeds();
  for (const auto& edge : agent::kGroupEdges) {
    EXPECT_TRUE(coverage.group_edges.contains(edge))
        << "group: " << to_string(edge.first) << " to " << to_string(edge.second);
  }
  for (const auto& edge : agent::kAgentEdges) {
    EXPECT_TRUE(coverage.agent_edges.contains(edge))
        << "agent: " << to_string(edge.first) << " to " << to_string(edge.second);
  }
}

TEST(AgentSim, EverySituationThatMattersIsSeen) {
  if (replaying()) GTEST_SKIP() << "DISTRUN_SIM_SEED is set: one world sees less than all of them";
  const auto& seen = coverage_of_all_seeds().situations;
  for (const char* situation : {"success",
                                "success after a restart",
                                "failure",
                                "failure after a restart",
                                "interrupted",
                                "no round",
                                "a worker is called first failure",
                                "a worker is called victim",
                                "a worker is called stopped",
                                "a worker is called succeeded",
                                "a worker is abandoned",
                                "leftovers are abandoned",
                                "a start fails",
                                "a failure is held back",
                                "a spawn never answers",
                                "the job is over while launching",
                                "the job is over while working",
                                "the job is over while draining",
                                "the first failure was on another node",
                                "a round beside what is still there is not started",
                                "the last word is answered",
                                "the last word is not answered"}) {
    EXPECT_TRUE(seen.contains(situation)) << situation;
  }
  for (const std::string_view stage : agent::kExecStageTexts) {
    EXPECT_TRUE(seen.contains("a spawn fails: " + std::string(stage))) << stage;
  }
}

TEST(AgentSim, TheSameSeedTellsTheSameStory) {
  Coverage coverage;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World first(seed, coverage);
    World second(seed, coverage);
    first.run();
    second.run();
    EXPECT_EQ(first.fingerprint(), second.fingerprint()) << "seed " << seed;
  }
}

TEST(AgentSim, OtherSeedsTellOtherStories) {
  Coverage coverage;
  World first(1, coverage);
  World second(2, coverage);
  first.run();
  second.run();
  EXPECT_NE(first.fingerprint(), second.fingerprint());
}

}  // namespace
}  // namespace distrun::sim
