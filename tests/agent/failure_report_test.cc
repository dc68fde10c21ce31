#include "agent/failure_report.h"

#include "runtime/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdlib.h>
#include <string>
#include <sys/stat.h>
#include <time.h>

namespace distrun::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class FailureReportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
    char path[] = "/tmp/distrun_report_XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    folder_ = path;
  }
  void TearDown() override {
    log::set_sink({});
    fs::remove_all(folder_);
  }

  static WorkerEnd end(Part part, int rank, ExitStatus status, double after = 0) {
    WorkerEnd end;
    end.part = part;
    end.rank = Rank(rank);
    end.local_rank = LocalRank(rank % 4);
    end.host = "node1";
    end.pid = 4000 + rank;
    end.status = status;
    end.ended = std::chrono::system_clock::from_time_t(1'767'323'045) +
                std::chrono::milliseconds(static_cast<int>(after * 1000));
    return end;
  }

  std::string write(const std::string& text) {
    const std::string path = folder_ + "/error.json";
    std::ofstream(path) << text;
    return path;
  }
  static nlohmann::json json_in(const std::string& path) {
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    return nlohmann::json::parse(text.str());
  }

  std::string folder_;
};

TEST_F(FailureReportTest, WhereTheRanksWereComesBehindTheRootCause) {
  FailureReport report{"train.py", {end(Part::first_failure, 2, ExitedWith{13})}};
  report.flight = {"rank 2 never entered all_reduce #7 of group dp; ranks 0, 1 wait in it"};
  report.flight_folder = "/logs/attempt_0/flight";
  EXPECT_THAT(to_text(report), HasSubstr(R"(
------------------------------------------------------------
Where the ranks were (flight records):
  rank 2 never entered all_reduce #7 of group dp; ranks 0, 1 wait in it
  all of it: distrun flight /logs/attempt_0/flight
============================================================
)"));
}

TEST_F(FailureReportTest, OneFailureHasTorchrunsLayoutAndItsLastLines) {
  WorkerEnd first = end(Part::first_failure, 2, ExitedWith{13});
  first.last_err = {"loading data", "no such column: 'label'"};
  first.err_log = "/logs/2/stderr.log";
  EXPECT_EQ(to_text({"train.py", {first}}),
            R"(============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-02_03:04:05
  host      : node1
  rank      : 2 (local_rank: 2)
  exitcode  : 13 (pid: 4002)
  error_file: <N/A>
  traceback : exited with status 13
  stderr    : its last lines; all of them: /logs/2/stderr.log
    | loading data
    | no such column: 'label'
============================================================
)");
}

TEST_F(FailureReportTest, VictimsAreListedAsSuchAndStoppedWorkersAreNoFailures) {
  WorkerEnd first = end(Part::first_failure, 1, KilledBy{SIGSEGV, true, false});
  first.last_out = {"step 7"};
  const FailureReport report{"train.py",
                             {first, end(Part::victim, 0, ExitedWith{1}, 0.8),
                              end(Part::stopped, 2, KilledBy{SIGTERM, false, false}, 1),
                              end(Part::stopped, 3, KilledBy{SIGKILL, false, false}, 31),
                              end(Part::stopped, 5, ExitedWith{0}, 1)}};
  EXPECT_EQ(to_text(report), R"(============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-02_03:04:05
  host      : node1
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 4000)
  error_file: <N/A>
  traceback : exited with status 1
  victim    : failed 0.8 s after rank 1, probably because of it
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-02_03:04:05
  host      : node1
  rank      : 1 (local_rank: 1)
  exitcode  : -11 (pid: 4001)
  error_file: <N/A>
  traceback : Signal 11 (SIGSEGV) received by PID 4001; core dumped
  stdout    : its last lines
    | step 7
------------------------------------------------------------
Stopped by the launcher (no failure of theirs): ranks 2-3, 5
============================================================
)");
}

