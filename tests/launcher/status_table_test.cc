#include "launcher/status_table.h"

#include "launcher/status.h"
#include "rendezvous/protocol/record_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distrun::launcher {
namespace {

using namespace rendezvous;
using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

constexpr TimePoint kNow{1000s};

MemberState member(const std::string& host, std::optional<int> rank, Duration heard) {
  MemberState member;
  member.node = host + ".1.1";
  member.host = host;
  member.address = "10.0.0.1" + host;
  member.nproc = 4;
  member.role = "default";
  if (rank) member.rank = NodeRank(*rank);
  member.waiting = !rank;
  member.heard = kNow - heard;
  return member;
}

RendezvousState job(const std::string& name) {
  RendezvousState job;
  job.job = name;
  job.phase = RoundPhase::sealed;
  job.terms.min_nodes = 2;
  job.terms.max_nodes = 4;
  job.terms.max_restarts = 3;
  job.last = {0, Generation(3)};
  job.node_count = 2;
  job.restarts = 1;
  job.members = {member("c", std::nullopt, 240ms), member("long-name", 1, 950ms),
                 member("a", 0, 31ms)};
  job.members[2].hosts = true;
  job.members[1].losses = 1;
  return job;
}

std::string table(const std::vector<RendezvousState>& jobs, std::string_view only = "") {
  const auto text = status_table(status_json(jobs, kNow), only);
  return text ? *text : "error: " + text.error().detail;
}

TEST(StatusTable, ShowsAJobAndItsMembersByRank) {
  EXPECT_EQ(
      table({job("train")}),
      "train  sealed  round 3  2 nodes of 2:4  restarts 1 of 3\n"
      "  RANK  HOST       ADDRESS            STATE    WORKERS  LAST BEAT\n"
      "  0     a          10.0.0.1a          working  4        0.0 s ago  hosts the coordinator\n"
      "  1     long-name  10.0.0.1long-name  working  4        0.9 s ago  lost 1 time\n"
      "  -     c          10.0.0.1c          waiting  4        0.2 s ago\n");
}

TEST(StatusTable, ShowsTheLastFailureAndHowTheJobEnded) {
  RendezvousState ended = job("train");
  ended.phase = RoundPhase::over;
  ended.last_failure = Failure{"b", Rank(5), LocalRank(1), 77, "exited with status 3", 3, 4ms};
  ended.over = Over{};
  ended.over->result = OverResult::failed;
  ended.over->exit_code = 3;
  ended.over->why = "no restart\nis left";
  const std::string text = table({ended});
  EXPECT_THAT(text, HasSubstr("  last failure: rank 5 (local rank 1, pid 77) on b: exited with "
                              "status 3\n"));
  EXPECT_THAT(text, HasSubstr("  over (failed, exit status 3): no restart"));
  EXPECT_THAT(text, Not(HasSubstr("restart\nis"))) << "one line, whatever a node wrote";
}

TEST(StatusTable, AJobThatForms) {
  RendezvousState forming = job("train");
  forming.phase = RoundPhase::gathering;
  forming.last = {};
  forming.terms.min_nodes = 4;
  forming.members.clear();
  EXPECT_EQ(table({forming}),
            "train  gathering  no round yet of 4  restarts 1 of 3\n  no members\n");
}

TEST(StatusTable, NamesTheEpochAndAMissingQuorum) {
  RendezvousState taken_over = job("train");
  taken_over.last = {16, Generation(3)};
  taken_over.has_quorum = false;
  EXPECT_THAT(table({taken_over}), HasSubstr("round 16.3"));
  EXPECT_THAT(table({taken_over}), HasSubstr("NO QUORUM"));
}

TEST(StatusTable, OneJobOfMany) {
  EXPECT_EQ(table({}), "no jobs\n");
  EXPECT_THAT(table({job("a"), job("b")}), HasSubstr("\n\nb  sealed"));
  EXPECT_THAT(table({job("a"), job("b")}, "b"), Not(HasSubstr("a  sealed")));
  EXPECT_EQ(table({job("a"), job("b")}, "c"), "error: no job 'c' there; it has a, b");
  EXPECT_EQ(table({}, "c"), "error: no job 'c' there; it has none");
}

TEST(StatusTable, JsonOfOneJobHoldsThatOneOnly) {
  const auto json = status_json_of(status_json({job("a"), job("b")}, kNow), "b");
  ASSERT_TRUE(json);
  EXPECT_THAT(*json, HasSubstr(R"({"jobs":[{"job":"b",)"));
  EXPECT_THAT(*json, Not(HasSubstr(R"("job":"a")")));
  EXPECT_EQ(json->back(), '\n');
}

TEST(StatusTable, RefusesWhatNoCoordinatorSays) {
  for (const char* text : {"", "<html>", "[]", "{}", R"({"jobs":[{"job":1}]})", R"({"jobs":{}})"}) {
    const auto shown = status_table(text, "");
    ASSERT_FALSE(shown) << text;
    EXPECT_THAT(shown.error().detail, HasSubstr("is not understood")) << text;
  }
}

// ---- the command line --------------------------------------------------------------------------

Result<StatusOptions> parse(const std::vector<std::string_view>& arguments,
                            const Environment& environment = {}) {
  return parse_status_options(arguments, environment);
}

TEST(StatusOptions, AnEndpointAndAJob) {
  const auto options = parse({"--rdzv_endpoint=[::1]:77", "--job", "train", "--json", "--watch"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->endpoint, (Endpoint{"::1", 77}));
  EXPECT_EQ(options->job, "train");
  EXPECT_TRUE(options->json);
  EXPECT_TRUE(options->watch);
}

TEST(StatusOptions, TheEndpointMayStandInTheEnvironmentAndItsPortBeLeftOut) {
  const auto options = parse({}, {{"PET_RDZV_ENDPOINT", "host-a"}});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->endpoint, (Endpoint{"host-a", 29400}));
}

TEST(StatusOptions, WhatIsWrongIsNamed) {
  const auto complaint = [](const std::vector<std::string_view>& arguments) {
    const auto options = parse(arguments);
    return options ? "taken" : options.error().detail;
  };
  EXPECT_THAT(complaint({}), HasSubstr("give --rdzv-endpoint"));
  EXPECT_THAT(complaint({"--rdzv-endpoint"}), HasSubstr("--rdzv-endpoint: needs a value"));
  EXPECT_THAT(complaint({"--rdzv-endpoint", "a:b:c"}), HasSubstr("--rdzv-endpoint: "));
  EXPECT_THAT(complaint({"--json=1"}), HasSubstr("--json: takes no value"));
  EXPECT_THAT(complaint({"train.py"}), HasSubstr("run as ./status"));
}

}  // namespace
}  // namespace distrun::launcher
