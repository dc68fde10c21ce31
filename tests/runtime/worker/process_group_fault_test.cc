// Ranks as processes, which can die as processes do; and joining through the environment.
#include "tests/runtime/worker/store_server_thread.h"
#include "tests/support/run_program.h"
#include <distrun/process_group.h>
#include <distrun/worker.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace distrun {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// A rank in a process of its own.  What `body` returns, or the error that ends it, is its report.
class Rank {
 public:
  Rank(const test::TempFolder& dir, int rank, const std::function<std::string()>& body)
      : report_(dir / ("report" + std::to_string(rank))) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    std::string text;
    try {
      text = body();
    } catch (const DistError& error) {
      text = "peer " + std::to_string(error.peer_rank().value_or(-1)) + ": " + error.what();
    }
    std::ofstream(report_) << text;
    ::_exit(0);
  }
  pid_t pid() const { return pid_; }
  // Its wait status, once it has ended.
  int join() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return status;
  }
  std::string report() const {
    std::ostringstream out;
    out << std::ifstream(report_).rdbuf();
    return out.str();
  }

 private:
  std::string report_;
  pid_t pid_;
};

std::shared_ptr<ProcessGroup> join_by_file(const test::TempFolder& dir, int rank, int size,
                                           Timeout timeout = 20s) {
  return init_process_group("gloo", {.timeout = timeout,
                                     .store = std::make_shared<FileStore>(dir / "store"),
                                     .rank = rank,
                                     .world_size = size,
                                     .name = "g"});
}

void kill_one_and_expect_its_name(std::size_t count, int victim) {
  constexpr int kSize = 4;
  test::TempFolder dir;
  std::vector<Rank> ranks;
  for (int rank = 0; rank < kSize; ++rank)
    ranks.emplace_back(dir, rank, [&, rank]() -> std::string {
      const auto group = join_by_file(dir, rank, kSize);
      std::vector<float> data(count, 1.0f);
      for (int i = 0;; ++i) {
        if (rank == victim && i == 5) ::kill(::getpid(), SIGKILL);
        group->all_reduce(data, ReduceOp::max);
      }
    });
  for (auto& rank : ranks) rank.join();
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == victim) continue;
    const std::string report = ranks[static_cast<std::size_t>(rank)].report();
    EXPECT_THAT(report,
                ::testing::StartsWith("peer " + std::to_string(victim) + ": process group"));
    EXPECT_THAT(report, HasSubstr("rank " + std::to_string(victim) + " (pid " +
                                  std::to_string(ranks[static_cast<std::size_t>(victim)].pid())));
    EXPECT_THAT(report, HasSubstr(" is gone"));
  }
}

