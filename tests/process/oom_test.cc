#include "agent/process/oom.h"

#include <gtest/gtest.h>

namespace distrun::agent {
namespace {

TEST(OomWatch, FindsThePidInTheKernelsSentence) {
  EXPECT_EQ(oom_killed_pid("3,1188,77205021,-;Memory cgroup out of memory: Killed process 4711 "
                           "(python) total-vm:1000kB, anon-rss:900kB, UID:0 oom_score_adj:0"),
            4711);
  EXPECT_EQ(oom_killed_pid("3,1,1,-;Out of memory: Killed process 12 (a) total-vm:1kB"), 12);
  EXPECT_EQ(oom_killed_pid("6,2,2,-;python invoked oom-killer: gfp_mask=0x100"), 0);
  EXPECT_EQ(oom_killed_pid("Killed process "), 0);
}

TEST(OomWatch, ReadsTheCounterOfBothCgroupVersions) {
  EXPECT_EQ(oom_kills("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"), 2U);
  EXPECT_EQ(oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"), 5U);
  EXPECT_EQ(oom_kills("oom_kill_disable 1\n"), 0U);
  EXPECT_EQ(oom_kills(""), 0U);
}

TEST(OomWatch, FindsTheCounterFileOfTheMemoryCgroup) {
  EXPECT_EQ(oom_counter_file("0::/user.slice/job\n", "/r"), "/r/user.slice/job/memory.events");
  EXPECT_EQ(oom_counter_file("5:cpu,memory:/a\n0::/b\n", "/r"), "/r/memory/a/memory.oom_control");
  EXPECT_EQ(oom_counter_file("5:cpu:/a\n", "/r"), "");
  EXPECT_EQ(oom_counter_file("garbage", "/r"), "");
}

}  // namespace
}  // namespace distrun::agent
