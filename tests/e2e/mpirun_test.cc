// distrun under the real mpirun of Open MPI, if it is installed.
#include "tests/e2e/run_distrun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace distrun::test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMpirun = "/usr/bin/mpirun";

class Mpirun : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kMpirun)) GTEST_SKIP() << "no mpirun (package openmpi-bin)";
  }

  // Debian's mpirun hangs at times with many tasks: never more than two here.
  static Ran mpirun(const std::string& tasks, const std::vector<std::string>& options,
                    const std::vector<std::string>& script) {
    std::vector<std::string> argv{kMpirun, "--allow-run-as-root", "--oversubscribe", "-n", tasks};
    for (const std::string& word : distrun_with(options, script)) argv.push_back(word);
    // What it keeps for a run lies in a folder that every run of this user shares, and one that
    // ends may take it from one that begins.
    TempFolder folder;
    return run_program(argv, {.environment = {{"TMPDIR", folder.path()}}});
  }
};

TEST_F(Mpirun, OneForEachRankIsRefusedInWords) {
  const Ran ran = mpirun("2", {}, {"rank", "0", "exit", "0"});
  EXPECT_EQ(ran.status, 2) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("OMPI_COMM_WORLD_SIZE=2, OMPI_COMM_WORLD_LOCAL_SIZE=2"));
  EXPECT_THAT(ran.err, HasSubstr("leave mpirun out and use distrun --nproc-per-node 2"));
}

TEST_F(Mpirun, OneAloneStartsAllWorkersOfItsNode) {
  const Ran ran =
      mpirun("1", {"--nproc-per-node", "2"}, {"rank", "1", "env", "RANK", "env", "WORLD_SIZE"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("RANK=1\nWORLD_SIZE=2\n"));
}

}  // namespace
}  // namespace distrun::test
