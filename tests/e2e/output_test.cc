// Workers' output on the console and in files, from outside.
#include "tests/e2e/run_distrun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <signal.h>
#include <sstream>
#include <thread>

namespace distrun::test {
namespace {

using ::testing::HasSubstr;

std::string find_file(const std::string& folder, const std::string& ending) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().string().ends_with(ending)) return entry.path();
  }
  return {};
}

TEST(Output, EveryLineOfEveryWorkerArrivesWhole) {
  constexpr int kWorkers = 4;
  constexpr int kLines = 3000;
  const Ran ran = run_distrun({"--nproc-per-node", std::to_string(kWorkers)},
                              {"lines", std::to_string(kLines)});
  ASSERT_EQ(ran.status, 0) << ran.err;
  std::istringstream lines(ran.out);
  std::vector<int> seen(kLines);
  for (std::string line; std::getline(lines, line);) {
    ASSERT_EQ(line.rfind("line ", 0), 0U) << "torn: " << line;
    ++seen.at(static_cast<std::size_t>(std::stoi(line.substr(5))));
  }
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int n) { return n == kWorkers; }));
}

TEST(Output, TeeWritesFilesAndPrefixedLinesInTorchrunsLayout) {
  TempFolder folder;
  const Ran ran = run_distrun({"--nproc-per-node", "2", "--role", "trainer", "--log-dir",
                               folder.path(), "-t", "3", "--rdzv-id", "job"},
                              {"rank", "1", "out", "to stdout", "err", "to stderr"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "[trainer1]:to stdout\n");
  EXPECT_EQ(ran.err, "[trainer1]:to stderr\n");
  EXPECT_EQ(read_file(find_file(folder.path(), "attempt_0/1/stdout.log")), "to stdout\n");
  EXPECT_EQ(read_file(find_file(folder.path(), "attempt_0/1/stderr.log")), "to stderr\n");
}

TEST(Output, ARedirectedStreamIsInItsFileAndItsLastLinesInTheReport) {
  TempFolder folder;
  const Ran ran = run_distrun({"--nproc-per-node", "2", "--log-dir", folder.path(), "-r", "3"},
                              {"rank", "0", "err", "why it failed", "exit", "9", ",", "forever"});
  EXPECT_EQ(ran.status, 9);
  EXPECT_EQ(ran.out, "");
  EXPECT_THAT(ran.err, HasSubstr("why it failed"));
}

TEST(Output, BytesWrittenRightBeforeSigkillArrive) {
  for (int i = 0; i < 20; ++i) {
    const Ran ran = run_distrun({}, {"out", "first", "raw", "no newline", "die", "9"});
    EXPECT_EQ(ran.status, 128 + 9);
    EXPECT_EQ(ran.out, "first\nno newline");
  }
}

TEST(Output, ASlowReaderGetsEveryByteHoweverLongItTakes) {
  const std::string job =
      std::string(DISTRUN) + " --nproc-per-node 2 " + SCRIPTED_WORKER + " lines 300000";
  const Ran ran =
      run_program({"bash", "-c", job + " | (sleep 3; cat) | wc -c; echo ${PIPESTATUS[0]}"});
  // "line N" and a newline, N from 0 to 299999, twice.
  const long bytes =
      2 * (300000L * 6 + 10 * 1 + 90 * 2 + 900 * 3 + 9000 * 4 + 90000L * 5 + 200000L * 6);
  EXPECT_EQ(ran.out, std::to_string(bytes) + "\n0\n") << ran.err;
}

TEST(Output, AStopSignalEndsTheWaitForAReaderThatTakesNothing) {
  TempFolder folder;
  const std::string job = std::string(DISTRUN) + " --nproc-per-node 2 " + SCRIPTED_WORKER +
                          " lines 300000 2>&1 & echo $! > " + folder.path() +
                          "/pid; wait $!; echo $? > " + folder.path() + "/status";
  const std::string reader = "until [ -e " + folder / "done" + " ]; do sleep 0.1; done";
  const Ran ran = run_program(
      {"bash", "-c", "{ " + job + "; } | { " + reader + "; } & wait"},
      {.limit = std::chrono::seconds(30), .meanwhile = [&](pid_t) {
         ASSERT_TRUE(wait_for([&] { return read_file(folder / "pid").ends_with("\n"); },
                              std::chrono::seconds(30)));
         std::this_thread::sleep_for(std::chrono::seconds(2));  // by now nothing moves any more
         ::kill(static_cast<pid_t>(std::stol(read_file(folder / "pid"))), SIGTERM);
         EXPECT_TRUE(wait_for([&] { return read_file(folder / "status").ends_with("\n"); },
                              std::chrono::seconds(40)));
         run_program({"touch", folder / "done"});
       }});
  // 71: every worker ended with 0, but output was lost.  143: the signal came before they had.
  EXPECT_THAT(read_file(folder / "status"), ::testing::AnyOf("71\n", "143\n")) << ran.err;
}

TEST(Output, LeavesNoFilesWhenNobodyAskedForAny) {
  TempFolder tmp;
  const RunOptions run{.environment = {{"TMPDIR", tmp.path()}}};
  EXPECT_EQ(run_distrun({"--nproc-per-node", "2"}, {"out", "x"}, run).status, 0);
  EXPECT_EQ(run_distrun({"--nproc-per-node", "2"}, {"exit", "1"}, run).status, 1);
  EXPECT_TRUE(std::filesystem::is_empty(tmp.path()));
}

}  // namespace
}  // namespace distrun::test
