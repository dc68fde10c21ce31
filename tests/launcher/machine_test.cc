#include "launcher/machine.h"

#include "tests/launcher/support.h"

#include <gmock/gmock.h>

namespace distrun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

class CpuQuota : public ::testing::Test {
 protected:
  void v2(const std::string& path, const std::string& mount_root = "/") {
    root_.write("proc/self/cgroup", "0::" + path + "\n");
    root_.write("proc/self/mountinfo",
                "22 1 0:5 / /proc rw - proc proc rw\n30 23 0:26 " + mount_root +
                    " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  }
  void v1(const std::string& path, const std::string& mount_root = "/") {
    root_.write("proc/self/cgroup", "4:memory:/else\n3:cpu,cpuacct:" + path + "\n0::/\n");
    root_.write("proc/self/mountinfo",
                "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                "32 23 0:28 " +
                    mount_root + " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  }
  std::optional<double> quota() { return read_cpu_quota(root_.path()); }
  TempFolder root_;
};

TEST_F(CpuQuota, NoCgroupsIsNoLimit) {
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(CpuQuota, MaxIsNoLimit) {
  v2("/job");
  root_.write("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(CpuQuota, OfVersion2IsQuotaByPeriod) {
  v2("/job");
  root_.write("sys/fs/cgroup/job/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(CpuQuota, TheTightestLevelAboveUsCounts) {
  v2("/a/b/c");
  root_.write("sys/fs/cgroup/a/cpu.max", "200000 100000\n");
  root_.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  root_.write("sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
  EXPECT_EQ(quota(), 2.0);
}

TEST_F(CpuQuota, TheRootOfAContainerIsALevelToo) {
  v2("/");
  root_.write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
}

TEST_F(CpuQuota, AMountThatShowsAPartOfTheTreeIsUnderstood) {
  v2("/docker/abc/inner", "/docker/abc");
  root_.write("sys/fs/cgroup/inner/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota(), 3.0);
}

TEST_F(CpuQuota, AHostsPathThatIsNotThereStillReachesTheMount) {
  v1("/kubepods/pod1/abc");
  root_.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n");
  root_.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 4.0);
}

TEST_F(CpuQuota, OfVersion1MinusOneIsNoLimit) {
  v1("/job");
  root_.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  root_.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(CpuQuota, RubbishIsNoLimit) {
  v2("/job");
  root_.write("sys/fs/cgroup/job/cpu.max", "lots 0 0");
  EXPECT_EQ(quota(), std::nullopt);
  root_.write("sys/fs/cgroup/job/cpu.max", "100000 0");
  EXPECT_EQ(quota(), std::nullopt);
  root_.write("proc/self/mountinfo", "- - -\n\n - cgroup2\n1 2 3 4 5 - cgroup2\n");
  EXPECT_EQ(quota(), std::nullopt);
}

int usable(std::size_t allowed, std::optional<double> quota) {
  Machine machine;
  machine.cpus.assign(allowed, 0);
  machine.cpu_quota = quota;
  return usable_cpus(machine);
}

TEST(UsableCpus, AreThoseAllowedOrAsManyAsTheQuotaPaysFor) {
  EXPECT_EQ(usable(8, std::nullopt), 8);
  EXPECT_EQ(usable(8, 16.0), 8);
  EXPECT_EQ(usable(8, 2.0), 2);
}

TEST(UsableCpus, AQuotaIsRoundedUp) {
  EXPECT_EQ(usable(8, 2.5), 3);
  EXPECT_EQ(usable(8, 7.5), 8);
}

TEST(UsableCpus, AreAtLeastOne) {
  EXPECT_EQ(usable(8, 0.1), 1);
  EXPECT_EQ(usable(0, std::nullopt), 1);
}

TEST(CpuList, IsAsTheKernelWritesIt) {
  EXPECT_THAT(parse_cpu_list("0-3,8,10-11\n"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(parse_cpu_list("\n"), IsEmpty());
  EXPECT_THAT(parse_cpu_list("x,3-1,-2,5"), ElementsAre(5));
  EXPECT_THAT(parse_cpu_list("0-99999999999"), IsEmpty());
}

TEST(Machine, ReadsTheRealOne) {
  const Machine machine = read_machine({true, true, true}, {});
  EXPECT_THAT(machine.cpus, Not(IsEmpty()));
  EXPECT_EQ(machine.topology.cpus.size(), machine.cpus.size());
  EXPECT_EQ(machine.working_folder, std::filesystem::current_path().string());
}

TEST(Machine, AFreshIdIsARandomUuid) {
  const Machine one = read_machine({}, {});
  const Machine two = read_machine({}, {});
  EXPECT_THAT(one.fresh_id, MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-"
                                         "[0-9a-f]{12}"));
  EXPECT_NE(one.fresh_id, two.fresh_id);
}

TEST(Machine, ReadsNothingThatWasNotAskedFor) {
  const Machine machine = read_machine({}, {});
  EXPECT_THAT(machine.cpus, IsEmpty());
  EXPECT_EQ(machine.gpus.found, "");
}

}  // namespace
}  // namespace distrun::launcher
