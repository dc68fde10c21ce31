#include "agent/core/worker_env.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace distrun::agent {
namespace {

using Variables = std::map<std::string, std::string>;

Variables variables(const EnvBlock& block) {
  Variables found;
  for (const char* const* entry = block.envp(); *entry; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    const bool fresh = found.emplace(text.substr(0, equals), text.substr(equals + 1)).second;
    EXPECT_TRUE(fresh) << "twice: " << text;
  }
  EXPECT_EQ(found.size(), block.size());
  return found;
}

Spec spec_of(int nproc) {
  Spec spec;
  spec.run_id = "job 7";
  spec.role = "trainer";
  spec.nproc = nproc;
  spec.max_restarts = 3;
  return spec;
}

// Node 1 of 3; the nodes before it have 4 workers.
Assignment assignment() {
  Assignment a;
  a.generation = Generation{5};
  a.node_rank = NodeRank{1};
  a.node_count = 3;
  a.base_rank = Rank{4};
  a.world_size = 8;
  a.base_role_rank = 1;
  a.role_world_size = 3;
  a.master_addr = "10.0.0.1";
  a.master_port = 41000;
  a.restart_count = 2;
  return a;
}

// The table of torchrun's worker environment.
TEST(WorkerEnv, IsTorchrunsTable) {
  const WorkerEnvironment environment(spec_of(2), assignment());
  const Variables expected = {
      {"RANK", "5"},
      {"LOCAL_RANK", "1"},
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "3"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"WORLD_SIZE", "8"},
      {"ROLE_NAME", "trainer"},
      {"ROLE_RANK", "2"},
      {"ROLE_WORLD_SIZE", "3"},
      {"MASTER_ADDR", "10.0.0.1"},
      {"MASTER_PORT", "41000"},
      {"TORCHELASTIC_RESTART_COUNT", "2"},
      {"TORCHELASTIC_MAX_RESTARTS", "3"},
      {"TORCHELASTIC_RUN_ID", "job 7"},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TORCHELASTIC_ERROR_FILE", "/tmp/logs/1/error.json"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"OMP_NUM_THREADS", "1"},
  };
  EXPECT_EQ(variables(environment.of(LocalRank{1}, "/tmp/logs/1/error.json")), expected);
}

TEST(WorkerEnv, KeepsWhatTheLauncherHad) {
  Spec spec = spec_of(2);
  spec.environment = {{"PATH", "/bin"},
                      {"EMPTY", ""},
                      {"OMP_NUM_THREADS", "8"},
                      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
                      {"CUDA_VISIBLE_DEVICES", "2,3"}};
  const WorkerEnvironment environment(spec, assignment());
  Variables found = variables(environment.of(LocalRank{0}, ""));
  EXPECT_EQ(found["PATH"], "/bin");
  EXPECT_EQ(found.at("EMPTY"), "");
  EXPECT_EQ(found["OMP_NUM_THREADS"], "8");
  EXPECT_EQ(found["TORCH_NCCL_ASYNC_ERROR_HANDLING"], "0");
  EXPECT_EQ(found["CUDA_VISIBLE_DEVICES"], "2,3");
}

TEST(WorkerEnv, LaysItsOwnOverWhatTheLauncherHad) {
  Spec spec = spec_of(1);
  spec.environment = {{"RANK", "77"}, {"MASTER_PORT", "1"}, {"TORCHELASTIC_ERROR_FILE", "/outer"}};
  const WorkerEnvironment environment(spec, assignment());
  Variables found = variables(environment.of(LocalRank{0}, "/inner"));
  EXPECT_EQ(found["RANK"], "4");
  EXPECT_EQ(found["MASTER_PORT"], "41000");
  EXPECT_EQ(found["TORCHELASTIC_ERROR_FILE"], "/inner");
}

TEST(WorkerEnv, FlightRecordsGoIntoTheFolderOfThisRound) {
  Spec spec = spec_of(1);
  spec.environment = {{"DISTRUN_FLIGHT_RECORDER_DIR", "/base"}};
  const WorkerEnvironment environment(spec, assignment(), "/base/job/round_1");
  EXPECT_EQ(variables(environment.of(LocalRank{0}, "")).at("DISTRUN_FLIGHT_RECORDER_DIR"),
            "/base/job/round_1");
}

TEST(WorkerEnv, TheLastOfTwoEntriesOfOneNameCounts) {
  Spec spec = spec_of(1);
  spec.environment = {{"A", "first"}, {"A", "last"}};
  const WorkerEnvironment environment(spec, assignment());
  EXPECT_EQ(variables(environment.of(LocalRank{0}, ""))["A"], "last");
}

