// What real groups leave in the flight record, read from outside.
#include "runtime/recorder/analysis.h"
#include "runtime/recorder/flight_file.h"
#include "tests/support/run_program.h"
#include <distrun/process_group.h>

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>

namespace distrun {
namespace {

using namespace std::chrono_literals;
using recorder::OpState;

constexpr int kSize = 3;

// The ranks of a job as processes, each with its record.
class Job {
 public:
  explicit Job(const std::function<void(ProcessGroup&)>& body) {
    for (int rank = 0; rank < kSize; ++rank) {
      pids_.push_back(::fork());
      if (pids_.back() != 0) continue;
      ::setenv("DISTRUN_FLIGHT_RECORDER_DIR", (folder_ / "flight").c_str(), 1);
      ::setenv("RANK", std::to_string(rank).c_str(), 1);
      ::setenv("WORLD_SIZE", std::to_string(kSize).c_str(), 1);
      try {
        const auto world =
            init_process_group("gloo", {.timeout = 60s,
                                        .store = std::make_shared<FileStore>(folder_ / "store"),
                                        .rank = rank,
                                        .world_size = kSize,
                                        .name = "world"});
        body(*world);
      } catch (const DistError&) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    for (const pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
  }

  std::vector<recorder::RankRecord> records() const {
    auto found = recorder::read_flight_folder(folder_ / "flight");
    if (found) return std::move(found->ranks);
    ADD_FAILURE() << found.error().detail;
    return {};
  }

 private:
  test::TempFolder folder_;
  std::vector<pid_t> pids_;
};

std::vector<std::string> told(const recorder::RankRecord& rank) {
  std::vector<std::string> all;
  for (const recorder::OpRecord& op : rank.ops) {
    EXPECT_EQ(op.state, OpState::completed) << describe(op);
    EXPECT_LE(op.created, op.started);
    EXPECT_LE(op.started, op.ended);
    all.push_back(name_of(*rank.group(op.group)) + ": " + describe(op));
  }
  return all;
}

TEST(FlightLog, HasEachOperationWithItsGroup) {
  const Job job([](ProcessGroup& world) {
    std::vector<float> data(1000, 1);
    std::vector<float> all(kSize * data.size());
    world.all_reduce(data, ReduceOp::avg);
    world.broadcast(data, 2);
    Work work = world.all_gather_into_tensor(all, data, {.async_op = true});
    work.wait();
    world.barrier();
    if (world.rank() == 0) world.send(data, 1, 7);
    if (world.rank() == 1) world.recv(data, 0, 7);
    world.close();
  });
  const auto records = job.records();
  ASSERT_EQ(records.size(), 3U);
  const std::vector<std::string> collectives{"default_pg: all_reduce #0 (float32 x 1000, avg)",
                                             "default_pg: broadcast #1 (float32 x 1000, root 2)",
                                             "default_pg: all_gather #2 (float32 x 1000)",
                                             "default_pg: barrier #3"};
  std::vector<std::string> sender = collectives;
  sender.emplace_back("default_pg: send #0 (float32 x 1000, to 1, tag 7)");
  std::vector<std::string> receiver = collectives;
  receiver.emplace_back("default_pg: recv #0 (float32 x 1000, from 0, tag 7)");
  EXPECT_EQ(told(records[0]), sender);
  EXPECT_EQ(told(records[1]), receiver);
  EXPECT_EQ(told(records[2]), collectives);
  for (const auto& record : records) {
    ASSERT_EQ(record.groups.size(), 1U);
    EXPECT_EQ(record.groups[0].ranks, (std::vector<int>{0, 1, 2}));
  }
}

TEST(FlightLog, ARankThatIsKilledIsTheOneThatNeverCame) {
  const Job job([](ProcessGroup& world) {
    std::vector<float> data(1000, 1);
    world.all_reduce(data);
    if (world.rank() == 1) ::kill(::getpid(), SIGKILL);
    world.all_reduce(data);
  });
  const auto records = job.records();
  ASSERT_EQ(records.size(), 3U);
  const auto findings = recorder::analyse(records, {recorder::last_moment(records), {}});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].text,
            "rank 1 never entered all_reduce #1 (float32 x 1000, sum) of group default_pg; ranks "
            "0, 2 failed in it");
}

TEST(FlightLog, ASubgroupIsNamedWithItsGlobalRanks) {
  const Job job([](ProcessGroup& world) {
    const auto outer = world.new_group(std::vector<int>{0, 2}, {.description = "dp"});
    if (outer) outer->barrier();
    world.barrier();
    if (outer) outer->close();
    world.close();
  });
  const auto records = job.records();
  ASSERT_EQ(records.size(), 3U);
  ASSERT_EQ(records[2].groups.size(), 2U);
  EXPECT_EQ(records[2].groups[1].description, "dp");
  EXPECT_EQ(records[2].groups[1].rank, 1);
  EXPECT_EQ(records[2].groups[1].ranks, (std::vector<int>{0, 2}));
  EXPECT_EQ(records[1].groups.size(), 1U);
}

// What waits behind a failed operation is over, too.
TEST(FlightLog, AllThatWasInTheQueueFailsWithTheFirst) {
  const Job job([](ProcessGroup& world) {
    std::vector<float> data(1000, 1);
    world.barrier();
    if (world.rank() == 1) ::kill(::getpid(), SIGKILL);
    Work first = world.all_reduce(data, ReduceOp::sum, {.async_op = true});
    Work second = world.barrier({.async_op = true});
    try {
      second.wait();
    } catch (const DistError&) {
    }
    world.close();
  });
  for (const auto& record : job.records()) {
    if (record.rank == 1) continue;
    ASSERT_EQ(record.ops.size(), 3U);
    EXPECT_EQ(record.ops[1].state, OpState::failed);
    EXPECT_EQ(record.ops[2].state, OpState::failed);
  }
}

}  // namespace
}  // namespace distrun
