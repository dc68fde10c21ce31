// Flight records of real workers: in the report, in the log of a stop, and for distrun flight.
#include "tests/e2e/run_distrun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <signal.h>
#include <unistd.h>

namespace distrun::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kVerdict =
    "rank 1 never entered all_reduce #3 (float32 x 1000, sum) of group dp; ranks 0, 2 wait in it";

std::vector<std::string> job(const std::string& id, const std::vector<std::string>& options,
                             const std::string& folder, const char* end) {
  std::vector<std::string> argv{DISTRUN, "--nproc-per-node", "3", "--standalone", "--rdzv-id", id};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {RECORDING_WORKER, folder, "1", end});
  return argv;
}

std::string fresh_id(const char* name) {
  return std::string(name) + std::to_string(::getpid());
}

// The job's folder of records, as long as it runs.
std::string records_of(const std::string& id, const std::string& temporary) {
  const bool memory = ::access("/dev/shm", W_OK | X_OK) == 0;
  for (const auto& entry : fs::directory_iterator(memory ? "/dev/shm" : temporary)) {
    if (entry.path().filename().string().starts_with("distrun_flight_" + id)) return entry.path();
  }
  return {};
}

TEST(Flight, TheReportSaysWhichRankNeverCameAndKeepsTheRecords) {
  TempFolder folder;
  const std::string id = fresh_id("exit");
  const Ran ran =
      run_program(job(id, {}, folder.path(), "exit"), {.environment = {{"TMPDIR", folder.path()}}});
  EXPECT_EQ(ran.status, 13) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr(kVerdict));
  EXPECT_EQ(records_of(id, "/nonexistent"), "") << "left behind";
  const std::size_t at = ran.err.find("all of it: distrun flight ");
  ASSERT_NE(at, std::string::npos) << ran.err;
  const std::string kept = ran.err.substr(at + 26, ran.err.find('\n', at) - at - 26);
  const Ran shown = run_program({DISTRUN, "flight", kept, "--trace", folder / "trace.json"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr(kVerdict));
  EXPECT_THAT(shown.out, HasSubstr("\nrank 2  pid "));
  EXPECT_THAT(read_file(folder / "trace.json"), HasSubstr("\"name\":\"all_reduce #3\""));
}

TEST(Flight, AJobThatHangsIsReadWhileItRunsAndItsStopSaysWhy) {
  TempFolder folder;
  TempFolder logs;
  const std::string id = fresh_id("hang");
  Background hanging(job(id, {"--log-dir", logs.path()}, folder.path(), "hang"));
  ASSERT_TRUE(wait_for(
      [&] {
        return fs::exists(folder / "0") && fs::exists(folder / "1") && fs::exists(folder / "2");
      },
      seconds(60)))
      << hanging.err();
  const std::string records = records_of(id, "/tmp");
  ASSERT_NE(records, "");
  const auto waited_long = [&] {
    const Ran shown = run_program({DISTRUN, "flight", records});
    EXPECT_EQ(shown.status, 0) << shown.err;
    EXPECT_THAT(shown.out, HasSubstr(kVerdict));
    // In seconds, not ms.
    return std::regex_search(shown.out, std::regex("\\(for [0-9.]+ s\\)"));
  };
  EXPECT_TRUE(wait_for(waited_long, seconds(30)));
  ::kill(hanging.pid(), SIGTERM);
  EXPECT_EQ(hanging.wait(seconds(30)), 128 + SIGTERM);
  EXPECT_THAT(hanging.err(), HasSubstr(std::string("flight record: ") + kVerdict));
  EXPECT_FALSE(fs::exists(records)) << "left behind";
  // Beside the logs they stay.
  const Ran later = run_program({DISTRUN, "flight", logs.path()});
  EXPECT_EQ(later.status, 0) << later.err;
  EXPECT_THAT(later.out, HasSubstr(kVerdict));
}

TEST(Flight, AnAgentThatIsKilledLeavesNoRecords) {
  TempFolder folder;
  const std::string id = fresh_id("kill");
  Background hanging(job(id, {}, folder.path(), "hang"));
  ASSERT_TRUE(wait_for([&] { return fs::exists(folder / "1"); }, seconds(60))) << hanging.err();
  ASSERT_NE(records_of(id, "/tmp"), "");
  // The guard's only child.
  const Ran agent = run_program({"pgrep", "-P", std::to_string(hanging.pid())});
  ::kill(std::stoi(agent.out), SIGKILL);
  EXPECT_EQ(hanging.wait(seconds(30)), 128 + SIGKILL);
  EXPECT_EQ(records_of(id, "/tmp"), "");
}

TEST(Flight, WithoutRecordsItSaysSo) {
  TempFolder folder;
  const Ran ran = run_program({DISTRUN, "flight", folder.path()});
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.err, HasSubstr("flight: there is no record"));
  EXPECT_EQ(run_program({DISTRUN, "flight", "--bad"}).status, 2);
  EXPECT_THAT(run_program({DISTRUN, "flight", "--help"}).out, HasSubstr("usage: distrun flight"));
}

// Whoever does not use the worker library has nothing to read, and nothing is said.
TEST(Flight, OtherWorkersAreNotSpokenOf) {
  const Ran ran =
      run_distrun({"--nproc-per-node", "2"}, {"rank", "1", "exit", "3", ",", "forever"});
  EXPECT_EQ(ran.status, 3);
  EXPECT_THAT(ran.err, Not(HasSubstr("light record")));
}

}  // namespace
}  // namespace distrun::test
