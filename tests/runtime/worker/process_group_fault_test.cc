// Ranks as processes, which can die as processes do; and joining through the environment.
#include "tests/runtime/worker/process_ranks.h"
#include "tests/runtime/worker/ranks.h"
#include "tests/runtime/worker/store_server_thread.h"
#include <distrun/worker.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <stdexcept>
#include <thread>
#include <unistd.h>

namespace distrun {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

using test::join_by_file;
using test::Rank;

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

// A store server in a process of its own, which can hang.
class StoreProcess {
 public:
  StoreProcess() {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      const testing::StoreServerThread server;
      const std::uint16_t port = server.port();
      if (::write(ends[1], &port, sizeof port) == sizeof port) ::pause();
      ::_exit(1);
    }
    if (::read(ends[0], &port_, sizeof port_) != sizeof port_) throw std::runtime_error("no port");
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~StoreProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;
  void hang() const { ::kill(pid_, SIGSTOP); }
  std::shared_ptr<Store> connect() const {
    return std::make_shared<TCPStore>(
        TCPStoreOptions{.host = "127.0.0.1", .port = port_, .timeout = 600s});
  }

 private:
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
};

// How long it takes rank 0 of two to do `last` when the store hangs, if rank 1 does `other`.
std::chrono::steady_clock::duration time_with_hanging_store(const test::Body& last,
                                                            const test::Body& other) {
  const StoreProcess server;
  std::chrono::steady_clock::duration took{};
  std::atomic<int> there = 0;
  test::as_ranks_on(
      server.connect(), 2,
      [&](ProcessGroup& group) {
        // So that they are connected: the first message between two asks the store.
        std::vector<float> data(1);
        group.rank() == 0 ? group.send(data, 1) : static_cast<void>(group.recv(data, 0));
        group.barrier();
        if (group.rank() == 0) server.hang();
        ++there;
        while (there < 2) std::this_thread::yield();
        const auto start = std::chrono::steady_clock::now();
        group.rank() == 0 ? last(group) : other(group);
        if (group.rank() == 0) took = std::chrono::steady_clock::now() - start;
      },
      600s);
  return took;
}

// A store's answer is waited for at least ten seconds, once.
TEST(ProcessGroupFault, ClosingOverAStoreThatHangsEnds) {
  const auto close = [](ProcessGroup& group) { EXPECT_THROW(group.close(500ms), DistError); };
  EXPECT_LT(time_with_hanging_store(close, close), 25s);
}

TEST(ProcessGroupFault, ARankThatFailsOverAStoreThatHangsTellsTheOthersByClosing) {
  const auto fails = [](ProcessGroup& group) {
    EXPECT_THROW(group.barrier({.timeout = 300ms}), DistTimeoutError);
  };
  const auto waits = [](ProcessGroup& group) {
    std::vector<float> data(1);
    EXPECT_THROW(group.recv(data, 0), DistBackendError);
  };
  EXPECT_LT(time_with_hanging_store(fails, waits), 25s);
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
