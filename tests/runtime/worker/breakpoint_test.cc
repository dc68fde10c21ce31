// breakpoint(): ranks are processes; this one is the debugger, by ptrace.
#include "tests/runtime/worker/process_ranks.h"
#include <distrun/breakpoint.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <vector>

namespace distrun {
namespace {

using namespace std::chrono_literals;
using test::Rank;

std::vector<Rank> ranks_at_breakpoint(const test::TempFolder& dir, int where, Timeout limit) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back(dir, rank, [&dir, rank, where, limit]() -> std::string {
      // The group has 6 s for an operation: less than the debugger takes.
      const auto group = test::join_by_file(dir, rank, 3, 6s);
      breakpoint(*group, where, {.timeout = limit});
      return "went on";
    });
  return ranks;
}

TEST(Breakpoint, ARankStopsForADebuggerAndTheOthersWaitForIt) {
  const test::TempFolder dir;
  auto ranks = ranks_at_breakpoint(dir, 1, 1h);
  const pid_t stopped = ranks[1].pid();
  if (::ptrace(PTRACE_SEIZE, stopped, nullptr, nullptr) != 0) {
    const int why = errno;
    for (auto& rank : ranks) {
      ::kill(rank.pid(), SIGKILL);
      rank.join();
    }
    GTEST_SKIP() << "no ptrace here: " << std::strerror(why);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(stopped, &status, __WALL), stopped);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_EQ(WSTOPSIG(status), SIGTRAP);
  for (const auto& rank : ranks) EXPECT_EQ(rank.report(), "");
  // Longer than the group's timeout, which does not count meanwhile.
  std::this_thread::sleep_for(6500ms);
  for (const auto& rank : ranks) EXPECT_EQ(rank.report(), "");
  ASSERT_EQ(::ptrace(PTRACE_DETACH, stopped, nullptr, nullptr), 0);
  for (auto& rank : ranks) {
    EXPECT_EQ(rank.join(), 0);
    EXPECT_EQ(rank.report(), "went on");
  }
}

TEST(Breakpoint, WithoutADebuggerItEndsWhenTheTimeIsUp) {
  const test::TempFolder dir;
  auto ranks = ranks_at_breakpoint(dir, 2, 300ms);
  for (auto& rank : ranks) rank.join();
  EXPECT_NE(ranks[2].report().find("no debugger came to rank 2 within 300 ms"), std::string::npos)
      << ranks[2].report();
  EXPECT_EQ(ranks[0].report().find("peer 2: "), 0U) << ranks[0].report();
}

TEST(Breakpoint, ARankThatIsNotThereIsRefused) {
  const auto group = init_process_group(
      "gloo", {.store = std::make_shared<HashStore>(), .rank = 0, .world_size = 1});
  EXPECT_THROW(breakpoint(*group, 1), DistArgumentError);
  EXPECT_THROW(breakpoint(*group, 0, {.timeout = 0s}), DistArgumentError);
}

}  // namespace
}  // namespace distrun