TEST_F(FailureReportTest, RulesAreAsWideAsTheLongestLineIfThatIsShort) {
  const std::string text = to_text({"t.py", {end(Part::first_failure, 0, ExitedWith{3})}});
  const std::string rule = text.substr(0, text.find('\n'));
  EXPECT_EQ(rule, std::string(std::string("Root Cause (first observed failure):").size(), '='));
}

TEST_F(FailureReportTest, NamesTheOomKiller) {
  const std::string text =
      to_text({"t.py", {end(Part::first_failure, 0, KilledBy{SIGKILL, false, true})}});
  EXPECT_THAT(text, HasSubstr("  exitcode  : -9 (pid: 4000)\n"));
  EXPECT_THAT(text, HasSubstr("Signal 9 (SIGKILL) received by PID 4000: out of memory, killed by "
                              "the kernel's OOM killer\n"));
}

TEST_F(FailureReportTest, AWorkerThatNeverStartedHasItsStageAndReason) {
  const std::string text =
      to_text({"t.py", {end(Part::first_failure, 0, NeverStarted{ExecStage::exec, ENOENT})}});
  EXPECT_THAT(text, HasSubstr("  exitcode  : 127 (pid: 4000)\n"));
  EXPECT_THAT(text, HasSubstr("could not start: exec: No such file or directory\n"));
}

TEST_F(FailureReportTest, APythonExceptionIsShownWithItsCallStackAndTime) {
  WorkerEnd first = end(Part::first_failure, 0, ExitedWith{1});
  first.error_file =
      write(R"({"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": )"
            R"("Traceback (most recent call last):\n  File \"t.py\", line 3\nValueError: bad\n", )"
            R"("timestamp": "1767323000"}}})");
  first.error = read_error_file(first.error_file);
  EXPECT_THAT(to_text({"t.py", {first}}),
              HasSubstr("  time      : 2026-01-02_03:03:20\n"
                        "  host      : node1\n"
                        "  rank      : 0 (local_rank: 0)\n"
                        "  exitcode  : 1 (pid: 4000)\n"
                        "  error_file: " +
                        first.error_file +
                        "\n"
                        "  traceback : Traceback (most recent call last):\n"
                        "    File \"t.py\", line 3\n"
                        "  ValueError: bad\n"));
}

TEST_F(FailureReportTest, OfVeryManyVictimsMostAreNamedByRankOnly) {
  FailureReport report{"t.py", {end(Part::first_failure, 40, ExitedWith{3})}};
  for (int rank = 0; rank < 40; ++rank)
    report.ends.push_back(end(Part::victim, rank, ExitedWith{1}));
  const std::string text = to_text(report);
  EXPECT_THAT(text, HasSubstr("[16]:\n"));
  EXPECT_THAT(text, Not(HasSubstr("[17]:\n")));
  EXPECT_THAT(text, HasSubstr("More victims: ranks 16-39\n"));
}

TEST_F(FailureReportTest, ALongCallStackKeepsItsEndAndSaysWhatIsLeftOut) {
  WorkerEnd first = end(Part::first_failure, 0, ExitedWith{1});
  first.error.exists = true;
  for (int i = 0; i < 500; ++i) first.error.traceback += "frame " + std::to_string(i) + "\n";
  const std::string text = to_text({"t.py", {first}});
  EXPECT_THAT(text, HasSubstr("  traceback : (400 lines left out)\n  frame 400\n"));
  EXPECT_THAT(text, HasSubstr("  frame 499\n"));
}

TEST_F(FailureReportTest, AnErrorFileCannotSendEscapesToTheTerminal) {
  WorkerEnd first = end(Part::first_failure, 0, ExitedWith{1});
  first.error.exists = true;
  first.error.message = "\x1b]0;title\x07";
  EXPECT_THAT(to_text({"t.py", {first}}), HasSubstr("traceback : \\x1b]0;title\\x07\n"));
}

TEST_F(FailureReportTest, ReadsTheFlatSchemaToo) {
  const ErrorFile file = read_error_file(write(R"({"message": "out of luck", "timestamp": 77})"));
  EXPECT_TRUE(file.exists);
  EXPECT_EQ(file.problem, "");
  EXPECT_EQ(file.message, "out of luck");
  EXPECT_EQ(file.timestamp, 77);
}

