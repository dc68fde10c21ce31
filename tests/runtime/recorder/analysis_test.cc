// What records say together.
#include "runtime/recorder/analysis.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace distrun::recorder {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kNow = 100 * kSecond;

// Ranks of a job, each with one group "dp" of all unless told otherwise.
struct Job {
  explicit Job(int size) : world(size) {}

  RankRecord& rank(int number) {
    for (RankRecord& record : records) {
      if (record.rank == number) return record;
    }
    RankRecord record;
    record.rank = number;
    record.world_size = world;
    records.push_back(record);
    return records.back();
  }

  GroupRecord& group(int number, const std::string& name = "dp", std::vector<int> ranks = {}) {
    RankRecord& record = rank(number);
    for (GroupRecord& group : record.groups) {
      if (group.name == name) return group;
    }
    if (ranks.empty()) {
      ranks.resize(static_cast<std::size_t>(world));
      std::iota(ranks.begin(), ranks.end(), 0);
    }
    GroupRecord fresh;
    fresh.id = static_cast<std::uint32_t>(record.groups.size()) + 1;
    fresh.name = name;
    fresh.size = static_cast<int>(ranks.size());
    fresh.ranks = std::move(ranks);
    record.groups.push_back(fresh);
    return record.groups.back();
  }

  OpRecord& op(int number, std::uint64_t sequence, OpState state, const std::string& name = "dp") {
    GroupRecord& own = group(number, name);
    const auto progress = [&](OpState least) { return state >= least ? sequence + 1 : 0; };
    own.collectives.scheduled = std::max(own.collectives.scheduled, sequence + 1);
    own.collectives.started = std::max(own.collectives.started, progress(OpState::started));
    if (state == OpState::completed) own.collectives.completed = sequence + 1;
    OpRecord op;
    op.number = rank(number).ops.size();
    op.group = own.id;
    op.sequence = sequence;
    op.op = "all_reduce";
    op.reduce = "sum";
    op.dtype = "float32";
    op.counts_agree = true;
    op.count_in = op.count_out = 1000;
    op.state = state;
    op.created = kNow - 13 * kSecond;
    if (state != OpState::scheduled) op.started = kNow - 12 * kSecond;
    if (state >= OpState::completed) op.ended = kNow - 11 * kSecond;
    rank(number).ops.push_back(op);
    return rank(number).ops.back();
  }

  // Each of `ranks` has completed what is before `sequence`, and is in that state in it.
  void all(const std::vector<int>& ranks, std::uint64_t sequence, OpState state) {
    for (const int number : ranks) {
      if (sequence > 0) op(number, sequence - 1, OpState::completed);
      op(number, sequence, state);
    }
  }

  std::vector<std::string> lines(std::vector<int> local = {}) const {
    return lines_of(analyse(records, {kNow, std::move(local)}));
  }

  int world;
  std::vector<RankRecord> records;
};

using Lines = std::vector<std::string>;

TEST(Analysis, NamesTheRankThatNeverCame) {
  Job job(8);
  job.all({0, 1, 2, 3, 4, 6, 7}, 1204, OpState::started);
  job.op(5, 1203, OpState::completed);
  EXPECT_EQ(job.lines(),
            (Lines{"rank 5 never entered all_reduce #1204 (float32 x 1000, sum) of group dp; ranks "
                   "0-4, 6, 7 wait in it (for 12 s)",
                   "  rank 5: its last was all_reduce #1203 (float32 x 1000, sum) of group dp, "
                   "completed 11 s ago"}));
}

TEST(Analysis, SaysNothingOfRanksThatAreInNoOperation) {
  Job job(4);
  job.all({0, 1, 2, 3}, 3, OpState::completed);
  EXPECT_EQ(job.lines(), Lines{});
  EXPECT_EQ(Job(2).lines(), Lines{});
}

TEST(Analysis, AnOperationThatAllAreInIsNobodysFault) {
  Job job(2);
  job.all({0, 1}, 0, OpState::started);
  EXPECT_EQ(job.lines(), (Lines{"all_reduce #0 (float32 x 1000, sum) of group dp: ranks 0, 1 wait "
                                "in it (for 12 s); no rank is missing"}));
}

TEST(Analysis, WhoCalledItBehindAnotherOneHasEntered) {
  Job job(3);
  job.all({0, 1}, 2, OpState::started);
  job.all({2}, 1, OpState::started);
  job.op(2, 2, OpState::scheduled);
  const Lines lines = job.lines();
  ASSERT_EQ(lines.size(), 2U);  // #1 in which rank 2 is, and #2
  EXPECT_EQ(lines[0],
            "all_reduce #1 (float32 x 1000, sum) of group dp: rank 2 waits in it (for "
            "12 s); ranks 0, 1 have completed it; no rank is missing");
  EXPECT_EQ(lines[1],
            "all_reduce #2 (float32 x 1000, sum) of group dp: ranks 0, 1 wait in it (for 12 s); "
            "rank 2 called it, and is still in one before; no rank is missing");
}

TEST(Analysis, FailedIsSaidOfThoseThatFailedInIt) {
  Job job(3);
  job.all({0, 1}, 7, OpState::failed);
  job.op(2, 6, OpState::completed);
  EXPECT_EQ(job.lines()[0],
            "rank 2 never entered all_reduce #7 (float32 x 1000, sum) of group dp; ranks 0, 1 "
            "failed in it");
}

TEST(Analysis, ARankThatLeftNoRecordIsMissingIfItIsOfThisMachine) {
  Job job(3);
  job.all({0, 1}, 7, OpState::started);
  EXPECT_EQ(job.lines({0, 1, 2}),
            (Lines{"rank 2 never entered all_reduce #7 (float32 x 1000, sum) of group dp; ranks 0, "
                   "1 wait in it (for 12 s)",
                   "  rank 2 left no record"}));
}

