#include "launcher/slurm_step.h"

#include "launcher/slurm_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace distrun::launcher {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::HasSubstr;

Environment task() {
  return {{"SLURM_JOB_ID", "12"},
          {"SLURM_STEP_ID", "3"},
          {"SLURM_PROCID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_NODELIST", "h[1-3]"},
          {"SLURM_STEP_NUM_NODES", "3"},
          {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"}};
}

struct Asked {
  bool resolves = true;
  std::string address;
  std::optional<Duration> kill_wait = 30s;
};

Result<SlurmPlace> place(std::vector<std::string_view> arguments, const Environment& environment,
                         const Asked& asked = {}) {
  arguments.push_back("train.py");
  const auto options = parse_options(arguments, environment);
  EXPECT_TRUE(options) << (options ? "" : options.error().detail);
  return place_in_slurm(*options, arguments, environment,
                        {.resolves = [&](const std::string&) { return asked.resolves; },
                         .node_address = [&](const std::string&) { return asked.address; },
                         .kill_wait = [&] { return asked.kill_wait; }});
}

Options options(std::vector<std::string_view> arguments, const Environment& environment = task()) {
  const auto placed = place(std::move(arguments), environment);
  EXPECT_TRUE(placed) << (placed ? "" : placed.error().detail);
  return placed ? placed->options : Options{};
}

TEST(SlurmPlace, NeedsNoFlags) {
  const Options o = options({});
  EXPECT_EQ(o.min_nodes, 3);
  EXPECT_EQ(o.max_nodes, 3);
  EXPECT_EQ(o.node_rank, 1);
  EXPECT_EQ(o.backend, Backend::c10d);
  EXPECT_EQ(o.rdzv_id, "slurm-12.3");
  ASSERT_TRUE(o.endpoint);
  EXPECT_EQ(o.endpoint->host, "h1");
  EXPECT_EQ(o.endpoint->port, 20000 + 12 * 131 + 3);
  EXPECT_EQ(o.rdzv_conf.is_host, false);
  EXPECT_EQ(o.nproc.count, 1);
  EXPECT_EQ(o.shutdown_timeout, Duration(27s));
}

TEST(SlurmPlace, TheFirstNodeHosts) {
  Environment first = task();
  first["SLURM_NODEID"] = "0";
  EXPECT_EQ(options({}, first).rdzv_conf.is_host, true);
}

TEST(SlurmPlace, WhatTheUserSaysWins) {
  EXPECT_EQ(options({"--nnodes", "2:3"}).min_nodes, 2);
  EXPECT_EQ(options({"--nnodes", "1"}).max_nodes, 1);
  EXPECT_EQ(options({"--rdzv-id", "mine"}).rdzv_id, "mine");
  EXPECT_EQ(options({"--node-rank", "2"}).node_rank, 2);
  EXPECT_EQ(options({"--shutdown-timeout", "5"}).shutdown_timeout, Duration(5s));
  Environment variable = task();
  variable["PET_NNODES"] = "2";
  EXPECT_EQ(options({}, variable).max_nodes, 2);
}

TEST(SlurmPlace, AMeetingPlaceOfTheUsersIsTakenWhole) {
  const Options o = options({"--master-addr", "10.0.0.1", "--master-port", "29500"});
  EXPECT_EQ(o.backend, Backend::fixed);
  EXPECT_FALSE(o.endpoint);
  EXPECT_EQ(o.node_rank, 1);
  EXPECT_EQ(o.max_nodes, 3);
}

TEST(SlurmPlace, AJobOfSeveralStepsHasItsOwnRanksAndName) {
  const Options o = options({"--nnodes", "6", "--rdzv-endpoint", "d:1", "--rdzv-backend", "c10d"});
  EXPECT_FALSE(o.node_rank);
  EXPECT_FALSE(o.rdzv_id);
}

TEST(SlurmPlace, ASpareNodeHasNoRank) {
  Environment last = task();
  last["SLURM_NODEID"] = "2";
  EXPECT_EQ(options({"--nnodes", "3"}, last).node_rank, 2);
  EXPECT_FALSE(options({"--nnodes", "2"}, last).node_rank);
}

TEST(SlurmPlace, StandaloneSeesNoSlurm) {
  const Options o = options({"--standalone"});
  EXPECT_EQ(o.max_nodes, 1);
  EXPECT_FALSE(o.rdzv_id);
}

TEST(SlurmPlace, ANameThatDoesNotResolveIsAskedOfSlurm) {
  const auto placed = place({}, task(), {.resolves = false, .address = "10.77.0.1"});
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->options.endpoint->host, "10.77.0.1");
}

TEST(SlurmPlace, ANameThatNobodyKnowsIsAnError) {
  const auto placed = place({}, task(), {.resolves = false, .address = ""});
  ASSERT_FALSE(placed);
  EXPECT_THAT(placed.error().detail, HasSubstr("give --rdzv-endpoint"));
}

TEST(SlurmPlace, SeveralTasksOnANodeAreRefused) {
  Environment several = task();
  several["SLURM_STEP_TASKS_PER_NODE"] = "8(x3)";
  const auto placed = place({}, several);
  ASSERT_FALSE(placed);
  EXPECT_THAT(placed.error().detail, HasSubstr("srun --ntasks-per-node=1"));
  EXPECT_TRUE(place({"--standalone"}, several));
}

TEST(SlurmPlace, MoreNodesThanTheStepHasAreRefused) {
  const auto placed = place({"--nnodes", "4"}, task());
  ASSERT_FALSE(placed);
  EXPECT_THAT(placed.error().detail, HasSubstr("has 3 nodes"));
}

TEST(SlurmPlace, ABatchScriptOfSeveralNodesIsWarned) {
  Environment batch = task();
  batch.erase("SLURM_STEP_ID");
  batch["SLURM_NNODES"] = "3";
  const auto placed = place({}, batch);
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->options.max_nodes, 1);
  EXPECT_THAT(placed->warnings, Contains(HasSubstr("this one alone takes part")));
  EXPECT_TRUE(place({"--nnodes", "1"}, batch)->warnings.empty());
}

