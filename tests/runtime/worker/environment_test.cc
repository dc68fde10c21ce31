#include "runtime/worker/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace distrun {
namespace {

using Variables = std::map<std::string, std::string>;

// What the launcher sets for the last worker of the second of two nodes.
Variables launched() {
  return {{"RANK", "7"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "3"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"GROUP_RANK", "1"},
          {"GROUP_WORLD_SIZE", "2"},
          {"ROLE_NAME", "trainer"},
          {"ROLE_RANK", "7"},
          {"ROLE_WORLD_SIZE", "8"},
          {"MASTER_ADDR", "10.0.0.1"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RESTART_COUNT", "2"},
          {"TORCHELASTIC_MAX_RESTARTS", "3"},
          {"TORCHELASTIC_RUN_ID", "job-1"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_ERROR_FILE", "/tmp/e.json"}};
}

Lookup in(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string refusal_with(const std::string& name, const std::string& value) {
  Variables variables = launched();
  variables[name] = value;
  try {
    worker_info_from(in(variables));
  } catch (const DistArgumentError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(WorkerInfo, HoldsWhatTheLauncherSet) {
  const WorkerInfo info = worker_info_from(in(launched()));
  EXPECT_EQ(info.rank, 7);
  EXPECT_EQ(info.world_size, 8);
  EXPECT_EQ(info.local_rank, 3);
  EXPECT_EQ(info.local_world_size, 4);
  EXPECT_EQ(info.group_rank, 1);
  EXPECT_EQ(info.group_world_size, 2);
  EXPECT_EQ(info.role_name, "trainer");
  EXPECT_EQ(info.role_rank, 7);
  EXPECT_EQ(info.role_world_size, 8);
  EXPECT_EQ(info.master_addr, "10.0.0.1");
  EXPECT_EQ(info.master_port, 29500);
  EXPECT_EQ(info.restart_count, 2);
  EXPECT_EQ(info.max_restarts, 3);
  EXPECT_EQ(info.run_id, "job-1");
  EXPECT_TRUE(info.use_agent_store);
  EXPECT_EQ(info.error_file, "/tmp/e.json");
}

TEST(WorkerInfo, EachVariableThatMustBeSetIsNamedWhenItIsMissing) {
  for (const std::string name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                 "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    Variables variables = launched();
    variables.erase(name);
    try {
      worker_info_from(in(variables));
      ADD_FAILURE() << "accepted without " << name;
    } catch (const DistArgumentError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith(name + ": is not set"));
    }
  }
}

TEST(WorkerInfo, MalformedValuesAreRefusedWithNameAndValue) {
  EXPECT_EQ(refusal_with("RANK", "7x"), "RANK: not a number: \"7x\"");
  EXPECT_EQ(refusal_with("RANK", ""), "RANK: is empty");
  EXPECT_EQ(refusal_with("RANK", " 7"), "RANK: not a number: \" 7\"");
  EXPECT_EQ(refusal_with("RANK", "99999999999"), "RANK: not a number: \"99999999999\"");
  EXPECT_EQ(refusal_with("MASTER_PORT", "70000"), "MASTER_PORT: not in 1..65535: 70000");
  EXPECT_EQ(refusal_with("WORLD_SIZE", "0"), "WORLD_SIZE: not in 1..2147483647: 0");
  EXPECT_EQ(refusal_with("TORCHELASTIC_RESTART_COUNT", "-1"),
            "TORCHELASTIC_RESTART_COUNT: not in 0..2147483647: -1");
}

TEST(WorkerInfo, ContradictionsAreRefusedWithBothNames) {
  EXPECT_EQ(refusal_with("RANK", "8"), "RANK: 8 is not below WORLD_SIZE, which is 8");
  EXPECT_EQ(refusal_with("LOCAL_RANK", "4"),
            "LOCAL_RANK: 4 is not below LOCAL_WORLD_SIZE, which is 4");
  EXPECT_EQ(refusal_with("GROUP_RANK", "2"),
            "GROUP_RANK: 2 is not below GROUP_WORLD_SIZE, which is 2");
}

TEST(WorkerInfo, TheAgentStoreIsOnForTheExactTextTrueOnly) {
  Variables variables = launched();
  for (const std::string text : {"False", "true", "1", ""}) {
    variables["TORCHELASTIC_USE_AGENT_STORE"] = text;
    EXPECT_FALSE(worker_info_from(in(variables)).use_agent_store) << text;
  }
}

TEST(WorkerInfo, JoiningAGroupNeedsNoLocalRank) {
  const WorkerInfo info = rendezvous_info_from(
      in({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "1"}}));
  EXPECT_EQ(info.world_size, 1);
  EXPECT_EQ(info.restart_count, 0);
}

}  // namespace
}  // namespace distrun
