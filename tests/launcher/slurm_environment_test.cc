#include "launcher/slurm_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace distrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What SLURM 22.05 gives task 1 of `srun -N3 --ntasks-per-node=1`.
Environment task() {
  return {{"SLURM_JOB_ID", "12"},
          {"SLURM_STEP_ID", "3"},
          {"SLURM_PROCID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_NNODES", "3"},
          {"SLURM_JOB_NUM_NODES", "3"},
          {"SLURM_JOB_NODELIST", "h[1-3]"},
          {"SLURM_STEP_NODELIST", "h[1-3]"},
          {"SLURM_STEP_NUM_NODES", "3"},
          {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
          {"SLURM_CPUS_ON_NODE", "8"},
          {"SLURM_LAUNCH_NODE_IPADDR", "10.77.1.254"}};
}

Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

SlurmStep step(const Environment& environment) {
  const auto slurm = read_slurm_environment(environment);
  EXPECT_TRUE(slurm) << (slurm ? "" : slurm.error().detail);
  EXPECT_TRUE(slurm && slurm->step);
  return slurm && slurm->step ? *slurm->step : SlurmStep{};
}

std::string refusal(const Environment& environment) {
  const auto slurm = read_slurm_environment(environment);
  EXPECT_FALSE(slurm);
  return slurm ? "" : slurm.error().detail;
}

TEST(SlurmEnvironment, WithoutAJobThereIsNothing) {
  const auto slurm = read_slurm_environment({{"SLURM_NODEID", "0"}});
  ASSERT_TRUE(slurm);
  EXPECT_FALSE(slurm->step);
  EXPECT_EQ(slurm->job_nodes, 0);
}

TEST(SlurmEnvironment, ATaskKnowsItsStep) {
  const SlurmStep found = step(task());
  EXPECT_EQ(found.job, 12U);
  EXPECT_EQ(found.step, 3U);
  EXPECT_THAT(found.nodes, ElementsAre("h1", "h2", "h3"));
  EXPECT_EQ(found.node_rank, 1);
  EXPECT_EQ(found.tasks_on_node_max, 1);
  EXPECT_EQ(found.cpus, 8);
  EXPECT_FALSE(found.gpus);
}

TEST(SlurmEnvironment, TheBatchScriptIsNoTaskThoughItHasARank) {
  Environment batch = task();
  batch.erase("SLURM_STEP_ID");
  batch["SLURM_NODEID"] = batch["SLURM_PROCID"] = "0";
  const auto slurm = read_slurm_environment(batch);
  ASSERT_TRUE(slurm);
  EXPECT_FALSE(slurm->step);
  EXPECT_EQ(slurm->job_nodes, 3);
}

TEST(SlurmEnvironment, TheShellOfSallocIsNoTaskEither) {
  const auto slurm = read_slurm_environment(with(task(), "SLURM_STEP_ID", "4294967290"));
  ASSERT_TRUE(slurm);
  EXPECT_FALSE(slurm->step);
}

TEST(SlurmEnvironment, TheStepsNodesCountAndNotTheJobs) {
  Environment part = with(task(), "SLURM_STEP_NODELIST", "h[2-3]");
  part["SLURM_STEP_NUM_NODES"] = "2";
  EXPECT_THAT(step(part).nodes, ElementsAre("h2", "h3"));
}

TEST(SlurmEnvironment, TheRankIsThatOfTheNodeAndNotOfTheTask) {
  EXPECT_EQ(step(with(task(), "SLURM_PROCID", "0")).node_rank, 1);  // srun -m arbitrary
}

TEST(SlurmEnvironment, SeveralTasksOnAnyNodeAreSeenByAll) {
  EXPECT_EQ(step(with(task(), "SLURM_STEP_TASKS_PER_NODE", "1,3,1")).tasks_on_node_max, 3);
}

TEST(SlurmEnvironment, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(refusal(with(task(), "SLURM_STEP_NODELIST", "h[1-3")),
              HasSubstr("SLURM_STEP_NODELIST: not a list of nodes"));
  EXPECT_THAT(refusal(with(task(), "SLURM_STEP_NUM_NODES", "4")),
              HasSubstr("SLURM_STEP_NUM_NODES: but SLURM_STEP_NODELIST has 3 nodes"));
  EXPECT_THAT(refusal(with(task(), "SLURM_NODEID", "3")), HasSubstr("SLURM_NODEID"));
  EXPECT_THAT(refusal(with(task(), "SLURM_JOB_ID", "x")), HasSubstr("SLURM_JOB_ID: not a number"));
  EXPECT_THAT(refusal(with(task(), "SLURM_STEP_TASKS_PER_NODE", "1(3)")),
              HasSubstr("SLURM_STEP_TASKS_PER_NODE"));
}

TEST(SlurmStep, HasANewNameAfterARequeue) {
  EXPECT_EQ(rendezvous_id(step(task())), "slurm-12.3");
  EXPECT_EQ(rendezvous_id(step(with(task(), "SLURM_RESTART_COUNT", "2"))), "slurm-12.3-restart2");
}

TEST(SlurmStep, StepsOfAJobNeverShareAPort) {
  for (const std::uint64_t job : {std::uint64_t{1}, std::uint64_t{4294967000}}) {
    std::set<std::uint16_t> ports;
    SlurmStep one;
    one.job = job;
    for (one.step = 0; one.step < 10007; ++one.step) {
      const std::uint16_t port = rendezvous_port(one);
      EXPECT_TRUE(port >= 20000 && port < 32768) << port;
      EXPECT_TRUE(ports.insert(port).second) << job << "." << one.step;
    }
  }
}

}  // namespace
}  // namespace distrun::launcher