TEST(SlurmPlace, TheGraceFitsIntoKillWait) {
  EXPECT_EQ(grace_within(30s), Duration(27s));
  EXPECT_EQ(grace_within(5s), Duration(4s));
  EXPECT_EQ(grace_within(1s), Duration(500ms));
  EXPECT_EQ(grace_within(1h), Duration(120s));
}

TEST(SlurmPlace, AutoTakesNoMoreThanTheStepHas) {
  Environment small = task();
  small["SLURM_CPUS_ON_NODE"] = "2";
  small["SLURM_GPUS_ON_NODE"] = "4";
  const auto placed = place({}, small);
  ASSERT_TRUE(placed);
  Machine machine;
  machine.cpus = {0, 1, 2, 3};
  limit_to_step(*placed, machine);
  EXPECT_EQ(usable_cpus(machine), 2);
  EXPECT_EQ(machine.gpus.count, 4);
}

TEST(SlurmCommands, FindTheAddressOfANode) {
  EXPECT_EQ(node_address_in("NodeName=n1 Arch=x86_64 NodeAddr=10.77.0.1 NodeHostName=h1\n"),
            "10.77.0.1");
  EXPECT_EQ(node_address_in("Node n9 not found"), "");
}

TEST(SlurmCommands, FindKillWait) {
  EXPECT_EQ(kill_wait_in("A=1\n#KillWait=9\nkillwait = 45 # s\n"), Duration(45s));
  EXPECT_FALSE(kill_wait_in("A=1\n"));
}

TEST(SlurmCommands, ACommandHasItsLimit) {
  const auto slow = run_command({"sleep", "60"}, 50ms);
  ASSERT_FALSE(slow);
  EXPECT_EQ(slow.error().code, Errc::timeout);
  EXPECT_EQ(run_command({"/no/such"}, 30s).error().code, Errc::not_found);
  EXPECT_EQ(run_command({"sh", "-c", "echo x; exit 3"}, 30s)->status, 3);
}

}  // namespace
}  // namespace distrun::launcher
