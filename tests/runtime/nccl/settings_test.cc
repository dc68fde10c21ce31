#include "runtime/nccl/settings.h"

#include "runtime/nccl/failed.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace distrun::nccl {
namespace {

using namespace std::chrono_literals;

std::map<std::string, std::string>& variables() {
  static std::map<std::string, std::string> all;
  return all;
}
const char* environment(const char* name) {
  const auto found = variables().find(name);
  return found == variables().end() ? nullptr : found->second.c_str();
}

std::string refusal(const Settings::Pairs& options) {
  try {
    Settings::from(options, environment);
  } catch (const Failed& failed) {
    return failed.what();
  }
  return "";
}

class SettingsTest : public ::testing::Test {
 protected:
  void SetUp() override { variables().clear(); }
};

TEST_F(SettingsTest, HasDefaults) {
  const Settings settings = Settings::from({}, environment);
  EXPECT_EQ(settings.ranks_per_root, 128);
  EXPECT_EQ(settings.watchdog, 100ms);
  EXPECT_FALSE(settings.high_priority);
  EXPECT_EQ(settings.comm.min_ctas, CommConfig::kUnset);
}

TEST_F(SettingsTest, AnOptionComesBeforeTheEnvironment) {
  variables() = {{"DISTRUN_NCCL_MIN_CTAS", "4"}, {"DISTRUN_NCCL_HIGH_PRIORITY", "1"}};
  EXPECT_EQ(Settings::from({}, environment).comm.min_ctas, 4);
  const Settings settings = Settings::from({{"min_ctas", "8"}}, environment);
  EXPECT_EQ(settings.comm.min_ctas, 8);
  EXPECT_TRUE(settings.high_priority);
}

TEST_F(SettingsTest, AnEmptyVariableIsNone) {
  variables() = {{"DISTRUN_NCCL_WATCHDOG_MS", ""}};
  EXPECT_EQ(Settings::from({}, environment).watchdog, 100ms);
}

TEST_F(SettingsTest, ABadValueNamesItsPlace) {
  variables() = {{"DISTRUN_NCCL_WATCHDOG_MS", "soon"}};
  EXPECT_EQ(refusal({}), "DISTRUN_NCCL_WATCHDOG_MS: not a number in 1..86400000: soon");
  variables().clear();
  EXPECT_EQ(refusal({{"blocking_wait", "maybe"}}), "option blocking_wait: not 0 or 1: maybe");
  EXPECT_EQ(refusal({{"ranks_per_root", "0"}}),
            "option ranks_per_root: not a number in 1..1048576: 0");
}

TEST_F(SettingsTest, AnUnknownOptionIsRefusedWithThoseThereAre) {
  EXPECT_NE(refusal({{"min_cta", "1"}}).find("nccl has no option min_cta; it has"),
            std::string::npos);
}

TEST_F(SettingsTest, LimitsThatContradictEachOtherAreRefused) {
  EXPECT_NE(refusal({{"min_ctas", "8"}, {"max_ctas", "4"}}), "");
}

}  // namespace
}  // namespace distrun::nccl
