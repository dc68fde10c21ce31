// Who failed first, with which status, and what the report says.
#include "tests/e2e/run_distrun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sys/resource.h>
#include <unistd.h>

namespace distrun::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Failure, TheJobEndsWithTheFirstFailuresOwnStatus) {
  const Ran exited =
      run_distrun({"--nproc-per-node", "3"}, {"rank", "2", "exit", "13", ",", "forever"});
  EXPECT_EQ(exited.status, 13);
  const Ran killed =
      run_distrun({"--nproc-per-node", "2"}, {"rank", "0", "die", "11", ",", "forever"});
  EXPECT_EQ(killed.status, 128 + 11);
  EXPECT_THAT(killed.err, HasSubstr("SIGSEGV"));
}

TEST(Failure, TheReportNamesTheFirstWithItsLastLinesAndVictimsAsVictims) {
  TempFolder folder;
  // Rank 2 fails; rank 0 fails because of it, perhaps before it is told to stop.
  const Ran ran = run_distrun(
      {"--nproc-per-node", "3"},
      {"rank", "2", "err", "the real reason", "pid", folder / "pid", "exit", "13", ",", "rank", "0",
       "gone", folder / "pid", "err", "connection closed by peer", "exit", "1", ",", "forever"});
  EXPECT_EQ(ran.status, 13) << ran.err;
  const std::size_t root = ran.err.find("Root Cause");
  ASSERT_NE(root, std::string::npos) << ran.err;
  EXPECT_THAT(ran.err.substr(root), HasSubstr("rank      : 2"));
  EXPECT_THAT(ran.err.substr(root), HasSubstr("the real reason"));
}

TEST(Failure, WorkersThatWeStoppedAreNotCalledFailures) {
  const Ran ran = run_distrun({"--nproc-per-node", "3"},
                              {"rank", "1", "exit", "5", ",", "on-term", "85", "forever"});
  EXPECT_EQ(ran.status, 5);
  EXPECT_THAT(ran.err, Not(HasSubstr("exitcode  : 85")));
  EXPECT_THAT(ran.err, HasSubstr("Stopped by the launcher"));
}

TEST(Failure, ADeafWorkerIsKilledAfterTheGrace) {
  const Ran ran = run_distrun({"--nproc-per-node", "2", "--shutdown-timeout", "1"},
                              {"rank", "0", "sleep", "100", "exit", "4", ",", "deaf", "forever"});
  EXPECT_EQ(ran.status, 4);
  EXPECT_LT(ran.took, std::chrono::seconds(20));
}

TEST(Failure, ACoreDumpIsNamed) {
  if (read_file("/proc/sys/kernel/core_pattern").rfind("core", 0) != 0) {
    GTEST_SKIP() << "cores go elsewhere here: " << read_file("/proc/sys/kernel/core_pattern");
  }
  rlimit core{};
  ::getrlimit(RLIMIT_CORE, &core);
  if (core.rlim_max == 0) {
    GTEST_SKIP() << "no core dumps allowed here (under ASan: ASAN_OPTIONS=disable_coredump=0)";
  }
  TempFolder folder;
  const Ran ran = run_program(
      {"sh", "-c",
       std::string("ulimit -c unlimited; exec ") + DISTRUN + " " + SCRIPTED_WORKER + " die 6"},
      {.folder = folder.path()});
  EXPECT_EQ(ran.status, 128 + 6) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("core dumped"));
}

TEST(Failure, TheKernelsOutOfMemoryKillIsNamed) {
  const std::string cgroup = "/sys/fs/cgroup/memory/distrun_test_" + std::to_string(::getpid());
  if (run_program({"mkdir", cgroup}).status != 0) {
    GTEST_SKIP() << "cannot make a memory cgroup (" << cgroup << ")";
  }
  {
    std::ofstream(cgroup + "/memory.limit_in_bytes") << "200M";
    std::ofstream(cgroup + "/memory.swappiness") << "0";
  }
  TempFolder folder;
  Background job({"sh", "-c",
                  "echo $$ > " + cgroup + "/cgroup.procs; exec " + DISTRUN +
                      " --nproc-per-node 2 " + SCRIPTED_WORKER + " rank 1 out ready until " +
                      folder / "go" + " eat 2000 , forever"});
  // Who passes output on has begun to watch.
  EXPECT_TRUE(wait_for([&] { return job.out().find("ready") != std::string::npos; },
                       std::chrono::seconds(40)))
      << job.err();
  run_program({"touch", folder / "go"});
  EXPECT_EQ(job.wait(std::chrono::seconds(60)), 128 + 9) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("out of memory"));
  wait_for([&] { return run_program({"rmdir", cgroup}).status == 0; }, std::chrono::seconds(10));
}

TEST(Failure, JsonLogLinesAreOneObjectEach) {
  const Ran ran = run_distrun({"--log-format", "json", "--nproc-per-node", "1"}, {"exit", "3"});
  EXPECT_EQ(ran.status, 3);
  EXPECT_THAT(ran.err, HasSubstr("{\"time\":\""));
  EXPECT_THAT(ran.err, HasSubstr("\"level\":\"error\""));
}

}  // namespace
}  // namespace distrun::test
