// The writer, as its file shows it: also when it is killed in the middle, and while it writes.
#include "runtime/recorder/op_recorder.h"

#include "tests/runtime/recorder/recorded.h"
#include "tests/support/run_program.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace distrun::recorder {
namespace {

using test::TempFolder;

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

TEST(OpRecorder, WhatWasRecordedIsRead) {
  TempFolder folder;
  const std::string path = folder / "rank_2.fr";
  OpRecorder recorder;
  ASSERT_TRUE(recorder.open(options_of(path, 16)));
  const GroupRef group = begin(recorder);
  OpHandle op = recorder.scheduled(all_reduce(group, 0));
  recorder.started(op);
  recorder.completed(op, true);
  op = recorder.scheduled(all_reduce(group, 1, 7));
  recorder.started(op);

  const RankRecord record = read(path);
  EXPECT_EQ(record.rank, 2);
  EXPECT_EQ(record.world_size, 8);
  EXPECT_EQ(record.pid, ::getpid());
  EXPECT_EQ(record.recorded, 2U);
  EXPECT_EQ(record.left_out, 0U);
  ASSERT_EQ(record.groups.size(), 1U);
  const GroupRecord& dp = record.groups[0];
  EXPECT_EQ(dp.name, "1");
  EXPECT_EQ(dp.description, "dp");
  EXPECT_EQ(dp.backend, "gloo");
  EXPECT_EQ(dp.rank, 1);
  EXPECT_EQ(dp.ranks, std::vector<int>(kRanks.begin(), kRanks.end()));
  EXPECT_EQ(dp.collectives.scheduled, 2U);
  EXPECT_EQ(dp.collectives.started, 2U);
  EXPECT_EQ(dp.collectives.completed, 1U);
  ASSERT_EQ(record.ops.size(), 2U);
  EXPECT_EQ(record.ops[0].state, OpState::completed);
  EXPECT_EQ(record.ops[1].state, OpState::started);
  EXPECT_EQ(record.ops[1].op, "all_reduce");
  EXPECT_EQ(record.ops[1].reduce, "sum");
  EXPECT_EQ(record.ops[1].dtype, "float32");
  EXPECT_EQ(record.ops[1].count_in, 7U);
  EXPECT_EQ(record.ops[1].timeout_ms, 1'800'000U);
  EXPECT_EQ(record.ops[1].group, dp.id);
}

TEST(OpRecorder, TimesAreThoseOfTheMonotonicClock) {
  TempFolder folder;
  OpRecorder recorder;
  ASSERT_TRUE(recorder.open(options_of(folder / "rank_2.fr", 16)));
  const GroupRef group = begin(recorder);
  const auto margin = std::int64_t{1'000'000};
  const std::int64_t before = now_ns() - margin;
  const OpHandle op = recorder.scheduled(all_reduce(group, 0));
  recorder.started(op);
  recorder.completed(op, true);
  const std::int64_t after = now_ns() + margin;

  const OpRecord read_op = read(folder / "rank_2.fr").ops.at(0);
  EXPECT_LE(before, read_op.created);
  EXPECT_LE(read_op.created, read_op.started);
  EXPECT_LE(read_op.started, read_op.ended);
  EXPECT_LE(read_op.ended, after);
}

TEST(OpRecorder, TheRingKeepsTheLastOnes) {
  TempFolder folder;
  OpRecorder recorder;
  ASSERT_TRUE(recorder.open(options_of(folder / "rank_2.fr", 5)));  // rounded up to 8
  const GroupRef group = begin(recorder);
  for (std::uint64_t i = 0; i < 21; ++i)
    recorder.completed(recorder.began(all_reduce(group, i)), true);
  const RankRecord record = read(folder / "rank_2.fr");
  EXPECT_EQ(record.recorded, 21U);
  ASSERT_EQ(record.ops.size(), 8U);
  EXPECT_EQ(record.ops.front().sequence, 13U);
  EXPECT_EQ(record.ops.back().sequence, 20U);
}

TEST(OpRecorder, AnOperationThatWasOverwrittenIsCompletedInItsGroupOnly) {
  TempFolder folder;
  OpRecorder recorder;
  ASSERT_TRUE(recorder.open(options_of(folder / "rank_2.fr", 2)));
  const GroupRef group = begin(recorder);
  const OpHandle old = recorder.scheduled(all_reduce(group, 0));
  for (std::uint64_t i = 1; i < 3; ++i) recorder.scheduled(all_reduce(group, i));
  recorder.started(old);
  recorder.completed(old, false);
  const RankRecord record = read(folder / "rank_2.fr");
  for (const OpRecord& op : record.ops) EXPECT_EQ(op.state, OpState::scheduled) << op.sequence;
}

TEST(OpRecorder, AFailedOperationDoesNotCountAsCompleted) {
  TempFolder folder;
  OpRecorder recorder;
  ASSERT_TRUE(recorder.open(options_of(folder / "rank_2.fr", 2)));
  const GroupRef group = begin(recorder);
  recorder.completed(recorder.began(all_reduce(group, 0)), false);
  const RankRecord record = read(folder / "rank_2.fr");
  EXPECT_EQ(record.ops.at(0).state, OpState::failed);
  EXPECT_EQ(record.groups.at(0).collectives.completed, 0U);
}

TEST(OpRecorder, PointToPointCountsByItself) {
  TempFolder folder;
  OpRecorder recorder;
  ASSERT_TRUE(recorder.open(options_of(folder / "rank_2.fr", 4)));
  const GroupRef group = begin(recorder);
  OpInfo receive = all_reduce(group, 5);
  receive.flags = kPointToPoint | kReceive;
  receive.peer = 3;
  receive.tag = 9;
  recorder.began(receive);
  const RankRecord record = read(folder / "rank_2.fr");
  EXPECT_EQ(record.groups.at(0).collectives.scheduled, 0U);
  EXPECT_EQ(record.groups.at(0).point_to_point.started, 6U);
  EXPECT_TRUE(record.ops.at(0).receive);
  EXPECT_EQ(record.ops.at(0).peer, 3);
}

TEST(OpRecorder, RanksWithoutAStrideAreListed) {
  TempFolder folder;
  OpRecorder recorder;
  ASSERT_TRUE(recorder.open(options_of(folder / "rank_2.fr", 2)));
  const std::vector<int> ranks{2, 7, 3};
  GroupInfo group;
  group.name = "odd";
  group.size = 3;
  group.ranks = ranks;
  recorder.add_group(group);
  EXPECT_EQ(read(folder / "rank_2.fr").groups.at(0).ranks, ranks);
}

TEST(OpRecorder, AClosedGroupsEntryIsUsedAgainWhenAllAreTaken) {
  TempFolder folder;
  OpRecorder recorder;
  ASSERT_TRUE(recorder.open(options_of(folder / "rank_2.fr", 2)));
  std::vector<GroupRef> groups;
  GroupInfo info;
  info.name = "g";
  for (std::uint32_t i = 0; i < kMaxGroups; ++i) groups.push_back(recorder.add_group(info));
  const GroupRef none = recorder.add_group(info);
  EXPECT_EQ(none.entry, nullptr);
  recorder.completed(recorder.began(all_reduce(none, 0)), true);  // recorded nevertheless
  recorder.close_group(groups[7]);
  info.name = "late";
  EXPECT_EQ(recorder.add_group(info).entry, groups[7].entry);
  const RankRecord record = read(folder / "rank_2.fr");
  EXPECT_EQ(record.groups.size(), kMaxGroups);
  EXPECT_EQ(record.groups.at(7).name, "late");
  EXPECT_EQ(record.ops.size(), 1U);
}

TEST(OpRecorder, WithoutAFileNothingIsRecorded) {
  OpRecorder recorder;
  EXPECT_FALSE(recorder.records());
  const GroupRef group = begin(recorder);
  const OpHandle op = recorder.scheduled(all_reduce(group, 0));
  recorder.started(op);
  recorder.completed(op, true);
  recorder.close_group(group);
  EXPECT_EQ(op.op, nullptr);
}

TEST(OpRecorder, AFileOfALivingProcessIsLeftAlone) {
  TempFolder folder;
  const std::string path = folder / "rank_2.fr";
  const pid_t child = ::fork();
  if (child == 0) {
    OpRecorder theirs;
    if (!theirs.open(options_of(path, 2))) ::_exit(1);
    for (;;) ::pause();
  }
  ASSERT_TRUE(
      test::wait_for([&] { return read_flight_file(path).has_value(); }, std::chrono::seconds(30)));
  OpRecorder second;
  const auto refused = second.open(options_of(path, 2));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().detail,
            path + ": process " + std::to_string(child) + " records this rank already");
  // Now it is a dead one's.
  EXPECT_TRUE(second.open(options_of(path, 2)));
  EXPECT_EQ(read(path).pid, ::getpid());
}

