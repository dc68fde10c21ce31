#include "launcher/hosts/hosts_job.h"

#include "tests/launcher/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distrun::launcher {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

Result<HostsJob> make(const Words& words, const Environment& environment = {}) {
  const std::vector<std::string_view> views(words.begin(), words.end());
  const auto options = parse_options(views, environment);
  if (!options) return options.error();
  EXPECT_TRUE(names_hosts(*options));
  return make_hosts_job(*options, views, environment,
                        {.working_folder = "/work here",
                         .own_path = "/opt/distrun",
                         .version = "1.0",
                         .fresh_id = "fresh",
                         .fresh_secret = "MARKTOKEN"});
}

std::string why(const Words& words, const Environment& environment = {}) {
  const auto job = make(words, environment);
  return job ? "it was taken" : job.error().detail;
}

TEST(HostsJob, EachHostIsToldItsRankItsWorkersAndTheJob) {
  const auto job =
      make({"--hosts", "a,ann@b:8", "--max-restarts", "3", "-r3", "x.py", "--lr", "a b"});
  ASSERT_TRUE(job);
  EXPECT_THAT(job->orders[0].arguments,
              ElementsAre("--max-restarts=3", "--redirects=3", "--nnodes=2:2", "--rdzv-id=fresh",
                          "--shutdown-timeout=30", "--node-rank=0", "--", "x.py", "--lr", "a b"));
  EXPECT_THAT(job->orders[1].arguments,
              ElementsAre("--max-restarts=3", "--redirects=3", "--nnodes=2:2", "--rdzv-id=fresh",
                          "--shutdown-timeout=30", "--nproc-per-node=8", "--node-rank=1", "--",
                          "x.py", "--lr", "a b"));
  EXPECT_EQ(job->orders[1].name, "b");
  EXPECT_EQ(job->orders[1].folder, "/work here");
  EXPECT_THAT(job->plan.names, ElementsAre("a", "ann@b"));
  EXPECT_EQ(job->plan.min_hosts, 2U);
  EXPECT_TRUE(job->plan.find_meeting_place);
}

TEST(HostsJob, TheMeetingPlaceStandsBeforeWhatTheUserSaid) {
  HostOrder order;
  order.arguments = {"--rdzv-backend=static", "--", "x.py"};
  EXPECT_THAT(at(order, {"fd77::1", 20000}).arguments,
              ElementsAre("--rdzv-backend=c10d", "--rdzv-endpoint=[fd77::1]:20000",
                          "--rdzv-backend=static", "--", "x.py"));
}

TEST(HostsJob, VariablesThatAreOptionsAreSentAsOptions) {
  const auto job = make({"--hosts", "a", "x.py"}, {{"PET_NPROC_PER_NODE", "4"},
                                                   {"PET_NO_PYTHON", "1"},
                                                   {"PET_MODULE", "0"},
                                                   {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}});
  ASSERT_TRUE(job);
  EXPECT_THAT(job->orders[0].arguments,
              ElementsAre("--nproc-per-node=4", "--no-python", "--nnodes=1:1", "--rdzv-id=fresh",
                          "--shutdown-timeout=7", "--", "x.py"));
  EXPECT_EQ(job->plan.grace, std::chrono::seconds(7));
}

TEST(HostsJob, OnlyVariablesThatWereNamedAreSent) {
  const auto job =
      make({"--hosts", "a,b", "--env", "A", "--env", "B=x=y", "x.py"}, {{"A", "1"}, {"C", "3"}});
  ASSERT_TRUE(job);
  EXPECT_THAT(job->orders[0].environment,
              ElementsAre(std::pair(std::string("A"), std::string("1")),
                          std::pair(std::string("B"), std::string("x=y"))));
  EXPECT_EQ(why({"--hosts", "a", "--env", "A", "x.py"}),
            "--env: 'A' is not set here; give it a value: --env A=VALUE");
  EXPECT_EQ(why({"--hosts", "a", "--env", "DISTRUN_TOKEN=x", "x.py"}),
            "--env: DISTRUN_TOKEN goes to the hosts by itself");
}

