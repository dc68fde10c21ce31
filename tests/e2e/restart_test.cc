// Restart after a worker's failure.
#include "tests/e2e/run_distrun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace distrun::test {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Restart, AFailureRestartsAllWorkersWithANewCountAndAFreshStore) {
  TempFolder folder;
  const Ran ran =
      run_distrun({"--nproc-per-node", "2", "--max-restarts", "2"}, {"rank",
                                                                     "0",
                                                                     "env",
                                                                     "TORCHELASTIC_RESTART_COUNT",
                                                                     "env",
                                                                     "MASTER_PORT",
                                                                     "touch",
                                                                     folder / "told",
                                                                     ",",
                                                                     "sleep",
                                                                     "1200",
                                                                     "until",
                                                                     folder / "told",
                                                                     "rank",
                                                                     "1",
                                                                     "restart",
                                                                     "0",
                                                                     "die",
                                                                     "9",
                                                                     ",",
                                                                     "restart",
                                                                     "0",
                                                                     "forever",
                                                                     ",",
                                                                     "exit",
                                                                     "0"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  const auto lines = lines_of(ran.out);
  ASSERT_EQ(lines.size(), 4U) << ran.out;
  EXPECT_EQ(lines[0], "TORCHELASTIC_RESTART_COUNT=0");
  EXPECT_EQ(lines[2], "TORCHELASTIC_RESTART_COUNT=1");
  EXPECT_NE(lines[1], lines[3]);
}

TEST(Restart, TheBudgetIsForTheJobAndThenTheFailureCounts) {
  const Ran ran = run_distrun({"--nproc-per-node", "2", "--max-restarts", "2"},
                              {"rank", "1", "env", "TORCHELASTIC_RESTART_COUNT", "sleep", "1100",
                               "exit", "7", ",", "forever"});
  EXPECT_EQ(ran.status, 7);
  EXPECT_EQ(lines_of(ran.out).size(), 3U) << ran.out;
}

TEST(Restart, AWorkerThatFailsAtOnceEverywhereIsNotTriedAgain) {
  // "At once" is within the first second, and one soon after the other: on a busy machine some of
  // these are not.
  Ran ran;
  for (int i = 0; i < 20; ++i) {
    ran = run_distrun({"--nproc-per-node", "2", "--max-restarts", "5"},
                      {"out", "started", "sleep", "200", "exit", "2"});
    EXPECT_EQ(ran.status, 2);
    if (lines_of(ran.out).size() == 2) break;
  }
  EXPECT_EQ(lines_of(ran.out).size(), 2U) << ran.out << ran.err;
}

TEST(Restart, NoProcessOfAnOldRoundIsAliveWhenANewOneStarts) {
  TempFolder folder;
  const std::string mark = "DISTRUN_E2E_MARK=" + folder.path();
  // Round 0 leaves an orphan behind; round 1 lists what carries the mark.
  const Ran ran = run_distrun(
      {"--nproc-per-node", "2", "--max-restarts", "1", "--shutdown-timeout", "1"},
      {"restart", "0", "orphan", "child", "sleep", "1200", "rank", "1", "exit", "3", ",", "restart",
       "0", "forever", ",", "pid", folder / "pids", "until", folder / "go"},
      {.environment = {{"DISTRUN_E2E_MARK", folder.path()}}, .meanwhile = [&](pid_t launcher) {
         ASSERT_TRUE(wait_for([&] { return lines_of(read_file(folder / "pids")).size() == 2; },
                              std::chrono::seconds(40)));
         std::set<pid_t> alive;
         for (const pid_t pid : processes_with(mark)) alive.insert(pid);
         alive.erase(launcher);
         // The agent process and the two workers of round 1.
         EXPECT_EQ(alive.size(), 3U);
         run_program({"touch", folder / "go"});
       }});
  EXPECT_EQ(ran.status, 0) << ran.err;
}

TEST(Restart, ManyShortLaunchesNeitherHangNorFail) {
  for (int i = 0; i < 20; ++i) {
    const Ran ran = run_program({DISTRUN, "--nproc-per-node", "32", "/bin/true"});
    ASSERT_FALSE(ran.timed_out);
    ASSERT_EQ(ran.status, 0) << ran.err;
    ASSERT_EQ(ran.err, "");
  }
}

}  // namespace
}  // namespace distrun::test
