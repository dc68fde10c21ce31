#include "agent/outcome.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

namespace distrun::agent {
namespace {

using namespace std::chrono_literals;
constexpr TimePoint t0{1h};
constexpr rendezvous::Fence kRound{16, Generation{3}};

GroupVerdict failed(const ExitStatus& status) {
  Ending first;
  first.local_rank = LocalRank{1};
  first.rank = Rank{5};
  first.pid = 4711;
  first.status = status;
  first.part = Part::first_failure;
  first.at = t0;
  GroupVerdict ended;
  ended.generation = Generation{3};
  ended.result = GroupResult::failed;
  ended.first_failure = first;
  ended.ends = {first};
  return ended;
}

rendezvous::Outcome outcome(const GroupVerdict& ended) {
  return outcome_of(ended, kRound, "host-a", "the report\n", t0 + 2s);
}

TEST(Outcome, OfAFailureNamesWhoFailedAndHow) {
  rendezvous::Failure expected;
  expected.host = "host-a";
  expected.rank = Rank{5};
  expected.local_rank = LocalRank{1};
  expected.pid = 4711;
  expected.status = "killed by SIGSEGV (core dumped)";
  expected.exit_code = 139;
  expected.age = 2s;
  const auto out = outcome(failed(KilledBy{SIGSEGV, true, false}));
  EXPECT_EQ(out.failure, expected);
  EXPECT_EQ(out.result, rendezvous::RoundResult::failed);
  EXPECT_EQ(out.round, kRound);
  EXPECT_EQ(out.report, "the report\n");
}

TEST(Outcome, OfAProgramThatIsNotFoundHasAShellsExitCode) {
  EXPECT_EQ(outcome(failed(NeverStarted{ExecStage::exec, ENOENT})).failure->exit_code, 127);
}

TEST(Outcome, ARoundThatDidNotFailCarriesNoReport) {
  GroupVerdict ended;
  ended.result = GroupResult::succeeded;
  const auto out = outcome(ended);
  EXPECT_EQ(out.result, rendezvous::RoundResult::succeeded);
  EXPECT_EQ(out.failure, std::nullopt);
  EXPECT_EQ(out.report, "");
}

TEST(Outcome, AStoppedRoundIsNeitherAFailureNorASuccess) {
  EXPECT_EQ(outcome(GroupVerdict{}).result, rendezvous::RoundResult::stopped);
}

TEST(Outcome, SaysThatNoWorkerEverWorked) {
  GroupVerdict ended = failed(ExitedWith{1});
  ended.failed_at_start = true;
  EXPECT_TRUE(outcome(ended).failed_at_start);
}

TEST(Outcome, SaysThatAWorkerIsAbandoned) {
  GroupVerdict ended = failed(ExitedWith{1});
  EXPECT_FALSE(outcome(ended).remains);
  ended.abandoned.push_back({LocalRank{0}, Rank{4}, 4710});
  EXPECT_TRUE(outcome(ended).remains);
}

TEST(Outcome, SaysThatLeftoversAreAbandoned) {
  GroupVerdict ended = failed(ExitedWith{1});
  ended.leftovers_abandoned = true;
  EXPECT_TRUE(outcome(ended).remains);
}

TEST(Outcome, AFailureIsNeverInTheFuture) {
  EXPECT_EQ(failure_of(*failed(ExitedWith{1}).first_failure, "h", t0 - 1s).age, Duration{});
}

TEST(Outcome, AnAssignmentIsWhatTheWelcomeSays) {
  rendezvous::Welcome welcome;
  welcome.round = kRound;
  welcome.node_rank = NodeRank{2};
  welcome.node_count = 4;
  welcome.base_rank = Rank{8};
  welcome.world_size = 14;
  welcome.base_role_rank = 6;
  welcome.role_world_size = 10;
  welcome.master_addr = "10.0.0.1";
  welcome.master_port = 4242;
  welcome.restart_count = 3;
  const Assignment expected{Generation{3}, NodeRank{2}, 4, Rank{8}, 14, 6, 10, "10.0.0.1", 4242, 3};
  EXPECT_EQ(assignment_of(welcome), expected);
}

rendezvous::Over over(rendezvous::OverResult result) {
  rendezvous::Over over;
  over.result = result;
  over.exit_code = 13;
  over.why = "why";
  over.restarts = 2;
  over.report = "rank 5 failed\n";
  return over;
}

TEST(Outcome, AFailureOnAnotherNodeComesWithItsReport) {
  const auto event = std::get<JobOver>(event_of(over(rendezvous::OverResult::failed), false));
  EXPECT_EQ(event.result, JobResult::failed);
  EXPECT_EQ(event.exit_code, 13);
  EXPECT_EQ(event.why, "why");
  EXPECT_EQ(event.restarts, 2);
  EXPECT_EQ(event.report, "rank 5 failed\n");
}

TEST(Outcome, AFailureOfThisNodeComesWithoutAReport) {
  EXPECT_EQ(std::get<JobOver>(event_of(over(rendezvous::OverResult::failed), true)).report, "");
}

TEST(Outcome, ASuccessHasStatusZero) {
  const auto event = std::get<JobOver>(event_of(over(rendezvous::OverResult::succeeded), false));
  EXPECT_EQ(event.result, JobResult::succeeded);
  EXPECT_EQ(event.exit_code, 0);
}

TEST(Outcome, AJobThatNeverBeganIsNoVerdictButNoRound) {
  EXPECT_EQ(std::get<RoundFailed>(event_of(over(rendezvous::OverResult::timed_out), false)).error,
            RoundError::timed_out);
  EXPECT_EQ(std::get<RoundFailed>(event_of(over(rendezvous::OverResult::closed), false)).error,
            RoundError::closed);
}

TEST(ShortenedReport, IsTheReportIfItFits) {
  EXPECT_EQ(shortened("abc\ndef\n", 8), "abc\ndef\n");
}

TEST(ShortenedReport, IsCutBehindALineAndSaysSo) {
  const std::string line(30, 'x');
  const std::string report = line + "\n" + line + "\n" + line + "\n";
  EXPECT_EQ(shortened(report, 80), line + "\n(the rest of this report is left out)\n");
}

TEST(ShortenedReport, IsNeverLongerThanItMayBe) {
  const std::string report = std::string(100, 'x') + "\n" + std::string(100, 'y') + "\n";
  for (std::size_t limit = 0; limit <= report.size(); ++limit) {
    EXPECT_LE(shortened(report, limit).size(), limit);
  }
}

}  // namespace
}  // namespace distrun::agent
