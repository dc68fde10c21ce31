#include "launcher/gpus.h"

#include "tests/launcher/support.h"

#include <gmock/gmock.h>

namespace distrun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<std::string> kFour{"GPU-aa11", "GPU-ab22", "GPU-cc33", "GPU-dd44"};

std::vector<std::size_t> visible(std::string_view variable) {
  return visible_devices(variable, kFour).devices;
}

TEST(VisibleDevices, NotSetIsAllOfThem) {
  EXPECT_THAT(visible_devices(std::nullopt, kFour).devices, ElementsAre(0, 1, 2, 3));
}

TEST(VisibleDevices, SetAndEmptyIsNone) {
  EXPECT_THAT(visible(""), IsEmpty());
  EXPECT_THAT(visible(" "), IsEmpty());
}

TEST(VisibleDevices, TheOrderIsTheVariables) {
  EXPECT_THAT(visible("2,0"), ElementsAre(2, 0));
  EXPECT_THAT(visible(" 2 , 0 "), ElementsAre(2, 0));
}

TEST(VisibleDevices, TheFirstThatMeansNothingEndsTheList) {
  EXPECT_THAT(visible("-1"), IsEmpty());
  EXPECT_THAT(visible("-1,0"), IsEmpty());
  EXPECT_THAT(visible("0,-1,1"), ElementsAre(0));
  EXPECT_THAT(visible("0,4,1"), ElementsAre(0));
  EXPECT_THAT(visible("0,x,1"), ElementsAre(0));
  EXPECT_THAT(visible("NoDevFiles"), IsEmpty());
}

TEST(VisibleDevices, ARepeatedDeviceEmptiesTheList) {
  EXPECT_THAT(visible("0,1,0"), IsEmpty());
}

TEST(VisibleDevices, UuidsMayBeShortenedAsLongAsTheyFitOne) {
  EXPECT_THAT(visible("GPU-cc33,GPU-aa"), ElementsAre(2, 0));
  EXPECT_THAT(visible("GPU-a"), IsEmpty());
  EXPECT_THAT(visible("GPU-ee"), IsEmpty());
}

TEST(VisibleDevices, AUuidFitsADeviceWhoseOwnIsNotKnown) {
  EXPECT_THAT(visible_devices("GPU-11,GPU-22", {"", "", ""}).devices, ElementsAre(0, 1));
}

TEST(VisibleDevices, MigSlicesAreCountedApart) {
  const Visible result = visible_devices("MIG-1,MIG-2,MIG-3", kFour);
  EXPECT_THAT(result.devices, IsEmpty());
  EXPECT_EQ(result.mig_slices, 3);
  EXPECT_EQ(visible_devices("MIG-1,0", kFour).mig_slices, 1);
}

class Gpus : public ::testing::Test {
 protected:
  void nvidia(int minor, const std::string& pci, int numa_node) {
    root_.write("proc/driver/nvidia/gpus/" + pci + "/information",
                "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-0000" + std::to_string(minor) +
                    "\nDevice Minor: \t " + std::to_string(minor) + "\n");
    root_.write("sys/bus/pci/devices/" + pci + "/numa_node", std::to_string(numa_node) + "\n");
  }
  launcher::Gpus count(const Environment& environment = {}) {
    return count_gpus(environment, root_.path());
  }
  TempFolder root_;
};

TEST_F(Gpus, NoneIsSaidWithWhereWasLooked) {
  const auto gpus = count();
  EXPECT_EQ(gpus.count, 0);
  EXPECT_EQ(gpus.found,
            "NVIDIA: 0 in /proc/driver/nvidia/gpus, 0 of /dev/nvidia[0-9], CUDA_VISIBLE_DEVICES is "
            "not set; AMD: no /dev/kfd");
}

TEST_F(Gpus, NvidiaOnesAreInPciOrderWithTheirNumaNode) {
  nvidia(0, "0000:18:00.0", 0);
  nvidia(1, "0000:9a:00.0", 1);
  root_.write("dev/nvidia0", "");
  root_.write("dev/nvidia1", "");
  root_.write("dev/nvidiactl", "");
  root_.write("dev/nvidia-uvm", "");
  const auto gpus = count();
  EXPECT_EQ(gpus.count, 2);
  EXPECT_THAT(gpus.numa_nodes, ElementsAre(0, 1));
}

