// What the transcripts of tests/scenario do not tell.
#include "agent/core/agent.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

namespace distrun::agent {
namespace {

using namespace std::chrono_literals;
constexpr TimePoint t0{1h};

const JobVerdict& verdict(const Effects& effects) {
  return std::get<Finish>(effects.back()).verdict;
}

TEST(Agent, TakesItsLimitsFromTheSpec) {
  Spec spec;
  spec.nproc = 8;
  spec.grace = 600s;
  spec.max_restarts = 5;
  spec.restart_window = 1h;
  const AgentLimits limits = limits_of(spec);
  EXPECT_EQ(limits.nproc, 8);
  EXPECT_EQ(limits.grace, 600s);
  EXPECT_EQ(limits.restarts, (RestartBudget::Limits{5, 1h}));
}

TEST(Agent, EachWayToGetNoRoundHasItsExitCode) {
  for (const auto& [error, code] : {std::pair{RoundError::timed_out, 75},
                                    {RoundError::closed, 69},
                                    {RoundError::refused, 77},
                                    {RoundError::no_store, 71}}) {
    Agent agent{AgentLimits{}};
    agent.handle(Begin{}, t0);
    EXPECT_EQ(verdict(agent.handle(RoundFailed{error, "why"}, t0)).exit_code, code);
  }
}

TEST(Agent, AStopBeforeItBeganEndsItWithoutLeavingAnything) {
  Agent agent{AgentLimits{}};
  const Effects effects = agent.handle(StopRequested{SIGTERM}, t0);
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(verdict(effects).exit_code, 143);
}

TEST(Agent, ANoticeBeforeTheFirstRoundReachesNobody) {
  Agent agent{AgentLimits{}};
  agent.handle(Begin{}, t0);
  EXPECT_TRUE(agent.handle(NoticeSignal{SIGUSR1}, t0).empty());
}

TEST(Agent, StartsARoundBeforeItSpawnsIntoIt) {
  Agent agent{AgentLimits{}};
  agent.handle(Begin{}, t0);
  const Effects effects = agent.handle(Welcome{}, t0);
  ASSERT_GE(effects.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<StartGroup>(effects[effects.size() - 2]));
  EXPECT_TRUE(std::holds_alternative<Spawn>(effects.back()));
}

TEST(Agent, AWelcomeThatNobodyAskedForIsIgnored) {
  Agent agent{AgentLimits{}};
  agent.handle(Begin{}, t0);
  agent.handle(Welcome{}, t0);
  Assignment later;
  later.generation = Generation{9};
  EXPECT_TRUE(agent.handle(Welcome{later}, t0).empty());
}

TEST(Agent, NothingIsPendingOnceItIsDone) {
  Agent agent{AgentLimits{}};
  agent.handle(StopRequested{SIGTERM}, t0);
  EXPECT_EQ(agent.next_deadline(), std::nullopt);
  EXPECT_TRUE(agent.handle(Tick{}, t0).empty());
}

}  // namespace
}  // namespace distrun::agent
