// What the agent makes of its workers' flight records, and what it leaves behind.
#include "agent/process/flight_records.h"

#include "runtime/recorder/flight_file.h"
#include "runtime/recorder/op_recorder.h"
#include "tests/support/run_program.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace distrun::agent {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

Spec spec_in(const std::string& temporary) {
  Spec spec;
  spec.run_id = "job/7";
  spec.nproc = 3;
  spec.environment = {{"TMPDIR", temporary}};
  return spec;
}

Assignment of_three() {
  Assignment assignment;
  assignment.world_size = 3;
  return assignment;
}

GroupVerdict verdict_of(GroupResult result) {
  GroupVerdict verdict;
  verdict.result = result;
  return verdict;
}

// Ranks 0 and 1 wait in the second barrier, rank 2 never came.
void record(const std::string& folder) {
  fs::create_directories(folder);
  for (int rank = 0; rank < 3; ++rank) {
    recorder::OpRecorder recorder;
    recorder::OpRecorder::Options options;
    options.path = recorder::file_of_rank(folder, rank);
    options.ops = 4;
    options.rank = rank;
    options.world_size = 3;
    ASSERT_TRUE(recorder.open(options));
    static constexpr std::array<std::string_view, 1> kNames{"barrier"};
    recorder.name_codes({kNames, {}, {}});
    std::vector<int> ranks(3);
    std::iota(ranks.begin(), ranks.end(), 0);
    recorder::GroupInfo group;
    group.name = "dp";
    group.rank = rank;
    group.size = 3;
    group.ranks = ranks;
    recorder::OpInfo op;
    op.group = recorder.add_group(group);
    recorder.completed(recorder.began(op), true);
    op.sequence = 1;
    if (rank < 2) recorder.began(op);
  }
}

TEST(FlightRecords, AFolderIsNamedAndNotMade) {
  TempFolder folder;
  const FlightPlace place = flight_place(spec_in(folder.path()));
  FlightRecords records(place);
  const std::string round = records.open_round(of_three(), 3);
  EXPECT_EQ(round, place.folder + "/round_1");
  EXPECT_NE(place.folder.find("/distrun_flight_job_7_"), std::string::npos) << place.folder;
  EXPECT_FALSE(fs::exists(place.folder));
  const FlightSummary summary = records.close_round(verdict_of(GroupResult::failed), "");
  EXPECT_TRUE(summary.lines.empty());
  EXPECT_TRUE(summary.problems.empty());
  EXPECT_EQ(summary.kept, "");
}

TEST(FlightRecords, AFailedRoundSaysWhoWasMissingAndIsKeptInTheTemporaryFolder) {
  TempFolder folder;
  const FlightPlace place = flight_place(spec_in(folder.path()));
  FlightRecords records(place);
  record(records.open_round(of_three(), 3));
  const FlightSummary summary = records.close_round(verdict_of(GroupResult::failed), "");
  ASSERT_EQ(summary.lines.size(), 2U);
  EXPECT_EQ(summary.lines[0].substr(0, 66),
            "rank 2 never entered barrier #1 of group dp; ranks 0, 1 wait in it");
  EXPECT_EQ(summary.kept.rfind(folder.path(), 0), 0U) << summary.kept;
  records.finish(true);
  EXPECT_TRUE(fs::exists(summary.kept + "/rank_1.fr"));
  EXPECT_FALSE(fs::exists(place.folder));
}

// Who reads them later is to see how long it had waited then.
TEST(FlightRecords, WhatIsKeptKnowsWhenTheRoundEnded) {
  TempFolder folder;
  FlightRecords records(flight_place(spec_in(folder.path())));
  record(records.open_round(of_three(), 3));
  GroupVerdict verdict = verdict_of(GroupResult::failed);
  Ending first;
  first.at = Clock::now() + std::chrono::seconds(-1);
  verdict.ends = {first};
  const FlightSummary summary = records.close_round(verdict, folder.path());
  records.finish(false);
  const auto kept = recorder::read_flight_file(summary.kept + "/rank_0.fr");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->ended, first.at.time_since_epoch().count());
}