TEST(ProcessGroupFault, AKilledRankIsNamedByAllOthersInSmallOperations) {
  kill_one_and_expect_its_name(10, 2);
}
TEST(ProcessGroupFault, AKilledRankIsNamedByAllOthersInLargeOperations) {
  kill_one_and_expect_its_name(200'000, 2);
}
TEST(ProcessGroupFault, AKilledRankZeroIsNamedByAllOthers) {
  kill_one_and_expect_its_name(10, 0);
}

TEST(ProcessGroupFault, AKilledRankIsNamedWithinASecond) {
  test::TempFolder dir;
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back(dir, rank, [&, rank]() -> std::string {
      const auto group = join_by_file(dir, rank, 2);
      group->barrier();
      if (rank == 1) {
        std::this_thread::sleep_for(300ms);
        ::kill(::getpid(), SIGKILL);
      }
      const auto start = std::chrono::steady_clock::now();
      try {
        group->barrier();
      } catch (const DistBackendError&) {
        return std::chrono::steady_clock::now() - start < 1300ms ? "soon" : "late";
      }
      return "passed";
    });
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(ranks[0].report(), "soon");
}

TEST(ProcessGroupFault, AStoppedRankIsNamedWhenTheTimeIsUp) {
  test::TempFolder dir;
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back(dir, rank, [&, rank]() -> std::string {
      const auto group = join_by_file(dir, rank, 3);
      group->barrier();
      if (rank == 1) ::raise(SIGSTOP);
      group->barrier({.timeout = 500ms});
      return "passed";
    });
  ranks[0].join();
  ranks[2].join();
  ::kill(ranks[1].pid(), SIGKILL);
  ranks[1].join();
  EXPECT_THAT(ranks[0].report(), ::testing::StartsWith("peer 1: "));
  EXPECT_THAT(ranks[2].report(), ::testing::StartsWith("peer 1: "));
  EXPECT_THAT(ranks[2].report(), HasSubstr("did not take part within 500 ms"));
}

// The last operation of a quick rank must not be cut short by its exit, nor that of a slow one.
TEST(ProcessGroupFault, RanksThatEndRightAfterTheirLastOperationHarmNobody) {
  for (int round = 0; round < 10; ++round) {
    test::TempFolder dir;
    std::vector<Rank> ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.emplace_back(dir, rank, [&, rank] {
        const auto group = join_by_file(dir, rank, 4);
        std::vector<float> data(10'000, 1.0f);
        group->all_reduce(data);
        group->barrier();
        return std::string("well");
      });
    for (auto& rank : ranks) {
      rank.join();
      EXPECT_EQ(rank.report(), "well");
    }
  }
}

TEST(ProcessGroupFault, JoinsAsTheLauncherSaysThroughItsStore) {
  test::TempFolder dir;
  std::vector<Rank> ranks;
  int port_pipe[2];
  ASSERT_EQ(0, ::pipe(port_pipe));
  // The server's thread must not exist when the ranks are forked.
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back(dir, rank, [&, rank] {
      std::uint16_t port = 0;
      if (::read(port_pipe[0], &port, sizeof port) != sizeof port) return std::string("no port");
      ::setenv("RANK", std::to_string(rank).c_str(), 1);
      ::setenv("WORLD_SIZE", "3", 1);
      ::setenv("MASTER_ADDR", "127.0.0.1", 1);
      ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
      ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
      ::setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
      double sum = 0;
      for (int groups = 0; groups < 2; ++groups) {
        const auto group = init_process_group("gloo", {.timeout = 20s});
        std::vector<double> data{static_cast<double>(group->rank() + 1)};
        group->all_reduce(data);
        sum += data[0];
      }
      return std::to_string(sum);
    });
  testing::StoreServerThread server;
  for (int rank = 0; rank < 3; ++rank) {
    const std::uint16_t port = server.port();
    ASSERT_EQ(static_cast<ssize_t>(sizeof port), ::write(port_pipe[1], &port, sizeof port));
  }
  for (auto& rank : ranks) {
    rank.join();
    EXPECT_EQ(rank.report(), "12.000000");
  }
}

TEST(ProcessGroupFault, WithoutALaunchersStoreThatIsSaid) {
  test::TempFolder dir;
  Rank rank(dir, 0, [] {
    ::setenv("RANK", "0", 1);
    ::setenv("WORLD_SIZE", "2", 1);
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", "29500", 1);
    ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    init_process_group("gloo");
    return std::string("joined");
  });
  rank.join();
  EXPECT_THAT(rank.report(), HasSubstr("TORCHELASTIC_USE_AGENT_STORE is not True"));
}

TEST(ProcessGroupFault, AGroupOfOneNeedsNoStore) {
  test::TempFolder dir;
  Rank rank(dir, 0, [] {
    ::setenv("RANK", "0", 1);
    ::setenv("WORLD_SIZE", "1", 1);
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", "1", 1);
    const auto group = init_process_group("gloo");
    std::vector<float> data{4};
    group->all_reduce(data, ReduceOp::avg);
    group->all_reduce(data, ReduceOp::sum, {.async_op = true}).wait();
    return std::to_string(data[0]);
  });
  rank.join();
  EXPECT_EQ(rank.report(), "4.000000");
}

}  // namespace
}  // namespace distrun
