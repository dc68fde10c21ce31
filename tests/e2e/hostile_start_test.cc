// Starts that a careless parent gives: closed streams, ignored signals, few descriptors; and kills
// that hit more than one process.
#include "tests/e2e/run_distrun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

namespace distrun::test {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

std::string command(const std::string& options, const std::string& script) {
  return std::string(DISTRUN) + " " + options + " " + SCRIPTED_WORKER + " " + script;
}

TEST(HostileStart, ClosedStandardStreamsNeitherHangNorMixUp) {
  for (const char* closed : {"<&- >&-", ">&-", "<&- >&- 2>&-"}) {
    const Ran ran = run_program(
        {"sh", "-c", command("--nproc-per-node 2", "lines 20000 exit 0") + " " + closed});
    EXPECT_EQ(ran.status, 0) << closed << "\n" << ran.err;
    EXPECT_FALSE(ran.timed_out);
  }
}

TEST(HostileStart, AnIgnoredSigchldTakesNoStatusAway) {
  const Ran ran = run_program({"sh", "-c", "trap '' CHLD; exec " + command("", "exit 7")});
  EXPECT_EQ(ran.status, 7) << ran.err;
}

TEST(HostileStart, ManyWorkersDoNotNeedAHigherSoftLimitOfDescriptors) {
  const Ran ran = run_program(
      {"sh", "-c", "ulimit -S -n 64; exec " + command("--nproc-per-node 40", "exit 0")});
  EXPECT_EQ(ran.status, 0) << ran.err;
}

TEST(HostileStart, WorkersKeepTheLimitOfDescriptorsThatTheLauncherWasGiven) {
  const Ran ran = run_program(
      {"sh", "-c",
       std::string("ulimit -S -n 64; exec ") + DISTRUN + " --no-python sh -c 'ulimit -S -n'"});
  EXPECT_EQ(ran.out, "64\n") << ran.err;
}

TEST(HostileStart, SigkillToTheWholeJobOfAShellLeavesNothing) {
  TempFolder folder;
  const std::string mark = "DISTRUN_E2E_MARK=" + folder.path();
  Background job(
      distrun_with({"--nproc-per-node", "2"}, {"child", "orphan", "out", "x", "forever"}),
      {.environment = {{"DISTRUN_E2E_MARK", folder.path()}}, .own_group = true});
  ASSERT_TRUE(wait_for([&] { return processes_with(mark).size() == 8; }, seconds(40))) << job.err();
  ::kill(-job.pid(), SIGKILL);  // as `kill -9 %1`
  EXPECT_TRUE(wait_for([&] { return processes_with(mark).empty(); }, seconds(40)));
}

TEST(HostileStart, AStoppedWorkerActsOnTheStopWithoutWaitingForTheGrace) {
  TempFolder folder;
  Background job(distrun_with({}, {"pid", folder / "pid", "out", "ready", "forever"}));
  ASSERT_TRUE(wait_for([&] { return job.out().find("ready") != std::string::npos; }, seconds(40)));
  ::kill(static_cast<pid_t>(std::stol(read_file(folder / "pid"))), SIGSTOP);
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(seconds(25)), 128 + SIGTERM) << job.err();  // the grace: 30 s
}

TEST(HostileStart, AProcessThatForksAndExitsAllTheTimeIsNotAliveInTheNextRound) {
  TempFolder folder;
  const std::string mark = "DISTRUN_E2E_MARK=" + folder.path();
  std::string found;
  const Ran ran = run_distrun(
      {"--max-restarts", "1", "--shutdown-timeout", "1"},
      {"restart", "0", "walker", "sleep", "1200", "exit", "3", ",", "pid", folder / "round1",
       "until", folder / "go"},
      {.environment = {{"DISTRUN_E2E_MARK", folder.path()}}, .meanwhile = [&](pid_t) {
         ASSERT_TRUE(wait_for([&] { return !read_file(folder / "round1").empty(); }, seconds(40)));
         // Guard, agent, and the one worker of round 1; a walker would show in some of these looks.
         for (int look = 0; look < 20; ++look) {
           if (processes_with(mark).size() > 3) found += "x";
         }
         run_program({"touch", folder / "go"});
       }});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(found, "");
}

}  // namespace
}  // namespace distrun::test
