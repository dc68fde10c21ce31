// What operators and schedulers send.
#include "tests/e2e/run_distrun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

namespace distrun::test {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

// Starts the job, waits until its first worker has printed "ready".
struct Job : Background {
  Job(std::vector<std::string> options, std::vector<std::string> script, RunOptions run = {})
      : Background(distrun_with(options, script), run) {
    EXPECT_TRUE(wait_for([this] { return out().find("ready") != std::string::npos; }, seconds(40)))
        << err();
  }
};

TEST(Signals, AStopSignalReachesTheWorkersAndIsTheLaunchersStatus) {
  for (const int signo : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    Job job({"--nproc-per-node", "1"},
            {"say", std::to_string(signo), "out", "ready", "heard", "exit", "0"});
    ::kill(job.pid(), signo);
    EXPECT_EQ(job.wait(seconds(20)), 128 + signo) << job.err();
    EXPECT_THAT(job.out(), HasSubstr("got " + std::to_string(signo)));
  }
}

TEST(Signals, WorkersThatObeyEndTheJobWithoutWaitingForTheGrace) {
  Job job({"--nproc-per-node", "2"}, {"on-term", "0", "out", "ready", "forever"});
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(seconds(20)), 128 + SIGTERM) << job.err();  // the grace: 30 s
}

TEST(Signals, TheSecondInterruptIsFinalForDeafWorkers) {
  Job job({"--nproc-per-node", "2"}, {"deaf", "child", "orphan", "out", "ready", "forever"});
  ::kill(job.pid(), SIGINT);
  // Two that are pending at once would be one.
  ASSERT_TRUE(
      wait_for([&] { return job.err().find("got SIGINT") != std::string::npos; }, seconds(20)))
      << job.err();
  EXPECT_FALSE(job.wait(std::chrono::milliseconds(500)).has_value());
  ::kill(job.pid(), SIGINT);
  EXPECT_EQ(job.wait(seconds(20)), 128 + SIGINT) << job.err();
}

TEST(Signals, CtrlCToTheWholeForegroundGroupCountsOnce) {
  Job job({"--nproc-per-node", "1", "--shutdown-timeout", "20"},
          {"say", "2", "out", "ready", "heard", "sleep", "1500", "exit", "0"}, {.own_group = true});
  ::kill(-job.pid(), SIGINT);
  // Were guard and agent counted apart, this would be final and the worker killed.
  EXPECT_EQ(job.wait(seconds(20)), 128 + SIGINT) << job.err();
  EXPECT_THAT(job.out(), HasSubstr("got 2"));
  EXPECT_THAT(job.err(), ::testing::Not(HasSubstr("SIGKILL,")));
}

TEST(Signals, UserSignalsArePassedThroughAndChangeNothingElse) {
  Job job({"--nproc-per-node", "1"},
          {"say", std::to_string(SIGUSR1), "out", "ready", "heard", "exit", "0"});
  ::kill(job.pid(), SIGUSR1);
  EXPECT_EQ(job.wait(seconds(20)), 0) << job.err();
  EXPECT_THAT(job.out(), HasSubstr("got " + std::to_string(SIGUSR1)));
}

TEST(Signals, AHangupThatWasIgnoredStaysIgnored) {
  TempFolder folder;
  std::vector<std::string> argv{"nohup"};
  for (auto& word : distrun_with({}, {"out", "ready", "until", folder / "go", "exit", "0"})) {
    argv.push_back(word);
  }
  Background job(argv);
  ASSERT_TRUE(wait_for([&] { return job.out().find("ready") != std::string::npos; }, seconds(40)));
  ::kill(job.pid(), SIGHUP);
  run_program({"touch", folder / "go"});
  EXPECT_EQ(job.wait(seconds(20)), 0) << job.err();
}

}  // namespace
}  // namespace distrun::test
