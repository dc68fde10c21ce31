#include "agent/process/cgroup.h"

#include <gmock/gmock.h>

#include <string>

namespace distrun::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view kV2Mount = "30 23 0:26 / /cg rw shared:4 - cgroup2 cgroup2 rw\n";

std::vector<std::string> folders(std::string_view controller, std::string_view proc_cgroup,
                                 std::string_view mountinfo) {
  std::vector<std::string> all;
  for (const Cgroup& one : find_cgroups(controller, proc_cgroup, mountinfo)) {
    for (std::string& folder : one.folders()) all.push_back(std::move(folder));
  }
  return all;
}

TEST(Cgroup, FoldersAreOursAndEachAboveUpToTheMount) {
  EXPECT_THAT(folders("cpu", "0::/a/b\n", kV2Mount), ElementsAre("/cg/a/b", "/cg/a", "/cg"));
  EXPECT_THAT(folders("cpu", "0::/\n", kV2Mount), ElementsAre("/cg"));
}

TEST(Cgroup, AMountThatShowsAPartOfTheTreeIsUnderstood) {
  const std::string mount = "30 23 0:26 /docker/abc /cg rw - cgroup2 cgroup2 rw\n";
  EXPECT_THAT(folders("cpu", "0::/docker/abc/in\n", mount), ElementsAre("/cg/in", "/cg"));
  EXPECT_THAT(folders("cpu", "0::/docker/abc\n", mount), ElementsAre("/cg"));
}

TEST(Cgroup, AnotherFolderThatOnlyBeginsLikeTheMountsIsNotInsideIt) {
  const std::string mount = "30 23 0:26 /docker/a /cg rw - cgroup2 cgroup2 rw\n";
  EXPECT_THAT(folders("cpu", "0::/docker/abc\n", mount),
              ElementsAre("/cg/docker/abc", "/cg/docker", "/cg"));
}

TEST(Cgroup, OfVersion1IsTheTreeWithTheController) {
  const std::string mounts =
      "31 23 0:27 / /cg/memory rw - cgroup cgroup rw,memory\n"
      "32 23 0:28 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
  const std::string ours = "4:memory:/m\n3:cpu,cpuacct:/c\n";
  EXPECT_THAT(folders("memory", ours, mounts), ElementsAre("/cg/memory/m", "/cg/memory"));
  EXPECT_THAT(folders("cpu", ours, mounts), ElementsAre("/cg/cpu/c", "/cg/cpu"));
  EXPECT_THAT(folders("cpuset", ours, mounts), IsEmpty());
}

TEST(Cgroup, Version1ComesBeforeVersion2OnAMachineWithBoth) {
  const std::string mounts =
      std::string(kV2Mount) + "31 23 0:27 / /cg1 rw - cgroup cgroup rw,memory\n";
  const auto found = find_cgroups("memory", "4:memory:/m\n0::/u\n", mounts);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_FALSE(found[0].v2);
  EXPECT_TRUE(found[1].v2);
}

TEST(Cgroup, RubbishIsNone) {
  EXPECT_THAT(folders("cpu", "", ""), IsEmpty());
  EXPECT_THAT(folders("cpu", "garbage\n:\n::\n", "- - -\n\n - cgroup2\n1 2 3 4 5 - cgroup2\n"),
              IsEmpty());
}

}  // namespace
}  // namespace distrun::agent