TEST(FlightRecords, AFailureThatIsNotReportedLeavesNothing) {
  TempFolder folder;
  const FlightPlace place = flight_place(spec_in(folder.path()));
  FlightRecords records(place);
  record(records.open_round(of_three(), 3));
  records.close_round(verdict_of(GroupResult::failed), "");
  records.finish(false);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_FALSE(fs::exists(place.folder));
}

TEST(FlightRecords, AreKeptWhereLogsAreAlsoOfASuccess) {
  TempFolder folder;
  FlightRecords records(flight_place(spec_in(folder.path())));
  record(records.open_round(of_three(), 3));
  const FlightSummary summary =
      records.close_round(verdict_of(GroupResult::succeeded), folder.path());
  EXPECT_TRUE(summary.lines.empty());
  EXPECT_EQ(summary.kept, folder / "flight");
  EXPECT_TRUE(fs::exists(folder / "flight/rank_2.fr"));
  records.finish(false);
}

TEST(FlightRecords, AnEarlierRoundsAreGoneWhenTheNextOneOpens) {
  TempFolder folder;
  FlightRecords records(flight_place(spec_in(folder.path())));
  const std::string first = records.open_round(of_three(), 3);
  record(first);
  records.close_round(verdict_of(GroupResult::stopped), "");
  const std::string second = records.open_round(of_three(), 3);
  EXPECT_NE(first, second);
  EXPECT_FALSE(fs::exists(first));
}

// Whoever stops a healthy job finds some rank a moment behind.
TEST(FlightRecords, AStoppedRoundSaysNothingOfShortWaits) {
  TempFolder folder;
  FlightRecords records(flight_place(spec_in(folder.path())));
  record(records.open_round(of_three(), 3));
  EXPECT_TRUE(records.close_round(verdict_of(GroupResult::stopped), "").lines.empty());
  records.finish(false);
}

TEST(FlightRecords, AFileThatIsNoneIsAProblemAndNoEnd) {
  TempFolder folder;
  FlightRecords records(flight_place(spec_in(folder.path())));
  const std::string round = records.open_round(of_three(), 3);
  record(round);
  fs::resize_file(round + "/rank_1.fr", 100);
  const FlightSummary summary = records.close_round(verdict_of(GroupResult::failed), "");
  ASSERT_EQ(summary.problems.size(), 1U);
  EXPECT_EQ(summary.problems[0], round + "/rank_1.fr: not a flight record: 100 bytes are too few");
  EXPECT_FALSE(summary.lines.empty());
  records.finish(false);
}

TEST(FlightRecords, OfSeveralNodesTheLinesNameThisOnesRanks) {
  TempFolder folder;
  FlightRecords records(flight_place(spec_in(folder.path())));
  Assignment assignment = of_three();
  assignment.node_count = 2;
  assignment.world_size = 6;
  record(records.open_round(assignment, 3));
  const FlightSummary summary = records.close_round(verdict_of(GroupResult::failed), "");
  ASSERT_FALSE(summary.lines.empty());
  EXPECT_EQ(summary.lines[0], "of this node's ranks 0-2 of 6:");
  records.finish(false);
}

TEST(FlightRecords, TheUsersOwnFolderIsLeftAsItIs) {
  TempFolder folder;
  Spec spec = spec_in("/tmp");
  spec.environment.emplace_back("DISTRUN_FLIGHT_RECORDER_DIR", folder.path());
  FlightRecords records(flight_place(spec));
  const std::string round = records.open_round(of_three(), 3);
  EXPECT_EQ(round.rfind(folder.path(), 0), 0U);
  record(round);
  EXPECT_EQ(records.close_round(verdict_of(GroupResult::failed), "").kept, round);
  records.finish(false);
  EXPECT_TRUE(fs::exists(round + "/rank_0.fr"));
}

TEST(FlightRecords, SizeZeroTurnsThemOff) {
  Spec spec = spec_in("/tmp");
  spec.environment.emplace_back("DISTRUN_FLIGHT_RECORDER_SIZE", "0");
  FlightRecords records(flight_place(spec));
  EXPECT_EQ(records.open_round(of_three(), 3), "");
  EXPECT_TRUE(records.close_round(verdict_of(GroupResult::failed), "").lines.empty());
}

}  // namespace
}  // namespace distrun::agent
