#include "agent/process/oom.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

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

class OomCounterFile : public ::testing::Test {
 protected:
  ~OomCounterFile() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + file).parent_path());
    std::ofstream(root_ + file) << text;
  }
  void in_version_2(const std::string& path) const {
    write("/proc/self/cgroup", "0::" + path + "\n");
    write("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  }
  std::string root_ = make_folder();

 private:
  static std::string make_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "distrun_oom_XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    return name;
  }
};

TEST_F(OomCounterFile, IsThatOfOurOwnCgroup) {
  in_version_2("/user.slice/job");
  write("/sys/fs/cgroup/user.slice/memory.events", "oom_kill 7\n");
  write("/sys/fs/cgroup/user.slice/job/memory.events", "oom_kill 0\n");
  EXPECT_EQ(oom_counter_file(root_), root_ + "/sys/fs/cgroup/user.slice/job/memory.events");
}

TEST_F(OomCounterFile, IsThatOfTheMountWhereAContainerHidesOurs) {
  in_version_2("/kubepods/pod1");
  write("/sys/fs/cgroup/memory.events", "oom_kill 0\n");
  EXPECT_EQ(oom_counter_file(root_), root_ + "/sys/fs/cgroup/memory.events");
}

TEST_F(OomCounterFile, IsThatOfVersion1WhereItHasTheController) {
  write("/proc/self/cgroup", "5:memory:/a\n0::/b\n");
  write("/proc/self/mountinfo",
        "29 23 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  write("/sys/fs/cgroup/memory/a/memory.oom_control", "oom_kill 0\n");
  write("/sys/fs/cgroup/unified/b/memory.events", "oom_kill 0\n");
  EXPECT_EQ(oom_counter_file(root_), root_ + "/sys/fs/cgroup/memory/a/memory.oom_control");
}

TEST_F(OomCounterFile, IsNoneWhereNothingCounts) {
  EXPECT_EQ(oom_counter_file(root_), "");
  in_version_2("/job");
  EXPECT_EQ(oom_counter_file(root_), "");
}

}  // namespace
}  // namespace distrun::agent
