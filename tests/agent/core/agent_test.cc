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
  const AgentLimits limits = limits_of(spec);
  EXPECT_EQ(limits.nproc, 8);
  EXPECT_EQ(limits.grace, 600s);
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

TEST(Agent, CountsRestartsAsTheRendezvousDoes) {
  Agent agent{AgentLimits{}};
  agent.handle(Begin{}, t0);
  Assignment late;
  late.restart_count = 2;
  agent.handle(Welcome{late}, t0);
  EXPECT_EQ(agent.restarts(), 2);
  agent.handle(JobOver{JobResult::failed, 1, "why", 3, {}}, t0);
  EXPECT_EQ(agent.restarts(), 3);
}

TEST(Agent, AJobThatFailedNeverEndsWithStatusZero) {
  Agent agent{AgentLimits{}};
  agent.handle(Begin{}, t0);
  EXPECT_EQ(verdict(agent.handle(JobOver{JobResult::failed, 0, "why", 0, {}}, t0)).exit_code, 1);
}

TEST(Agent, AFailureElsewhereBringsItsReportAndNoCauseOfThisNode) {
  Agent agent{AgentLimits{}};
  agent.handle(Begin{}, t0);
  agent.handle(Welcome{}, t0);
  agent.handle(SpawnFailed{Generation{}, LocalRank{0}, ExecStage::exec, 2}, t0);
  agent.handle(LeftoversGone{Generation{}, 1}, t0);
  const Effects effects =
      agent.handle(JobOver{JobResult::failed, 13, "why", 0, "rank 5: ValueError"}, t0);
  EXPECT_EQ(verdict(effects).report, "rank 5: ValueError");
  EXPECT_EQ(verdict(effects).exit_code, 13);
  EXPECT_EQ(verdict(effects).first_failure, std::nullopt);
}

TEST(Agent, NothingIsPendingOnceItIsDone) {
  Agent agent{AgentLimits{}};
  agent.handle(StopRequested{SIGTERM}, t0);
  EXPECT_EQ(agent.next_deadline(), std::nullopt);
  EXPECT_TRUE(agent.handle(Tick{}, t0).empty());
}

}  // namespace
}  // namespace distrun::agent
