// Real processes.  Runs in a child of the test, since becoming a subreaper is for life.
#include "agent/process/descendants.h"

#include "runtime/base/time.h"

#include <gtest/gtest.h>

#include <chrono>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace distrun::agent {
namespace {

// 0: as it should be; else the line that was not.
int kill_a_setsid_grandchild() {
  become_subreaper();
  if (has_children()) return __LINE__;
  int ready[2];
  if (::pipe(ready) != 0) return __LINE__;
  if (::fork() == 0) {
    if (::fork() == 0) {
      ::setsid();
      ::signal(SIGTERM, SIG_IGN);
      (void)!::write(ready[1], "x", 1);
      for (;;) ::pause();
    }
    ::_exit(0);  // the parent in between is gone: the grandchild becomes ours
  }
  char byte = 0;
  if (::read(ready[0], &byte, 1) != 1) return __LINE__;
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  while (descendants().size() != 1) {
    reap_orphans();
    if (Clock::now() > deadline) return __LINE__;
  }
  const auto killed = kill_descendants();
  if (killed.size() != 1 || killed[0].parent != ::getpid()) return __LINE__;
  while (has_children()) {
    reap_orphans();
    if (Clock::now() > deadline) return __LINE__;
  }
  return descendants().empty() ? 0 : __LINE__;
}

int leave_tracked_to_their_owner() {
  become_subreaper();
  const pid_t tracked = ::fork();
  if (tracked == 0) {
    for (;;) ::pause();
  }
  if (::kill(tracked, SIGKILL) != 0) return __LINE__;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(tracked), &info, WEXITED | WNOWAIT) != 0) return __LINE__;
  reap_orphans({tracked});
  if (::waitpid(tracked, nullptr, WNOHANG) != tracked) return __LINE__;
  return has_children() ? __LINE__ : 0;
}

int in_a_child(int (*test)()) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(test() & 0xff);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 256;
}

TEST(Descendants, AGrandchildWithItsOwnSessionAndNoParentIsFoundAndKilled) {
  EXPECT_EQ(in_a_child(kill_a_setsid_grandchild), 0);
}

TEST(Descendants, TheStatusOfATrackedChildIsLeftToItsOwner) {
  EXPECT_EQ(in_a_child(leave_tracked_to_their_owner), 0);
}

}  // namespace
}  // namespace distrun::agent