TEST_F(FailureReportTest, NoErrorFileAndAnEmptyOneAreNone) {
  EXPECT_FALSE(read_error_file("").exists);
  EXPECT_FALSE(read_error_file(folder_ + "/missing.json").exists);
  EXPECT_FALSE(read_error_file(write("")).exists);
}

TEST_F(FailureReportTest, WhatCannotBeUnderstoodIsNamedAndNothingBreaks) {
  EXPECT_EQ(read_error_file(write("{\"message\": tru")).problem, "not JSON");
  EXPECT_EQ(read_error_file(write("[1, 2]")).problem, "JSON without a \"message\"");
  EXPECT_EQ(read_error_file(write(R"({"message": 3})")).problem, "JSON without a text");
  EXPECT_EQ(read_error_file(write(std::string(500'000, '['))).problem, "not JSON");
  EXPECT_EQ(read_error_file(write(std::string(2'000'000, ' '))).problem, "larger than 1 MiB");
  EXPECT_EQ(read_error_file(folder_).problem, "not a regular file");
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(read_error_file(fifo).problem, "not a regular file");

  WorkerEnd first = end(Part::first_failure, 0, ExitedWith{1});
  first.error = read_error_file(write("{"));
  EXPECT_THAT(to_text({"t.py", {first}}),
              HasSubstr("traceback : exited with status 1 (its error file: not JSON)\n"));
}

TEST_F(FailureReportTest, TheRootCauseIsPassedUpWithItsExitCode) {
  WorkerEnd first = end(Part::first_failure, 1, KilledBy{SIGABRT, false, false});
  first.error = read_error_file(
      write(R"({"message": {"message": "E", "extraInfo": {"timestamp": "5", "more": [1]}}})"));
  const std::string path = folder_ + "/launcher.json";
  ASSERT_TRUE(write_root_cause({"t.py", {end(Part::victim, 0, ExitedWith{9}), first}}, path));
  const auto expected = nlohmann::json::parse(
      R"({"message": {"message": "E", "errorCode": -6, "extraInfo": {"timestamp": "5", "more": [1]}}})");
  EXPECT_EQ(json_in(path), expected);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2)
      << "a temporary file is left";
}

TEST_F(FailureReportTest, ARootCauseWithoutAnErrorFileIsPassedUpInTheSameSchema) {
  WorkerEnd first = end(Part::first_failure, 1, ExitedWith{13});
  first.last_err = {"bad \xff byte"};
  const std::string path = folder_ + "/launcher.json";
  ASSERT_TRUE(write_root_cause({"t.py", {first}}, path));
  const auto message = json_in(path)["message"];
  EXPECT_EQ(message["message"], "exited with status 13");
  EXPECT_EQ(message["errorCode"], 13);
  EXPECT_EQ(message["extraInfo"]["timestamp"], "1767323045");
}

TEST_F(FailureReportTest, AnOlderErrorFileIsReplacedAndThatIsSaid) {
  std::string told;
  log::set_sink([&told](std::string_view line) { told += line; });
  const std::string path = write("old");
  ASSERT_TRUE(write_root_cause({"t.py", {end(Part::first_failure, 0, ExitedWith{4})}}, path));
  EXPECT_EQ(json_in(path)["message"]["errorCode"], 4);
  EXPECT_THAT(told, HasSubstr(path));
}

TEST_F(FailureReportTest, AnErrorFileThatCannotBeWrittenIsAnErrorThatNamesIt) {
  const auto wrote =
      write_root_cause({"t.py", {end(Part::first_failure, 0, ExitedWith{4})}}, "/proc/no/e.json");
  ASSERT_FALSE(wrote);
  EXPECT_THAT(wrote.error().detail, HasSubstr("/proc/no/e.json"));
}

}  // namespace
}  // namespace distrun::agent