TEST(OpRecorder, AFolderThatIsNotThereIsAnErrorThatNamesIt) {
  OpRecorder recorder;
  const auto opened = recorder.open(options_of("/nonexistent/rank_2.fr", 2));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().detail, "/nonexistent/rank_2.fr: No such file or directory");
  EXPECT_FALSE(recorder.records());
}

TEST(OpRecorder, TheSizeOfTheRingIsCheckedInWords) {
  EXPECT_EQ(*ring_size(nullptr), kDefaultOps);
  EXPECT_EQ(*ring_size(""), kDefaultOps);
  EXPECT_EQ(*ring_size("0"), 0U);
  EXPECT_EQ(*ring_size("65536"), 65536U);
  for (const char* wrong : {"65537", "-1", "many", "10x", "99999999999"}) {
    const auto size = ring_size(wrong);
    ASSERT_FALSE(size) << wrong;
    EXPECT_EQ(size.error().detail,
              std::string("DISTRUN_FLIGHT_RECORDER_SIZE: not a whole number from 0 to 65536: '") +
                  wrong + "'");
  }
}

// ---- the process's own -------------------------------------------------------------------------

// Runs `body` in a process of its own with these variables; its exit status.
template <class Body>
int in_child(const std::vector<std::pair<const char*, std::string>>& variables, Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Recorder, IsOpenedAsTheEnvironmentSays) {
  TempFolder folder;
  const std::string records = folder / "job/flight";  // neither folder is there
  EXPECT_EQ(in_child({{"DISTRUN_FLIGHT_RECORDER_DIR", records},
                      {"DISTRUN_FLIGHT_RECORDER_SIZE", "32"},
                      {"RANK", "3"},
                      {"WORLD_SIZE", "4"}},
                     [] {
                       recorder()->began({});
                       return recorder()->records() ? 0 : 1;
                     }),
            0);
  EXPECT_EQ(read(records + "/rank_3.fr").ops.size(), 1U);
  struct stat info {};
  ASSERT_EQ(::stat(records.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
}

TEST(Recorder, IsOffWithoutAFolderOrWithSizeZero) {
  TempFolder folder;
  const auto off = [] { return recorder()->records() ? 1 : 0; };
  EXPECT_EQ(
      in_child({{"DISTRUN_FLIGHT_RECORDER_DIR", ""}, {"RANK", "0"}, {"WORLD_SIZE", "1"}}, off), 0);
  EXPECT_EQ(in_child({{"DISTRUN_FLIGHT_RECORDER_DIR", folder / "no"},
                      {"DISTRUN_FLIGHT_RECORDER_SIZE", "0"},
                      {"RANK", "0"},
                      {"WORLD_SIZE", "1"}},
                     off),
            0);
  EXPECT_NE(::access((folder / "no").c_str(), F_OK), 0);
}

TEST(Recorder, AFolderThatOthersCanWriteIntoIsRefused) {
  TempFolder folder;
  ::chmod(folder.path().c_str(), 0777);
  EXPECT_EQ(
      in_child({{"DISTRUN_FLIGHT_RECORDER_DIR", folder.path()}, {"RANK", "0"}, {"WORLD_SIZE", "1"}},
               [] { return recorder()->records() ? 1 : 0; }),
      0);
  ::chmod(folder.path().c_str(), 0700);
}

TEST(Recorder, AForkedChildWritesNothing) {
  TempFolder folder;
  EXPECT_EQ(
      in_child(
          {{"DISTRUN_FLIGHT_RECORDER_DIR", folder / "flight"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}},
          [] {
            recorder()->began({});
            return in_child({}, [] {
              recorder()->began({});
              return recorder()->records() ? 1 : 0;
            });
          }),
      0);
  EXPECT_EQ(read(folder / "flight" + "/rank_0.fr").recorded, 1U);
}

// ---- killed, and read meanwhile ----------------------------------------------------------------

// Writes until it is killed, with numbers that have to go together.
[[noreturn]] void write_for_ever(const std::string& path) {
  OpRecorder recorder;
  if (!recorder.open(options_of(path, 64))) ::_exit(1);
  const GroupRef group = begin(recorder);
  for (std::uint64_t i = 0;; ++i) {
    OpInfo info = all_reduce(group, i, 3 * i);
    info.count_out = 5 * i;
    info.tag = static_cast<std::uint32_t>(i);
    const OpHandle op = recorder.scheduled(info);
    recorder.started(op);
    recorder.completed(op, true);
  }
}

void expect_whole(const RankRecord& record) {
  for (const OpRecord& op : record.ops) {
    ASSERT_EQ(op.number, op.sequence);
    ASSERT_EQ(op.count_in, 3 * op.sequence);
    ASSERT_EQ(op.count_out, 5 * op.sequence);
    ASSERT_EQ(op.tag, static_cast<std::uint32_t>(op.sequence));
  }
}

TEST(OpRecorder, IsReadWholeWhileItWrites) {
  TempFolder folder;
  const std::string path = folder / "rank_2.fr";
  const pid_t child = ::fork();
  if (child == 0) write_for_ever(path);
  ASSERT_TRUE(
      test::wait_for([&] { return read_flight_file(path).has_value(); }, std::chrono::seconds(30)));
  for (int i = 0; i < 200; ++i) expect_whole(read(path));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(OpRecorder, WhatAKilledWriterLeftIsWholeButForOneOperation) {
  TempFolder folder;
  const std::string path = folder / "rank_2.fr";
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    if (child == 0) write_for_ever(path);
    const auto at_work = [&] {
      const auto record = read_flight_file(path);
      return record && record->pid == child && record->recorded > 100;
    };
    ASSERT_TRUE(test::wait_for(at_work, std::chrono::seconds(30)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const RankRecord record = read(path);
    EXPECT_LE(record.left_out, 1U);
    EXPECT_EQ(record.ops.size() + record.left_out, 64U);
    expect_whole(record);
    // All but the last are completed.
    for (std::size_t k = 0; k + 1 < record.ops.size(); ++k) {
      EXPECT_EQ(record.ops[k].state, OpState::completed);
    }
  }
}

TEST(OpRecorder, ThreadsRecordAtTheSameTime) {
  TempFolder folder;
  OpRecorder recorder;
  ASSERT_TRUE(recorder.open(options_of(folder / "rank_2.fr", 4096)));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&recorder] {
      const GroupRef group = begin(recorder);
      for (std::uint64_t i = 0; i < 1000; ++i) {
        const OpHandle op = recorder.scheduled(all_reduce(group, i));
        recorder.started(op);
        recorder.completed(op, true);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const RankRecord record = read(folder / "rank_2.fr");
  EXPECT_EQ(record.left_out, 0U);
  EXPECT_EQ(record.ops.size(), 4000U);
  ASSERT_EQ(record.groups.size(), 4U);
  for (const GroupRecord& group : record.groups) EXPECT_EQ(group.collectives.completed, 1000U);
  for (const OpRecord& op : record.ops) EXPECT_EQ(op.state, OpState::completed);
}

}  // namespace
}  // namespace distrun::recorder
