#include "agent/process/oom.h"

#include <gtest/gtest.h>

namespace distrun::agent {
namespace {

TEST(OomWatch, FindsItsPidInTheKernelsSentenceAndNoOther) {
  const char* record =
      "3,1188,77205021,-;Memory cgroup out of memory: Killed process 4711 (python) "
      "total-vm:1000kB, anon-rss:900kB, UID:0 pgtables:60kB oom_score_adj:0";
  EXPECT_TRUE(names_oom_kill(record, 4711));
  EXPECT_FALSE(names_oom_kill(record, 471));
  EXPECT_FALSE(names_oom_kill(record, 47110));
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
