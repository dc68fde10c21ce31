// Nothing outlives the launcher, whatever kills it.
#include "tests/e2e/run_distrun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <signal.h>
#include <thread>
#include <unistd.h>

namespace distrun::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::vector<std::string> kFamily{"child", "orphan", "out", "ready", "forever"};

pid_t agent_of(pid_t guard) {
  const std::string children =
      read_file("/proc/" + std::to_string(guard) + "/task/" + std::to_string(guard) + "/children");
  return children.empty() ? 0 : static_cast<pid_t>(std::stol(children));
}

bool all_gone(const std::string& mark) {
  return wait_for([&] { return processes_with(mark).empty(); }, seconds(40));
}

struct Marked {
  TempFolder folder;
  std::string mark = "DISTRUN_E2E_MARK=" + folder.path();
  RunOptions run{.environment = {{"DISTRUN_E2E_MARK", folder.path()}, {"TMPDIR", folder.path()}}};
};

TEST(Ownership, KilledGuardTakesGrandchildrenAndOrphansAlong) {
  Marked marked;
  Background job(distrun_with({"--nproc-per-node", "2"}, kFamily), marked.run);
  ASSERT_TRUE(wait_for([&] { return processes_with(marked.mark).size() == 8; }, seconds(40)))
      << processes_with(marked.mark).size() << job.err();
  ::kill(job.pid(), SIGKILL);
  EXPECT_TRUE(all_gone(marked.mark));
  EXPECT_TRUE(
      wait_for([&] { return std::filesystem::is_empty(marked.folder.path()); }, seconds(20)));
}

TEST(Ownership, KilledAgentTakesGrandchildrenAndOrphansAlongAndTheGuardSaysSo) {
  Marked marked;
  Background job(distrun_with({"--nproc-per-node", "2"}, kFamily), marked.run);
  ASSERT_TRUE(wait_for([&] { return processes_with(marked.mark).size() == 8; }, seconds(40)));
  ::kill(agent_of(job.pid()), SIGKILL);
  EXPECT_EQ(job.wait(seconds(40)), 128 + SIGKILL);
  EXPECT_TRUE(processes_with(marked.mark).empty());
  EXPECT_THAT(job.err(), ::testing::HasSubstr("agent process was killed by signal 9"));
}

// DISTRUN_KILLS sets how often; moments are spread over start-up, running and stopping.
TEST(Ownership, SigkillOfTheLauncherAtAnyMomentLeavesNothing) {
  const char* asked = std::getenv("DISTRUN_KILLS");
  const int kills = asked ? std::atoi(asked) : 25;
  std::mt19937_64 random(20261129);
  int survivors = 0;
  for (int i = 0; i < kills; ++i) {
    Marked marked;
    Background job(
        distrun_with({"--nproc-per-node", "3", "--max-restarts", "100"},
                     {"orphan", "child", "sleep", "60", "rank", "1", "exit", "1", ",", "forever"}),
        marked.run);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 250'000));
    ::kill(i % 3 == 2 ? std::max(agent_of(job.pid()), job.pid()) : job.pid(), SIGKILL);
    if (!all_gone(marked.mark)) ++survivors;
  }
  RecordProperty("kills", kills);
  EXPECT_EQ(survivors, 0) << "of " << kills;
}

TEST(Ownership, ASuccessfulJobLeavesNothingEither) {
  Marked marked;
  const Ran ran = run_distrun({"--nproc-per-node", "2", "--shutdown-timeout", "1"},
                              {"orphan", "child", "exit", "0"}, marked.run);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_TRUE(processes_with(marked.mark).empty());
}

TEST(Ownership, AsPidOneItReapsWhatOthersLeave) {
  if (run_program({"unshare", "--pid", "--fork", "--mount-proc", "true"}).status != 0) {
    GTEST_SKIP() << "cannot make a PID namespace here";
  }
  std::vector<std::string> argv{"unshare", "--pid", "--fork", "--mount-proc"};
  for (auto& word :
       distrun_with({"--shutdown-timeout", "1"}, {"orphan", "out", "x", "exit", "3"})) {
    argv.push_back(word);
  }
  const Ran ran = run_program(argv);
  EXPECT_EQ(ran.status, 3) << ran.err;
  EXPECT_FALSE(ran.timed_out);
}

}  // namespace
}  // namespace distrun::test
