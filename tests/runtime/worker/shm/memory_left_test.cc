// What the kernel's files say about memory that is left, on made-up machines.
#include "runtime/worker/shm/memory_left.h"

#include "tests/support/run_program.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace distrun::shm::test {
namespace {

class MemoryLeftOf : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<MemoryLeft> look() const { return memory_left(root_ / "proc", root_ / "groups"); }
  std::string told() const {
    const auto left = look();
    return left ? left->whose + ": " + std::to_string(left->bytes) : "nothing";
  }

  distrun::test::TempFolder root_;
};

TEST_F(MemoryLeftOf, NothingThatTells) {
  EXPECT_EQ(told(), "nothing");
}

TEST_F(MemoryLeftOf, AMachineWithoutControlGroups) {
  write("proc/meminfo", "MemTotal:       100 kB\nMemFree:          1 kB\nMemAvailable:    40 kB\n");
  EXPECT_EQ(told(), "this machine: 40960");
}

TEST_F(MemoryLeftOf, AControlGroupThatHasLess) {
  write("proc/meminfo", "MemAvailable:    40 kB\n");
  write("proc/self/cgroup", "0::/job/step\n");
  write("groups/job/step/memory.max", "10000\n");
  write("groups/job/step/memory.current", "9000\n");
  EXPECT_EQ(told(), "the control group /job/step: 1000");
}

TEST_F(MemoryLeftOf, CachesOfFilesAreGivenBack) {
  write("proc/self/cgroup", "0::/job\n");
  write("groups/job/memory.max", "10000\n");
  write("groups/job/memory.current", "9000\n");
  write("groups/job/memory.stat", "anon 2000\nactive_file 3000\ninactive_file 2500\nfile 7000\n");
  EXPECT_EQ(told(), "the control group /job: 6500");
}

TEST_F(MemoryLeftOf, AParentThatHasLess) {
  write("proc/self/cgroup", "0::/job/step\n");
  write("groups/job/step/memory.max", "max\n");
  write("groups/job/step/memory.current", "1\n");
  write("groups/job/memory.max", "5000\n");
  write("groups/job/memory.current", "6000\n");  // over it already: being thrown out of it
  EXPECT_EQ(told(), "the control group /job: 0");
}

TEST_F(MemoryLeftOf, VersionOneInAContainerThatIsNamedAsOutsideOfIt) {
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/4711\n1:cpuset:/docker/4711\n");
  write("groups/memory/memory.limit_in_bytes", "8000\n");
  write("groups/memory/memory.usage_in_bytes", "3000\n");
  write("groups/memory/memory.stat", "inactive_file 9\ntotal_inactive_file 500\n");
  EXPECT_EQ(told(), "the control group /: 5500");
}

TEST_F(MemoryLeftOf, VersionOneWithoutALimit) {
  write("proc/self/cgroup", "4:memory:/\n");
  write("groups/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("groups/memory/memory.usage_in_bytes", "3000\n");
  EXPECT_EQ(told(), "nothing");
}

TEST(MemoryLeft, OfThisMachine) {
  const auto left = memory_left();
  ASSERT_TRUE(left.has_value()) << "/proc/meminfo has MemAvailable since Linux 3.14";
  EXPECT_GT(left->bytes, 0U);
}

}  // namespace
}  // namespace distrun::shm::test