TEST_F(Gpus, OnesOfTheHostThatAContainerMayNotUseAreNotCounted) {
  nvidia(0, "0000:18:00.0", 0);
  nvidia(1, "0000:9a:00.0", 1);
  root_.write("dev/nvidia1", "");
  const auto gpus = count();
  EXPECT_EQ(gpus.count, 1);
  EXPECT_THAT(gpus.numa_nodes, ElementsAre(1));
}

TEST_F(Gpus, AContainerWithoutAnyIsToldFromADriverWithout) {
  nvidia(0, "0000:18:00.0", 0);
  EXPECT_EQ(count().count, 0);
  EXPECT_THAT(count().found, HasSubstr("1 in /proc/driver/nvidia/gpus, 0 of /dev/nvidia[0-9]"));
}

TEST_F(Gpus, DeviceNodesAloneAreEnough) {
  root_.write("dev/nvidia0", "");
  root_.write("dev/nvidia3", "");
  EXPECT_EQ(count().count, 2);
}

TEST_F(Gpus, TheVariableReordersNumaNodesToo) {
  nvidia(0, "0000:18:00.0", 0);
  nvidia(1, "0000:9a:00.0", 1);
  root_.write("dev/nvidia0", "");
  root_.write("dev/nvidia1", "");
  EXPECT_THAT(count({{"CUDA_VISIBLE_DEVICES", "GPU-00001,0"}}).numa_nodes, ElementsAre(1, 0));
}

TEST_F(Gpus, MigSlicesCountAsOneDevice) {
  nvidia(0, "0000:18:00.0", 0);
  root_.write("dev/nvidia0", "");
  const auto gpus = count({{"CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b"}});
  EXPECT_EQ(gpus.count, 1);
  EXPECT_EQ(gpus.mig_slices, 2);
}

TEST_F(Gpus, AnUnknownNumaNodeIsNodeZero) {
  nvidia(0, "0000:18:00.0", -1);
  root_.write("dev/nvidia0", "");
  EXPECT_THAT(count().numa_nodes, ElementsAre(0));
}

class AmdGpus : public Gpus {
 protected:
  void SetUp() override {
    root_.write("dev/kfd", "");
    node(0, "simd_count 0\n");  // a CPU
    node(1, "simd_count 1216\nlocation_id 768\ndomain 0\ndrm_render_minor 128\n");
    node(2, "simd_count 1216\nlocation_id 35840\ndomain 0\ndrm_render_minor 129\n");
    root_.write("dev/dri/renderD128", "");
    root_.write("dev/dri/renderD129", "");
    root_.write("sys/bus/pci/devices/0000:8c:00.0/numa_node", "1\n");
  }
  void node(int index, const std::string& properties) {
    root_.write("sys/class/kfd/kfd/topology/nodes/" + std::to_string(index) + "/properties",
                properties);
  }
};

TEST_F(AmdGpus, CpusAreNotCounted) {
  EXPECT_EQ(count().count, 2);
  EXPECT_THAT(count().numa_nodes, ElementsAre(0, 1));
}

TEST_F(AmdGpus, WithoutTheDriverNodeThereAreNone) {
  std::filesystem::remove(root_.path("dev/kfd"));
  EXPECT_EQ(count().count, 0);
}

TEST_F(AmdGpus, OneWhoseRenderNodeIsHiddenIsNotCounted) {
  std::filesystem::remove(root_.path("dev/dri/renderD128"));
  EXPECT_THAT(count().numa_nodes, ElementsAre(1));
}

TEST_F(AmdGpus, HipsVariableGoesBeforeCudas) {
  EXPECT_EQ(count({{"CUDA_VISIBLE_DEVICES", ""}}).count, 0);
  EXPECT_EQ(count({{"HIP_VISIBLE_DEVICES", "0,1"}, {"CUDA_VISIBLE_DEVICES", ""}}).count, 2);
}

TEST_F(AmdGpus, HipNumbersWhatTheRuntimeBelowLeaves) {
  const auto gpus = count({{"ROCR_VISIBLE_DEVICES", "1"}, {"HIP_VISIBLE_DEVICES", "0"}});
  EXPECT_THAT(gpus.numa_nodes, ElementsAre(1));
}

}  // namespace
}  // namespace distrun::launcher
