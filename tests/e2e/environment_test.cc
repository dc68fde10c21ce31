// What workers are given, and how the command line reaches them.
#include "tests/e2e/run_distrun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <unistd.h>

namespace distrun::test {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(Environment, AWorkerFindsWhatTorchrunWouldHaveSet) {
  const Ran ran = run_distrun({"--nproc-per-node", "2", "--role", "trainer", "--max-restarts", "3"},
                              {"rank", "1",
                               "env",  "RANK",
                               "env",  "LOCAL_RANK",
                               "env",  "GROUP_RANK",
                               "env",  "GROUP_WORLD_SIZE",
                               "env",  "LOCAL_WORLD_SIZE",
                               "env",  "WORLD_SIZE",
                               "env",  "ROLE_NAME",
                               "env",  "ROLE_RANK",
                               "env",  "ROLE_WORLD_SIZE",
                               "env",  "MASTER_ADDR",
                               "env",  "TORCHELASTIC_RESTART_COUNT",
                               "env",  "TORCHELASTIC_MAX_RESTARTS",
                               "env",  "TORCHELASTIC_USE_AGENT_STORE",
                               "env",  "OMP_NUM_THREADS",
                               "env",  "TORCH_NCCL_ASYNC_ERROR_HANDLING"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out,
            "RANK=1\nLOCAL_RANK=1\nGROUP_RANK=0\nGROUP_WORLD_SIZE=1\nLOCAL_WORLD_SIZE=2\n"
            "WORLD_SIZE=2\nROLE_NAME=trainer\nROLE_RANK=1\nROLE_WORLD_SIZE=2\n"
            "MASTER_ADDR=127.0.0.1\nTORCHELASTIC_RESTART_COUNT=0\nTORCHELASTIC_MAX_RESTARTS=3\n"
            "TORCHELASTIC_USE_AGENT_STORE=True\nOMP_NUM_THREADS=1\n"
            "TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n");
}

TEST(Environment, TheScriptsArgumentsAreNotTouched) {
  const Ran ran = run_distrun(
      {"--nproc-per-node=1"},
      {"args", "-r", "3", "--max_restarts", "4", "--", "--d", "$HOME", "$$", "${local_rank}"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "-r\n3\n--max_restarts\n4\n--\n--d\n$HOME\n$$\n0\n");
}

TEST(Environment, TwoDefaultJobsOnOneHostDoNotCollide) {
  TempFolder folder;
  const std::string stop = folder / "stop";
  Background first(distrun_with({"--nproc-per-node", "2"}, {"env", "MASTER_PORT", "until", stop}));
  ASSERT_TRUE(wait_for([&] { return first.out().find('\n') != std::string::npos; },
                       std::chrono::seconds(40)))
      << first.err();
  const Ran second = run_distrun({"--nproc-per-node", "2"}, {"env", "MASTER_PORT"});
  EXPECT_EQ(second.status, 0) << second.err;
  run_program({"touch", stop});
  EXPECT_EQ(first.wait(std::chrono::seconds(30)), 0) << first.err();
  EXPECT_NE(first.out().substr(0, first.out().find('\n')),
            second.out.substr(0, second.out.find('\n')));
}

TEST(Environment, AnAskedForPortIsThePortAndAUsedOneIsNamed) {
  TempFolder folder;
  const std::string stop = folder / "stop";
  Background first(distrun_with({"--master-port", "29723"}, {"env", "MASTER_PORT", "until", stop}));
  ASSERT_TRUE(wait_for([&] { return first.out().find("29723") != std::string::npos; },
                       std::chrono::seconds(30)))
      << first.err();
  const Ran second = run_distrun({"--master-port", "29723"}, {"exit", "0"});
  EXPECT_EQ(second.status, 71);
  EXPECT_THAT(second.err, HasSubstr("29723"));
  run_program({"touch", stop});
  EXPECT_EQ(first.wait(std::chrono::seconds(30)), 0);
}

TEST(Environment, AHostNameForTheStoreIsLookedUpAndWorkersGetTheAddress) {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  const Ran ran = run_distrun({"--master-addr", name}, {"env", "MASTER_ADDR"});
  if (ran.err.find("cannot be looked up") != std::string::npos) {
    GTEST_SKIP() << "this machine's own name has no address: " << name;
  }
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, ::testing::MatchesRegex("MASTER_ADDR=[0-9.:]+\n"));
  const Ran unknown = run_distrun({"--master-addr", "no-such-host.invalid"}, {"exit", "0"});
  EXPECT_EQ(unknown.status, 71);
  EXPECT_THAT(unknown.err, HasSubstr("no-such-host.invalid"));
}

TEST(Environment, AMistypedCommandLineEndsWithTwoAndStartsNothing) {
  const Ran bad = run_program({DISTRUN, "--nproc-per-nod", "2x", "/bin/true"});
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.err, HasSubstr("2x"));
  const Ran unknown = run_program({DISTRUN, "--max-restart-count", "1", "/bin/true"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--max-restart-count"));
}

TEST(Environment, WhatCannotBeStartedIsToldBeforeAnythingStarts) {
  TempFolder folder;
  const Ran missing = run_program({DISTRUN, "--max-restarts", "3", "no_such_script.py"});
  EXPECT_EQ(missing.status, 127);
  EXPECT_THAT(missing.err, HasSubstr("no_such_script.py"));
  run_program({"touch", folder / "plain"});
  const Ran plain = run_program({DISTRUN, "--no-python", folder / "plain"});
  EXPECT_EQ(plain.status, 126);
}

TEST(Environment, AProgramThatIsExecutableNeedsNoFlag) {
  const Ran ran = run_program({DISTRUN, "/bin/echo", "hello"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "hello\n");
  EXPECT_EQ(ran.err, "");
}

}  // namespace
}  // namespace distrun::test
