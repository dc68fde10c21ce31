#include "launcher/mpi_environment.h"

#include "launcher/slurm_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distrun::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Environment open_mpi(int rank, int size, int on_node) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(on_node)},
          {"PMIX_RANK", std::to_string(rank)}};
}

// As the program does it: SLURM's and MPI's variables together.
Result<SlurmPlace> place(std::vector<std::string_view> arguments, const Environment& environment) {
  arguments.push_back("train.py");
  const auto options = parse_options(arguments, environment);
  EXPECT_TRUE(options) << (options ? "" : options.error().detail);
  return place_in_slurm(*options, arguments, environment,
                        {.resolves = [](const std::string&) { return true; },
                         .node_address = [](const std::string&) { return std::string(); },
                         .kill_wait = [] { return std::optional<Duration>(); }});
}

std::string refusal(std::vector<std::string_view> arguments, const Environment& environment) {
  const auto placed = place(std::move(arguments), environment);
  return placed ? "no refusal" : placed.error().detail;
}

TEST(MpiEnvironment, NothingIsNoTask) {
  const auto task = read_mpi_environment({{"PATH", "/bin"}, {"PMI_PORT", "h1:7"}});
  ASSERT_TRUE(task);
  EXPECT_FALSE(*task);
}

TEST(MpiEnvironment, ReadsEachKindOfMpi) {
  const auto read = [](const Environment& environment) {
    const auto task = read_mpi_environment(environment);
    EXPECT_TRUE(task && *task);
    return task && *task ? **task : MpiTask{};
  };
  const MpiTask ompi = read(open_mpi(3, 8, 4));
  EXPECT_EQ(ompi.rank, 3);
  EXPECT_EQ(ompi.size, 8);
  EXPECT_EQ(ompi.on_node, 4);
  EXPECT_EQ(ompi.seen,
            "OMPI_COMM_WORLD_RANK=3, OMPI_COMM_WORLD_SIZE=8, OMPI_COMM_WORLD_LOCAL_SIZE=4");
  EXPECT_EQ(read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}}).on_node, 2);
  EXPECT_EQ(read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).on_node, std::nullopt);
  EXPECT_EQ(read({{"PMIX_RANK", "5"}}).size, std::nullopt);
}

TEST(MpiEnvironment, AValueThatIsNoNumberIsNamed) {
  EXPECT_THAT(refusal({}, {{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}),
              HasSubstr("OMPI_COMM_WORLD_RANK: not a whole number from 0 up: 'x'"));
  EXPECT_THAT(refusal({}, {{"PMI_RANK", "0"}, {"PMI_SIZE", "0"}}), HasSubstr("PMI_SIZE: not a"));
}

TEST(MpiPlace, SeveralOnANodeAreRefusedInWords) {
  EXPECT_THAT(refusal({}, open_mpi(0, 8, 4)),
              AllOf(HasSubstr("OMPI_COMM_WORLD_SIZE=8"), HasSubstr("4 on this node"),
                    HasSubstr("--map-by ppr:1:node"), HasSubstr("--nproc-per-node 4")));
}

TEST(MpiPlace, OfOneNodeAloneMpirunCanBeLeftOut) {
  EXPECT_THAT(refusal({}, open_mpi(0, 4, 4)),
              HasSubstr("leave mpirun out and use distrun --nproc-per-node 4"));
}

TEST(MpiPlace, OneOnEachNodeTakesItsNodeRank) {
  const auto placed =
      place({"--rdzv-backend", "c10d", "--rdzv-endpoint", "h1:29400"}, open_mpi(1, 2, 1));
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->options.min_nodes, 2);
  EXPECT_EQ(placed->options.max_nodes, 2);
  EXPECT_EQ(placed->options.node_rank, 1);
}

TEST(MpiPlace, WhereToMeetHasToBeGiven) {
  EXPECT_THAT(refusal({}, open_mpi(1, 2, 1)), HasSubstr("give --rdzv-endpoint HOST:PORT"));
}

TEST(MpiPlace, ARankAloneIsAJobOfOneNode) {
  const auto placed = place({}, open_mpi(0, 1, 1));
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->options.max_nodes, 1);
}

TEST(MpiPlace, WhatIsNotToldIsNotGuessed) {
  EXPECT_THAT(refusal({}, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}),
              AllOf(HasSubstr("PMI_RANK=1, PMI_SIZE=2"), HasSubstr("does not say how many")));
  EXPECT_THAT(refusal({}, {{"PMIX_RANK", "0"}}), HasSubstr("does not say how many"));
}

TEST(MpiPlace, StandaloneSeesNoMpi) {
  EXPECT_TRUE(place({"--standalone"}, open_mpi(0, 8, 4)));
}

TEST(MpiPlace, WhoIsToldAllIsLeftAlone) {
  const auto placed = place({"--nnodes", "4", "--node-rank", "2", "--rdzv-backend", "c10d",
                             "--rdzv-endpoint", "localhost:29400"},
                            open_mpi(1, 4, 4));
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->options.node_rank, 2);
}

TEST(MpiPlace, OfSrunItsOwnVariablesAreTaken) {
  const auto placed = place({}, {{"PMI_RANK", "1"},
                                 {"PMI_SIZE", "2"},
                                 {"SLURM_JOB_ID", "12"},
                                 {"SLURM_STEP_ID", "0"},
                                 {"SLURM_PROCID", "1"},
                                 {"SLURM_NODEID", "1"},
                                 {"SLURM_STEP_NODELIST", "h[1-2]"}});
  ASSERT_TRUE(placed) << placed.error().detail;
  EXPECT_EQ(placed->options.rdzv_id, "slurm-12.0");
}

TEST(MpiPlace, OfMpirunInAnAllocationSlurmsStepIsNot) {
  Environment environment = open_mpi(0, 4, 2);
  environment.insert({{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}});
  EXPECT_THAT(refusal({}, environment), HasSubstr("OMPI_COMM_WORLD_RANK=0"));
}

}  // namespace
}  // namespace distrun::launcher