TEST(Analysis, OfRanksElsewhereNothingIsClaimed) {
  Job job(4);
  job.all({0, 1}, 7, OpState::started);
  EXPECT_EQ(job.lines({0, 1}),
            (Lines{"all_reduce #7 (float32 x 1000, sum) of group dp: ranks 0, 1 wait in it (for 12 "
                   "s); 2 of its 4 ranks left no record here"}));
}

TEST(Analysis, WhatWasOverwrittenIsKnownByItsNumber) {
  Job job(2);
  job.group(0).collectives = {8, 8, 7};
  job.group(1).collectives = {7, 7, 7};
  EXPECT_EQ(job.lines()[0], "rank 1 never entered operation #7 of group dp; rank 0 waits in it");
}

TEST(Analysis, RanksThatCalledDifferentThingsAreToldFirst) {
  Job job(3);
  job.all({0, 1, 2}, 4, OpState::failed);
  job.rank(2).ops.back().op = "broadcast";
  job.rank(2).ops.back().reduce.clear();
  job.rank(2).ops.back().peer = 0;
  const auto findings = analyse(job.records, {kNow, {}});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, FindingKind::disagree);
  EXPECT_EQ(findings[0].text,
            "ranks disagree at #4 of group dp: ranks 0, 1 called all_reduce #4 (float32 x 1000, "
            "sum); rank 2 called broadcast #4 (float32 x 1000, root 0)");
}

TEST(Analysis, CountsMayDifferWhereTheyNeedNotAgree) {
  Job job(2);
  job.all({0, 1}, 4, OpState::completed);
  for (RankRecord& record : job.records) record.ops.back().counts_agree = false;
  job.rank(1).ops.back().count_in = 5;
  EXPECT_EQ(job.lines(), Lines{});
}

// dp and pp are both stuck; who waits in pp for nobody's fault but rank 3's comes after the cause.
TEST(Analysis, TheCauseComesBeforeItsConsequences) {
  Job job(4);
  for (int rank = 0; rank < 4; ++rank) job.group(rank, "a", {0, 1});
  job.records.clear();
  job.group(0, "a", {0, 1});
  job.group(1, "a", {0, 1});
  job.group(1, "b", {1, 2});
  job.group(2, "b", {1, 2});
  job.op(0, 0, OpState::started, "a");
  job.op(1, 0, OpState::started, "b");
  const auto findings = analyse(job.records, {kNow, {}});
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].group, "b");
  EXPECT_TRUE(findings[0].root);
  EXPECT_EQ(findings[0].more, Lines{"rank 2 called nothing yet"});
  EXPECT_EQ(findings[1].group, "a");
  EXPECT_FALSE(findings[1].root);
  EXPECT_EQ(findings[1].more,
            Lines{"rank 1 is in all_reduce #0 (float32 x 1000, sum) of group b, begun 12 s ago"});
}

TEST(Analysis, AReceiveThatWaitsNamesItsPeerAndWhereThatIs) {
  Job job(2);
  job.op(0, 3, OpState::completed);
  job.op(1, 3, OpState::completed);
  OpRecord receive = job.rank(1).ops.back();
  receive.number = 9;
  receive.op = "recv";
  receive.reduce.clear();
  receive.point_to_point = receive.receive = true;
  receive.sequence = 5;
  receive.peer = 0;
  receive.tag = 7;
  receive.state = OpState::started;
  job.rank(1).ops.push_back(receive);
  EXPECT_EQ(
      job.lines(),
      (Lines{"rank 1 waits in recv #5 (float32 x 1000, from 0, tag 7) of group dp, begun 12 s ago",
             "  rank 0: its last was all_reduce #3 (float32 x 1000, sum) of group dp, "
             "completed 11 s ago"}));
}

TEST(Analysis, OfTwoGroupsOfOneNameTheYoungerCounts) {
  Job job(2);
  job.group(0).collectives = {5, 5, 4};  // left in an operation, and closed
  job.group(1).collectives = {4, 4, 4};
  for (RankRecord& record : job.records) {
    GroupRecord again = record.groups[0];
    again.id = 9;
    again.collectives = {};
    record.groups.push_back(again);
  }
  EXPECT_EQ(job.lines(), Lines{});
}

// The first death may have been before the last operation.
TEST(Analysis, WhatWasAMomentAgoHasNoDuration) {
  Job job(2);
  job.all({0}, 1, OpState::started);
  job.op(1, 0, OpState::completed);
  EXPECT_EQ(lines_of(analyse(job.records, {kNow - 12 * kSecond, {}})),
            (Lines{"rank 1 never entered all_reduce #1 (float32 x 1000, sum) of group dp; rank 0 "
                   "waits in it",
                   "  rank 1: its last was all_reduce #0 (float32 x 1000, sum) of group dp, "
                   "completed just then"}));
}

TEST(Analysis, ManyLinesAreCut) {
  Job job(2);
  for (int i = 0; i < 12; ++i) {
    const std::string name = "g" + std::to_string(i);
    job.op(0, 0, OpState::started, name);
    job.group(1, name);
  }
  const Lines lines = lines_of(analyse(job.records, {kNow, {}}), 4);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[4], "(9 lines more)");
}

TEST(Analysis, RanksAreToldInRuns) {
  EXPECT_EQ(ranks_text({5}), "rank 5");
  EXPECT_EQ(ranks_text({7, 6, 0, 1, 2, 3, 4}), "ranks 0-4, 6, 7");
  EXPECT_EQ(ranks_text({0, 2, 4}), "ranks 0, 2, 4");
}

}  // namespace
}  // namespace distrun::recorder
