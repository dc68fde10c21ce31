// Member when the coordinator was hosted by an agent and is lost: succession, votes and yielding.
// Node "a" hosts at the endpoint; "b", "c" and "d" come after it, in that order.
#include "tests/rendezvous/core/member_fixture.h"

namespace distrun::rendezvous {
namespace {

using member::GaveUp;
using member::NoAnswer;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const Fence kRound = round_of(0, 3);

Welcome place(int rank) {
  return MemberFixture::welcome(kRound, rank, {"a", "b", "c", "d"});
}

class SecondTest : public testing::Test, protected MemberFixture {
 protected:
  SecondTest() : MemberFixture(heir("b")) { join_round(place(1)); }
};

TEST_F(SecondTest, SendsWhoeverAsksToItsCoordinator) {
  MemberFixture other(heir("b"));
  EXPECT_THAT(other.ask(), ElementsAre("dial 1 head:29400", "direct: not yet"));
  other.connected(1);
  EXPECT_THAT(other.receive(1, place(1)), ElementsAre("placed in 0/3", "direct to head:29400"));
}

TEST_F(SecondTest, AsksOnlyTheOldCoordinatorWhileThatMayCountOnIt) {
  wait(2s);
  ping(1, 2, kRound);
  wait(1s);
  EXPECT_THAT(closed(1), ElementsAre("dial 2 head:29400", "direct: not yet"));
  EXPECT_THAT(no_answer(2, NoAnswer::unreachable), IsEmpty());
  for (const std::string& line : wait(1900ms)) EXPECT_THAT(line, HasSubstr("head:29400"));
}

TEST_F(SecondTest, TurnsToTheOthersWhenThreeBeatsHavePassedSinceThePingItAnswered) {
  wait(2s);
  ping(1, 2, kRound);
  wait(2500ms);
  closed(1);  // 500 ms are left
  EXPECT_THAT(wait(499ms), IsEmpty());
  EXPECT_THAT(wait(1ms),
              ElementsAre("dial 3 addr-a:7000", "dial 4 addr-c:7000", "dial 5 addr-d:7000"));
}

TEST_F(SecondTest, TurnsToTheOthersAtOnceIfTheOldOnesProcessIsDead) {
  wait(2s);
  ping(1, 2, kRound);
  wait(2s);
  closed(1);
  EXPECT_THAT(refused_by_host(2),
              ElementsAre("dial 3 addr-a:7000", "dial 4 addr-c:7000", "dial 5 addr-d:7000"));
}

TEST_F(SecondTest, HostsWhenNobodyBeforeItIsThere) {
  closed(1);
  wait(500ms);
  refused_by_host(2);
  EXPECT_THAT(refused_by_host(3), ElementsAre("host as successor 1", "dial 6 addr-b:7000"));
  EXPECT_TRUE(member.hosting());
  EXPECT_EQ(hosted->record.job, "job");
  EXPECT_EQ(hosted->record.last, kRound);
  EXPECT_EQ(hosted->record.node_count, 4);
  EXPECT_EQ(hosted->record.coordinator, "a");
  EXPECT_THAT(hosted->record.hosts, ElementsAre("host-a", "host-b", "host-c", "host-d"));
  EXPECT_THAT(connected(6),
              ElementsAre("to 6: join from 10.0.0.2, hosts, held 0/3 rank 1 running"));
}

class HostTest : public SecondTest {
 protected:
  HostTest() {
    closed(1);
    wait(500ms);
    refused_by_host(2);
    refused_by_host(3);
    refused_by_host(4);
    refused_by_host(5);
    connected(6);
    ping(6, 1, kRound, false);
    // The first look around: the endpoint, a, c, d.
    for (int dial = 7; dial <= 10; ++dial) refused_by_host(dial);
    said.clear();
  }
  // The dial to `address` in a look at the others.
  int look(const std::string& address) {
    for (const std::string& line : wait(1s)) {
      if (line.ends_with(" " + address)) return std::stoi(line.substr(5));
    }
    ADD_FAILURE() << address << " is not looked at";
    return 0;
  }
};

TEST_F(HostTest, LooksAtAllOthersEverySecondWhileItHasNoQuorum) {
  EXPECT_THAT(wait(1s), ElementsAre("dial 11 head:29400", "dial 12 addr-a:7000",
                                    "dial 13 addr-c:7000", "dial 14 addr-d:7000"));
}

TEST_F(HostTest, YieldsToOneThatHasAQuorum) {
  const int dial = look("addr-d:7000");
  EXPECT_THAT(connected(dial), ElementsAre("to 14: join from 10.0.0.2, held 0/3 rank 1 running"));
  EXPECT_THAT(ping(dial, 5, kRound, true),
              ElementsAre("stop hosting", "hang up 6", "hang up 11", "hang up 12", "hang up 13",
                          "to 14: pong 5", "direct to addr-d:7000"));
  EXPECT_FALSE(member.hosting());
}

TEST_F(HostTest, YieldsAlsoWhileItsOwnLineIsBroken) {
  const int dial = look("addr-d:7000");
  connected(dial);
  closed(6);
  ASSERT_EQ(member.phase(), MemberPhase::pausing);
  ping(dial, 5, kRound, true);
  EXPECT_FALSE(member.hosting());
  EXPECT_EQ(member.coordinator(), (Contact{"addr-d", 7000}));
}

TEST_F(HostTest, HearsThatItsRoundIsOverFromTheOneItYieldsTo) {
  const int dial = look("addr-d:7000");
  connected(dial);
  Disband disband;
  disband.round = kRound;
  disband.why = "a worker failed";
  EXPECT_THAT(receive(dial, disband), IsEmpty());
  EXPECT_THAT(ping(dial, 5, kRound, true), Contains("disbanded 0/3"));
}

TEST_F(HostTest, YieldsToAnEarlierOneWithoutAQuorum) {
  const int dial = look("addr-a:7000");
  connected(dial);
  EXPECT_THAT(ping(dial, 5, kRound, false), Contains("stop hosting"));
}

TEST_F(HostTest, DoesNotYieldToALaterOneWithoutAQuorumAndDoesNotAnswerItsPing) {
  const int dial = look("addr-c:7000");
  connected(dial);
  EXPECT_THAT(ping(dial, 5, kRound, false), ElementsAre("hang up 13"));
  EXPECT_TRUE(member.hosting());
}

TEST_F(HostTest, YieldsToOneThatGivesAPlaceInTheNextRound) {
  ended(kRound);
  const int dial = look("addr-d:7000");
  connected(dial);
  EXPECT_THAT(receive(dial, welcome(round_of(19, 4), 2, {"d", "c", "b"})),
              Contains("placed in 19/4"));
  EXPECT_FALSE(member.hosting());
}

TEST_F(HostTest, FollowsWhenOthersSendItToTheCoordinator) {
  const int dial = look("addr-c:7000");
  connected(dial);
  refused_by_host(14);
  EXPECT_THAT(refuse(dial, RefusalCode::elsewhere, {"addr-d", 7000}),
              ElementsAre("hang up 13", "dial 15 addr-d:7000"));
}

TEST_F(HostTest, KeepsHostingWhenOthersSendItToItself) {
  const int dial = look("addr-c:7000");
  connected(dial);
  EXPECT_THAT(refuse(dial, RefusalCode::elsewhere, {"addr-b", 7000}), ElementsAre("hang up 13"));
  EXPECT_TRUE(member.hosting());
}

TEST_F(HostTest, LooksOnlyAtTheEndpointOnceItHasAQuorum) {
  ping(6, 2, kRound, true);
  EXPECT_THAT(wait(1s), ElementsAre("dial 11 head:29400"));
  EXPECT_THAT(connected(11),
              ElementsAre("to 11: join from 10.0.0.2, hosts, held 0/3 rank 1 running"));
}

TEST_F(HostTest, DoesNotYieldOnceItHasAQuorum) {
  const int dial = look("addr-a:7000");
  connected(dial);
  ping(6, 2, kRound, true);
  EXPECT_THAT(ping(dial, 5, kRound, true), ElementsAre("hang up 12"));
  EXPECT_TRUE(member.hosting());
}

TEST_F(HostTest, GivesUpWithoutAQuorumAfterThirtySeconds) {
  Lines lines;
  for (std::uint64_t beat = 2; !no_round && beat < 40; ++beat) {
    for (std::string& line : wait(1s)) lines.push_back(std::move(line));
    if (!no_round) ping(6, beat, kRound, false);
  }
  ASSERT_TRUE(no_round);
  EXPECT_EQ(no_round->reason, GaveUp::closed);
  EXPECT_THAT(no_round->why, HasSubstr("in 30 s no majority of the 4 nodes of round 3"));
  EXPECT_THAT(no_round->why, HasSubstr("takeover=any"));
}

class ThirdTest : public testing::Test, protected MemberFixture {
 protected:
  ThirdTest() : MemberFixture(heir("c")) {
    join_round(place(2));
    closed(1);
    wait(500ms);
    refused_by_host(2);  // then 3: a, 4: b, 5: d
    said.clear();
  }
};

TEST_F(ThirdTest, AttachesToTheOneBeforeIt) {
  connected(4);
  ping(4, 1, kRound, false);
  EXPECT_EQ(member.coordinator(), (Contact{"addr-b", 7000}));
  EXPECT_THAT(said, ElementsAre("the coordinator is now at addr-b:7000"));
}

TEST_F(ThirdTest, ComesAgainToOneThatIsNotYetTheCoordinatorInsteadOfHosting) {
  refused_by_host(3);
  refused_by_host(5);
  connected(4);
  EXPECT_THAT(refuse(4, RefusalCode::not_yet), ElementsAre("hang up 4"));
  EXPECT_EQ(member.phase(), MemberPhase::pausing);
  EXPECT_THAT(wait(500ms), Contains(HasSubstr("addr-b:7000")));
}

TEST_F(ThirdTest, HostsIfNobodyBeforeItIsThere) {
  refused_by_host(3);
  EXPECT_THAT(no_answer(4, NoAnswer::unreachable), Contains("host as successor 2"));
}

TEST_F(ThirdTest, WaitsForTheWordOfOneThatTookTheConnection) {
  connected(5);  // after this node in succession, and perhaps the coordinator by now
  refused_by_host(3);
  EXPECT_THAT(refused_by_host(4), IsEmpty());
  EXPECT_THAT(ping(5, 1, kRound, true), Contains("to 5: pong 1"));
}

TEST_F(ThirdTest, JoinsOneAtATimeTheEarlierFirst) {
  MemberFixture other(heir("c"));
  other.join_round(place(2));
  other.closed(1);
  other.wait(500ms);
  other.refused_by_host(2);
  EXPECT_THAT(other.connected(5), ElementsAre(HasSubstr("to 5: join")));
  EXPECT_THAT(other.connected(4), IsEmpty());
  EXPECT_THAT(other.connected(3), IsEmpty());
  EXPECT_THAT(other.refuse(5, RefusalCode::not_yet),
              ElementsAre("hang up 5", HasSubstr("to 3: join")));
}

TEST_F(ThirdTest, DoesNotVoteForOneThatMissedARound) {
  connected(4);
  EXPECT_THAT(ping(4, 1, round_of(0, 2), true), ElementsAre("hang up 4"));
}

TEST_F(ThirdTest, GoesToTheHeirFirst) {
  MemberFixture other(heir("c"));
  other.join_round(place(2));
  other.receive(1, Disband{kRound, "host-a left", 1, "c"});
  other.closed(1);
  other.wait(500ms);
  EXPECT_THAT(other.refused_by_host(2), Contains("host as successor 2"))
      << "this node is the heir: nobody comes before it";
  EXPECT_EQ(other.hosted->record.coordinator, "c");
}

TEST(SpareTest, LooksForTheSuccessorsOfTheRoundItWaitsBeside) {
  MemberFixture spare(MemberFixture::heir("e"));
  spare.ask();
  spare.connected(1);
  Waiting waiting;
  waiting.spare = true;
  waiting.coordinator = "a";
  waiting.successors = place(1).successors;
  spare.receive(1, waiting);
  spare.closed(1);
  spare.wait(500ms);
  EXPECT_THAT(spare.refused_by_host(2), ElementsAre("dial 3 addr-a:7000", "dial 4 addr-b:7000",
                                                    "dial 5 addr-c:7000", "dial 6 addr-d:7000"));
  for (int dial = 3; dial <= 6; ++dial) spare.refused_by_host(dial);
  EXPECT_EQ(spare.member.phase(), MemberPhase::pausing) << "it is no successor";
}

TEST(TakeoverRuleTest, NeverEndsTheJobWithTheCoordinatorsProcess) {
  MemberLimits limits = MemberFixture::heir("b");
  limits.rule = TakeoverRule::never;
  MemberFixture second(limits);
  second.join_round(place(1));
  second.closed(1);
  second.wait(500ms);
  EXPECT_THAT(second.refused_by_host(2), ElementsAre("no round: closed"));
  EXPECT_THAT(second.no_round->why, HasSubstr("the job ends with it"));
}

TEST(TakeoverRuleTest, NeverWaitsForACoordinatorThatIsOnlyCutOff) {
  MemberLimits limits = MemberFixture::heir("b");
  limits.rule = TakeoverRule::never;
  MemberFixture second(limits);
  second.join_round(place(1));
  second.closed(1);
  second.wait(500ms);
  EXPECT_THAT(second.no_answer(2, NoAnswer::unreachable), IsEmpty());
  second.wait(500ms);
  second.connected(3);
  EXPECT_THAT(second.ping(3, 1, kRound), Contains("to 3: pong 1"));
}

class FirstTest : public testing::Test, protected MemberFixture {
 protected:
  static MemberLimits first() {
    MemberLimits made = heir("a");
    made.hosts = true;
    return made;
  }
  FirstTest() : MemberFixture(first()) { join_round(place(0)); }
};

TEST_F(FirstTest, LooksForTheOthersWhenItsOwnCoordinatorHasLostItsQuorum) {
  EXPECT_THAT(ping(1, 2, kRound, false), ElementsAre("to 1: pong 2"));
  EXPECT_THAT(wait(1s),
              ElementsAre("dial 2 addr-b:7000", "dial 3 addr-c:7000", "dial 4 addr-d:7000"));
}

TEST_F(FirstTest, YieldsToTheOneThatTookOver) {
  ping(1, 2, kRound, false);
  wait(1s);
  connected(2);
  EXPECT_THAT(ping(2, 1, round_of(17, 4), true),
              ElementsAre("stop hosting", "hang up 1", "hang up 3", "hang up 4", "to 2: pong 1",
                          "disbanded 0/3", "direct to addr-b:7000"));
}

TEST_F(FirstTest, DoesNotYieldToACandidate) {
  ping(1, 2, kRound, false);
  wait(1s);
  connected(2);
  EXPECT_THAT(ping(2, 1, kRound, false), ElementsAre("hang up 2"));
}

TEST_F(FirstTest, ComesBackToItsOwnCoordinatorOnly) {
  wait(2s);
  ping(1, 2, kRound);
  wait(1s);
  closed(1);
  EXPECT_THAT(no_answer(2, NoAnswer::unreachable), IsEmpty());
  for (const std::string& line : wait(5s)) EXPECT_THAT(line, Not(HasSubstr("addr-")));
}

}  // namespace
}  // namespace distrun::rendezvous
