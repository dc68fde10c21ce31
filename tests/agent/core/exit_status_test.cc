#include "agent/core/exit_status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

namespace distrun::agent {
namespace {

TEST(ExitStatus, SaysHowAWorkerEnded) {
  EXPECT_EQ(to_text(ExitedWith{3}), "exited with status 3");
  EXPECT_EQ(to_text(KilledBy{SIGTERM}), "killed by SIGTERM");
  EXPECT_EQ(to_text(KilledBy{SIGSEGV, true}), "killed by SIGSEGV (core dumped)");
  EXPECT_EQ(to_text(KilledBy{SIGKILL, false, true}),
            "killed by SIGKILL (out of memory: the kernel's OOM killer)");
  EXPECT_EQ(to_text(NeverStarted{ExecStage::chdir, ENOENT}),
            "could not start: chdir: No such file or directory");
  EXPECT_EQ(to_text(NeverStarted{ExecStage::exec, EACCES}),
            "could not start: exec: Permission denied");
}

TEST(ExitStatus, NamesASignalWithoutANameByItsNumber) {
  EXPECT_EQ(signal_name(SIGUSR1), "SIGUSR1");
  EXPECT_EQ(signal_name(100), "signal 100");
}

TEST(ExitStatus, ExitCodeIsWhatAShellWouldSay) {
  EXPECT_EQ(process_exit_code(ExitedWith{0}), 0);
  EXPECT_EQ(process_exit_code(ExitedWith{85}), 85);
  EXPECT_EQ(process_exit_code(KilledBy{SIGKILL}), 137);
  EXPECT_EQ(process_exit_code(NeverStarted{ExecStage::exec, ENOENT}), 127);
  EXPECT_EQ(process_exit_code(NeverStarted{ExecStage::exec, ENOTDIR}), 127);
  EXPECT_EQ(process_exit_code(NeverStarted{ExecStage::exec, EACCES}), 126);
  EXPECT_EQ(process_exit_code(NeverStarted{ExecStage::exec, ENOEXEC}), 126);
}

TEST(ExitStatus, AMissingWorkingDirectoryIsNoMissingProgram) {
  EXPECT_EQ(process_exit_code(NeverStarted{ExecStage::chdir, ENOENT}), 71);
}

TEST(ExitStatus, OnlyStatusZeroIsSuccess) {
  EXPECT_TRUE(succeeded(ExitedWith{0}));
  EXPECT_FALSE(succeeded(ExitedWith{1}));
  EXPECT_FALSE(succeeded(KilledBy{SIGTERM}));
  EXPECT_FALSE(succeeded(NeverStarted{}));
}

TEST(ExitStatus, ACrashIsTheWorkersOwnDoingAKillIsNot) {
  EXPECT_TRUE(by_itself(ExitedWith{1}));
  EXPECT_TRUE(by_itself(KilledBy{SIGABRT}));
  EXPECT_FALSE(by_itself(KilledBy{SIGKILL}));
  EXPECT_FALSE(by_itself(KilledBy{SIGUSR1}));
  EXPECT_FALSE(by_itself(NeverStarted{}));
}

}  // namespace
}  // namespace distrun::agent
