#include "rendezvous/protocol/record_json.h"

#include "tests/rendezvous/protocol/messages.h"

#include <gtest/gtest.h>

namespace distrun::rendezvous {
namespace {

TEST(RecordJsonTest, ARecordComesBackAsItWas) {
  Record fresh;
  fresh.job = "fresh";
  for (const Record& record : {some_record(), fresh}) {
    const auto read = record_from_json(record_to_json(record));
    ASSERT_TRUE(read) << read.error().detail;
    EXPECT_EQ(*read, record);
  }
}

TEST(RecordJsonTest, ARecordIsOneLine) {
  EXPECT_EQ(record_to_json(some_record()).find('\n'), std::string::npos);
}

TEST(RecordJsonTest, WhatIsNoRecordIsAnErrorWithTheFieldsName) {
  EXPECT_EQ(record_from_json("").error().detail, "record: not a JSON object");
  EXPECT_EQ(record_from_json(R"({"job":"a","token":"","founder":""})").error().detail,
            "record: terms: missing");
}

TEST(RecordJsonTest, TheStatusShowsEachMemberAndNoSecrets) {
  const TimePoint now = TimePoint() + std::chrono::seconds(100);
  RendezvousState job;
  job.job = "train";
  job.phase = RoundPhase::sealed;
  job.terms = some_terms();
  job.terms.command = "python3 --password=hidden";
  job.last = Fence{1, Generation(2)};
  job.node_count = 1;
  job.restarts = 1;
  MemberState member;
  member.node = "host-a.1.2";
  member.host = "host-a";
  member.address = "10.0.0.1";
  member.nproc = 8;
  member.role = "default";
  member.rank = NodeRank(0);
  member.heard = now - std::chrono::milliseconds(250);
  job.members.push_back(member);
  EXPECT_EQ(status_json({job}, now),
            R"({"jobs":[{"job":"train","phase":"sealed","round":{"epoch":1,"generation":2},)"
            R"("nodes":1,"min_nodes":2,"max_nodes":4,"restarts":1,"max_restarts":3,)"
            R"("has_quorum":true,"members":[{"rank":0,"host":"host-a","node":"host-a.1.2",)"
            R"("address":"10.0.0.1","state":"working","nproc":8,"role":"default",)"
            R"("heard_ms_ago":250,"losses":0,"hosts_coordinator":false}]}]})"
            "\n");
}

TEST(RecordJsonTest, TheStatusOfNoJobsIsAnEmptyList) {
  EXPECT_EQ(status_json({}, TimePoint()), "{\"jobs\":[]}\n");
}

}  // namespace
}  // namespace distrun::rendezvous
