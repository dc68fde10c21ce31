// A process of its own: spawn() forks, and wants no other thread.
#include <distrun/spawn.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>
#include <unistd.h>

namespace distrun {
namespace {

using ::testing::HasSubstr;

std::string failure_of(int processes, const std::function<void(const GroupOptions&)>& body) {
  try {
    spawn(processes, body, {.grace = std::chrono::milliseconds(200)});
  } catch (const DistProcessError& error) {
    EXPECT_TRUE(error.peer_rank().has_value());
    return error.what();
  }
  return "none";
}

TEST(Spawn, RanksMeetAndFindTheirGroup) {
  spawn(3, [](const GroupOptions& options) {
    const auto group = init_process_group("gloo", options);
    std::vector<int> sum{group->rank()};
    group->all_reduce(sum);
    if (sum[0] != 3 || group->size() != 3) ::_exit(7);
  });
}

TEST(Spawn, TheFirstThatFailsIsNamedWithItsReason) {
  const auto fails = [](const GroupOptions& options) {
    if (options.rank == 1) throw std::runtime_error("the data is missing");
    ::pause();
  };
  EXPECT_EQ(failure_of(3, fails), "spawn: rank 1 of 3: the data is missing");
  EXPECT_THAT(failure_of(1, [](const GroupOptions&) { ::_exit(9); }),
              HasSubstr("exited with status 9"));
  EXPECT_THAT(failure_of(1, [](const GroupOptions&) { ::raise(SIGKILL); }),
              HasSubstr("killed by signal 9"));
}

TEST(Spawn, WhoFailedIsNamedAndNotWhomItTookAlong) {
  const auto body = [](const GroupOptions& options) {
    const auto group = init_process_group("gloo", options);
    if (options.rank == 2) throw std::runtime_error("no more data");
    group->barrier();
  };
  EXPECT_EQ(failure_of(3, body), "spawn: rank 2 of 3: no more data");
}

TEST(Spawn, IsRefusedWhereNobodyLearnsHowARankEnded) {
  ::signal(SIGCHLD, SIG_IGN);
  EXPECT_THROW(spawn(1, [](const GroupOptions&) {}), DistArgumentError);
  ::signal(SIGCHLD, SIG_DFL);
}

TEST(Spawn, WhoDoesNotHeedSigtermIsKilled) {
  EXPECT_THAT(failure_of(2,
                         [](const GroupOptions& options) {
                           ::signal(SIGTERM, SIG_IGN);
                           if (options.rank == 1) {
                             ::usleep(300'000);
                             ::_exit(3);
                           }
                           for (;;) ::pause();
                         }),
              HasSubstr("rank 1 of 2: exited with status 3"));
}

TEST(Spawn, WithOtherThreadsItIsRefused) {
  std::thread other([] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); });
  EXPECT_THROW(spawn(1, [](const GroupOptions&) {}), DistArgumentError);
  other.join();
  EXPECT_THROW(spawn(0, [](const GroupOptions&) {}), DistArgumentError);
}

}  // namespace
}  // namespace distrun