TEST(HostsJob, TheTokenIsTheUsersOrAFreshOneAndIsOnNoCommandLine) {
  const auto fresh = make({"--hosts", "a,b", "x.py"});
  ASSERT_TRUE(fresh);
  EXPECT_EQ(fresh->orders[0].mark, "MARK");
  EXPECT_EQ(fresh->orders[0].token, "TOKEN");
  const auto own = make({"--hosts", "a,b", "x.py"}, {{"DISTRUN_TOKEN", "mine"}, {"HOME", "/h"}});
  ASSERT_TRUE(own);
  EXPECT_EQ(own->orders[0].token, "mine");
  EXPECT_THAT(own->ssh[0], Not(Contains(HasSubstr("mine"))));
  EXPECT_THAT(own->ssh_environment, ElementsAre(std::pair(std::string("HOME"), std::string("/h"))));
}

TEST(HostsJob, AnEndpointOfTheUsersIsLeftAlone) {
  const auto job =
      make({"--hosts", "a,b", "--rdzv-backend", "c10d", "--rdzv-endpoint", "d:1", "x.py"});
  ASSERT_TRUE(job);
  EXPECT_FALSE(job->plan.find_meeting_place);
  EXPECT_EQ(job->orders[0].token, "");
  EXPECT_THAT(job->orders[0].arguments, Contains("--rdzv-endpoint=d:1"));
}

TEST(HostsJob, MoreHostsThanNodesAreSparesWithoutARank) {
  const auto job = make({"--hosts", "a,b,c", "--nnodes", "1:2", "x.py"});
  ASSERT_TRUE(job);
  EXPECT_EQ(job->plan.min_hosts, 1U);
  EXPECT_THAT(job->orders[1].arguments, Contains("--node-rank=1"));
  EXPECT_THAT(job->orders[2].arguments, Not(Contains(HasSubstr("--node-rank"))));
}

TEST(HostsJob, WhatCannotBeIsRefusedInWords) {
  EXPECT_EQ(why({"--hosts", "a,b", "--nnodes", "3", "x.py"}), "--nnodes: 3, but there are 2 hosts");
  EXPECT_EQ(
      why({"--hosts", "a,b", "--nnodes", "1", "x.py"}),
      "--nnodes: 1, but there are 2 hosts; a job that may take another's place is 1:2 or more");
  EXPECT_EQ(why({"--hosts", "a", "--hostfile", "f", "x.py"}),
            "--hosts and --hostfile cannot be given together");
  EXPECT_EQ(
      why({"--hosts", "a", "--standalone", "x.py"}),
      "--standalone and --hosts cannot be given together: it is for a job of this node alone");
  EXPECT_EQ(
      why({"--hosts", "a", "--node-rank", "0", "x.py"}),
      "--node-rank and --hosts cannot be given together: the order of the hosts is their rank");
  EXPECT_EQ(why({"--hosts", "a", "--ssh-command", "ssh 'x", "x.py"}),
            "--ssh-command: a quote that is not closed: 'ssh 'x'");
  EXPECT_EQ(why({"--hostfile", "/no/such", "x.py"}), "--hostfile: no such file: '/no/such'");
}

TEST(HostsJob, TheFileIsReadAndNamed) {
  const TempFolder folder;
  folder.write("hosts", "a slots=2\nb\n");
  const auto job = make({"--hostfile", folder.path("hosts"), "x.py"});
  ASSERT_TRUE(job);
  EXPECT_THAT(job->plan.names, ElementsAre("a", "b"));
  folder.write("bad", "a b\n");
  EXPECT_EQ(why({"--hostfile", folder.path("bad"), "x.py"}),
            "--hostfile: " + folder.path("bad") +
                ": line 1: 'b': only slots=N may stand behind the host");
}

}  // namespace
}  // namespace distrun::launcher
