#include "launcher/numa.h"

#include "launcher/machine.h"
#include "tests/launcher/support.h"

#include <gmock/gmock.h>

namespace distrun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Lists = std::vector<std::vector<int>>;

// Two sockets with two NUMA nodes each; a node has two cores with two threads each.
//   node 0: CPUs 0 1 + 8 9     node 1: 2 3 + 10 11      (socket 0)
//   node 2: CPUs 4 5 + 12 13   node 3: 6 7 + 14 15      (socket 1)
class NumaBinding2x2 : public ::testing::Test {
 protected:
  NumaBinding2x2() {
    for (int cpu = 0; cpu < 16; ++cpu) {
      const int core = cpu % 8;
      const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/";
      const std::string siblings = std::to_string(core) + "," + std::to_string(core + 8) + "\n";
      root_.write(folder + "topology/physical_package_id", std::to_string(core / 4) + "\n");
      root_.write(folder + "topology/thread_siblings_list", siblings);
      cache(cpu, 0, "Data", 1, siblings);
      cache(cpu, 1, "Instruction", 1, siblings);
      cache(cpu, 2, "Unified", 2, siblings);
      const int first = core / 2 * 2;
      cache(cpu, 3, "Unified", 3,
            std::to_string(first) + "-" + std::to_string(first + 1) + "," +
                std::to_string(first + 8) + "-" + std::to_string(first + 9) + "\n");
      all_.push_back(cpu);
    }
    for (int node = 0; node < 4; ++node) {
      const int first = node * 2;
      root_.write("sys/devices/system/node/node" + std::to_string(node) + "/cpulist",
                  std::to_string(first) + "-" + std::to_string(first + 1) + "," +
                      std::to_string(first + 8) + "-" + std::to_string(first + 9) + "\n");
    }
    root_.write("sys/devices/system/node/possible", "0-3\n");
  }

  void cache(int cpu, int index, const std::string& type, int level, const std::string& shared) {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" +
                               std::to_string(index) + "/";
    root_.write(folder + "type", type + "\n");
    root_.write(folder + "level", std::to_string(level) + "\n");
    root_.write(folder + "shared_cpu_list", shared);
  }

  Result<Lists> bind(NumaBinding binding, int nproc, std::vector<int> device_nodes = {}) {
    return bind_workers(binding, nproc, read_topology(all_, device_nodes, root_.path()));
  }

  TempFolder root_;
  std::vector<int> all_;  // CPUs that we may use
};

TEST_F(NumaBinding2x2, NodeGivesTheCpusOfTheGpusNode) {
  EXPECT_EQ(*bind(NumaBinding::node, 2, {3, 0}), (Lists{{6, 7, 14, 15}, {0, 1, 8, 9}}));
}

TEST_F(NumaBinding2x2, SocketGivesAllNodesOfThePackage) {
  EXPECT_EQ(*bind(NumaBinding::socket, 2, {1, 2}),
            (Lists{{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}}));
}

TEST_F(NumaBinding2x2, ExclusiveDividesWholeCores) {
  EXPECT_EQ(*bind(NumaBinding::exclusive, 2, {0, 0}), (Lists{{0, 8}, {1, 9}}));
}

TEST_F(NumaBinding2x2, ExclusiveCountsGpusOfTheNodeThatNoWorkerUses) {
  EXPECT_EQ(*bind(NumaBinding::exclusive, 1, {0, 0}), (Lists{{0, 8}}));
}

TEST_F(NumaBinding2x2, ExclusiveRefusesLessThanOneCoreEach) {
  const auto result = bind(NumaBinding::exclusive, 3, {0, 0, 0});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().detail, HasSubstr("NUMA node 0 has 2 usable cores for 3"));
}

TEST_F(NumaBinding2x2, CoreComplexIsWhatSharesTheLastLevelCache) {
  EXPECT_EQ(*bind(NumaBinding::core_complex, 2, {0, 0}), (Lists{{0, 1, 8, 9}, {0, 1, 8, 9}}));
}

TEST_F(NumaBinding2x2, OnlyCpusThatWeMayUseAreGiven) {
  all_ = {1, 4, 5, 9};
  EXPECT_EQ(*bind(NumaBinding::node, 1, {0}), (Lists{{1, 9}}));
  EXPECT_EQ(*bind(NumaBinding::socket, 1, {0}), (Lists{{1, 9}}));
  EXPECT_EQ(*bind(NumaBinding::exclusive, 1, {0}), (Lists{{1, 9}}));
}

TEST_F(NumaBinding2x2, AGpuWhoseNodeIsClosedToUsIsAnError) {
  all_ = {4, 5};
  const auto result = bind(NumaBinding::node, 1, {0});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().detail, HasSubstr("GPU 0 hangs on NUMA node 0"));
}

TEST_F(NumaBinding2x2, MoreWorkersThanGpusIsAnError) {
  const auto result = bind(NumaBinding::node, 3, {0, 1});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().detail, HasSubstr("3 workers, but only 2 GPUs"));
}

TEST_F(NumaBinding2x2, WithoutGpusWorkersAreSpreadOverNodesInBlocks) {
  EXPECT_EQ(*bind(NumaBinding::node, 2), (Lists{{0, 1, 8, 9}, {4, 5, 12, 13}}));
  EXPECT_EQ(*bind(NumaBinding::exclusive, 8),
            (Lists{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}}));
}

TEST_F(NumaBinding2x2, AMachineThatIsNotDescribedIsAnError) {
  EXPECT_FALSE(bind_workers(NumaBinding::node, 1, Topology{}));
}

Topology one_node(const std::vector<int>& caches) {
  Topology topology;
  for (int id = 0; id < static_cast<int>(caches.size()); ++id) {
    topology.cpus.push_back({id, 0, 0, id, caches[static_cast<std::size_t>(id)]});
  }
  return topology;
}

TEST(NumaBinding, ExclusiveGivesTheRemainderToTheFirst) {
  Topology topology = one_node({0, 0, 0, 0, 0, 0, 0});
  topology.device_nodes = {0, 0, 0};
  EXPECT_EQ(*bind_workers(NumaBinding::exclusive, 3, topology), (Lists{{0, 1, 2}, {3, 4}, {5, 6}}));
}

TEST(NumaBinding, CoreComplexesAreTakenInTurnLargestFirst) {
  Topology topology = one_node({0, 0, 2, 2, 2, 5});
  topology.device_nodes = {0, 0, 0, 0};
  EXPECT_EQ(*bind_workers(NumaBinding::core_complex, 4, topology),
            (Lists{{2, 3, 4}, {0, 1}, {5}, {2, 3, 4}}));
}

TEST_F(NumaBinding2x2, TopologyIsReadAsItIsWritten) {
  const Topology topology = read_topology({9}, {}, root_.path());
  ASSERT_EQ(topology.cpus.size(), 1U);
  EXPECT_EQ(topology.cpus[0], (Topology::Cpu{9, 0, 0, 1, 0}));
}

TEST(NumaTopology, WithoutSysEveryCpuIsACoreOfNodeZero) {
  const TempFolder empty;
  const Topology topology = read_topology({3, 4}, {}, empty.path());
  EXPECT_THAT(topology.cpus,
              ElementsAre(Topology::Cpu{3, 0, 0, 3, 0}, Topology::Cpu{4, 0, 0, 4, 0}));
}

}  // namespace
}  // namespace distrun::launcher