TEST(WorkerEnv, OneWorkerAloneMayHaveAllThreads) {
  const WorkerEnvironment environment(spec_of(1), assignment());
  EXPECT_FALSE(variables(environment.of(LocalRank{0}, "")).contains("OMP_NUM_THREADS"));
}

TEST(WorkerEnv, ABlockMayBeMoved) {
  const WorkerEnvironment environment(spec_of(2), assignment());
  EnvBlock first = environment.of(LocalRank{0}, "/a");
  const EnvBlock second = std::move(first);
  EXPECT_EQ(variables(second)["RANK"], "4");
}

// ---- virtual local rank ------------------------------------------------------------------------

TEST(WorkerEnv, VirtualRankIsZeroForAllWithOneDeviceEach) {
  Spec spec = spec_of(2);
  spec.virtual_local_rank = true;
  spec.environment = {{"CUDA_VISIBLE_DEVICES", "GPU-a, GPU-b"}};
  const WorkerEnvironment environment(spec, assignment());
  Variables found = variables(environment.of(LocalRank{1}, ""));
  EXPECT_EQ(found["LOCAL_RANK"], "0");
  EXPECT_EQ(found["RANK"], "5");
  EXPECT_EQ(found["CUDA_VISIBLE_DEVICES"], "GPU-b");
}

TEST(WorkerEnv, VirtualRankWithoutAListCountsDevices) {
  Spec spec = spec_of(2);
  spec.virtual_local_rank = true;
  const WorkerEnvironment environment(spec, assignment());
  EXPECT_EQ(variables(environment.of(LocalRank{1}, ""))["CUDA_VISIBLE_DEVICES"], "1");
}

TEST(WorkerEnv, VirtualRankWithTooFewDevicesIsRefusedInWords) {
  Spec spec = spec_of(3);
  spec.virtual_local_rank = true;
  spec.environment = {{"CUDA_VISIBLE_DEVICES", "0,1"}};
  const auto problem = virtual_rank_problem(spec);
  ASSERT_TRUE(problem);
  EXPECT_EQ(
      problem->detail,
      "--virtual-local-rank: CUDA_VISIBLE_DEVICES lists 2 devices, too few for 3 workers: 0,1");
}

TEST(WorkerEnv, TooFewDevicesAreNoProblemWithoutVirtualRank) {
  Spec spec = spec_of(3);
  spec.environment = {{"CUDA_VISIBLE_DEVICES", "0"}};
  EXPECT_FALSE(virtual_rank_problem(spec));
}

// ---- arguments ---------------------------------------------------------------------------------

std::string substituted(const std::string& argument) {
  Command command;
  command.argv = {"python3", argument};
  return worker_arguments(command, LocalRank{12}).back();
}

TEST(WorkerArguments, BothSpellingsOfTheMacroAreReplaced) {
  EXPECT_EQ(substituted("${local_rank}"), "12");
  EXPECT_EQ(substituted("--gpu=$local_rank,x"), "--gpu=12,x");
  EXPECT_EQ(substituted("$local_rank/${local_rank}"), "12/12");
}

TEST(WorkerArguments, OtherDollarsStay) {
  EXPECT_EQ(substituted("$HOME ${PATH} $ 5$"), "$HOME ${PATH} $ 5$");
  EXPECT_EQ(substituted("$local_ranks ${local_rank"), "$local_ranks ${local_rank");
  EXPECT_EQ(substituted("$LOCAL_RANK ${ local_rank}"), "$LOCAL_RANK ${ local_rank}");
}

// torchrun makes one dollar of two, which breaks arguments that mean two.
TEST(WorkerArguments, TwoDollarsStayTwoAndBeginNoMacro) {
  EXPECT_EQ(substituted("a$$b"), "a$$b");
  EXPECT_EQ(substituted("$$local_rank"), "$$local_rank");
  EXPECT_EQ(substituted("$$$local_rank"), "$$12");
}

TEST(WorkerArguments, WhatComesBeforeTheScriptIsNotTouched) {
  Command command;
  command.argv = {"/opt/$local_rank/python3", "-u", "train.py", "$local_rank"};
  command.first_script_argument = 3;
  EXPECT_EQ(worker_arguments(command, LocalRank{1}),
            (std::vector<std::string>{"/opt/$local_rank/python3", "-u", "train.py", "1"}));
}

}  // namespace
}  // namespace distrun::agent
