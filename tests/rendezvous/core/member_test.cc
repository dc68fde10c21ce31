// Member with a coordinator that stays where it is: joining, rounds, losing it and coming back.
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

const Fence kNone;
const Fence kFirst = round_of(0, 0);

class MemberTest : public testing::Test, protected MemberFixture {
 protected:
  MemberTest() : MemberFixture(limits()) {}
};

TEST_F(MemberTest, DialsTheEndpointWhenFirstAskedAndSaysItsJoinThere) {
  EXPECT_THAT(ask(), ElementsAre("dial 1 head:29400"));
  EXPECT_THAT(connected(1), ElementsAre("to 1: join from 10.0.0.2"));
  EXPECT_EQ(member.phase(), MemberPhase::dialing);
}

TEST_F(MemberTest, IsAttachedByTheFirstWord) {
  ask();
  connected(1);
  EXPECT_THAT(receive(1, Waiting{}), ElementsAre("waiting: 0 present"));
  EXPECT_EQ(member.phase(), MemberPhase::attached);
  EXPECT_THAT(ping(1, 8, kNone), ElementsAre("to 1: pong 8"));
  EXPECT_THAT(receive(1, welcome(kFirst)), ElementsAre("placed in 0/0"));
}

TEST_F(MemberTest, TriesAgainUntilTheStartTimeoutAndThenSaysWhatAnswered) {
  ask();
  int dial = 1;
  while (!no_round) {
    refused_by_host(dial);
    EXPECT_EQ(member.phase(), MemberPhase::pausing);
    for (const std::string& line : wait(500ms)) {
      if (line.starts_with("dial ")) ++dial;
    }
    ASSERT_LT(dial, 4000);
  }
  EXPECT_EQ(no_round->reason, GaveUp::timed_out);
  EXPECT_THAT(no_round->why, HasSubstr("no coordinator at head:29400 in 15 min (dial 1: no; "));
  EXPECT_THAT(no_round->why, HasSubstr("nobody listens there"));
  EXPECT_EQ(said.size(), 1U) << "that nobody answers yet is said once";
}

TEST_F(MemberTest, NamesEachDifferentCauseOnceWithItsNumber) {
  ask();
  tell(member::NotConnected{1, NoAnswer::unknown, "head: no such name"});
  wait(500ms);
  tell(member::NotConnected{2, NoAnswer::unknown, "head: no such name"});
  wait(900s);
  ASSERT_TRUE(no_round);
  EXPECT_THAT(no_round->why, HasSubstr("(head: no such name, 2 times)"));
  EXPECT_THAT(no_round->why, HasSubstr("a name that this machine can look up"));
}

TEST_F(MemberTest, SaysThatSomethingTookTheConnectionAndSaidNothing) {
  ask();
  connected(1);
  EXPECT_THAT(wait(3s), ElementsAre("hang up 1"));
  wait(900s);
  ASSERT_TRUE(no_round);
  EXPECT_THAT(no_round->why, HasSubstr("head:29400: took the connection and says nothing"));
}

// Who hangs up on an answer that is there already loses a place in a round that others count on.
TEST_F(MemberTest, AfterAPauseOfItsOwnItFirstReadsTheAnswerThatMayWait) {
  ask();
  connected(1);
  now += 60s;  // nothing runs meanwhile
  EXPECT_THAT(tell(member::Tick{}), IsEmpty());
  EXPECT_THAT(receive(1, welcome(kFirst)), Contains(HasSubstr("placed in")));
  MemberFixture other(limits());
  other.ask();
  other.connected(1);
  other.now += 60s;
  EXPECT_THAT(other.tell(member::Tick{}), IsEmpty());
  EXPECT_THAT(other.wait(1s), ElementsAre("hang up 1")) << "it does not wait for long";
}

TEST_F(MemberTest, EndsAtOnceIfTheCoordinatorDoesNotWantIt) {
  for (const RefusalCode code : {RefusalCode::version, RefusalCode::terms, RefusalCode::rank,
                                 RefusalCode::token, RefusalCode::limit}) {
    MemberFixture other(limits());
    other.ask();
    other.connected(1);
    EXPECT_THAT(other.refuse(1, code), ElementsAre("no round: refused", "hang up 1"));
    EXPECT_EQ(other.no_round->why, "head:29400: because");
  }
}

TEST_F(MemberTest, EndsAsClosedIfTheJobIsOver) {
  ask();
  connected(1);
  EXPECT_THAT(refuse(1, RefusalCode::closed), Contains("no round: closed"));
}

TEST_F(MemberTest, PassesTheEndOfTheJobOn) {
  join_round(welcome(kFirst));
  Over over;
  over.why = "all is well";
  EXPECT_THAT(receive(1, over), ElementsAre("over: all is well", "hang up 1"));
  EXPECT_EQ(member.phase(), MemberPhase::done);
  EXPECT_EQ(member.next_deadline(), std::nullopt);
}

TEST_F(MemberTest, TellsHowItsRoundEndedAndOffersAFreshStore) {
  join_round(welcome(kFirst));
  EXPECT_THAT(ended(kFirst), ElementsAre("to 1: ended 0/0, store 5001"));
  EXPECT_THAT(receive(1, welcome(round_of(0, 1))), ElementsAre("placed in 0/1"));
}

TEST_F(MemberTest, DropsAnOutcomeOfAnOlderRound) {
  join_round(welcome(round_of(0, 3)));
  EXPECT_THAT(ended(round_of(0, 2)), IsEmpty());
}

TEST_F(MemberTest, TellsOfAFailureAtOnce) {
  join_round(welcome(kFirst));
  Failure failure;
  failure.age = 5ms;
  EXPECT_THAT(tell(member::FailedHere{failure}), ElementsAre("to 1: failed 0/0, 5 ms ago"));
  EXPECT_THAT(tell(member::FailedHere{failure}), IsEmpty()) << "only the first";
}

TEST_F(MemberTest, StopsItsWorkersOnceWhenTheRoundIsDisbanded) {
  join_round(welcome(kFirst));
  EXPECT_THAT(receive(1, Disband{kFirst, "a node joins", 0, {}}), ElementsAre("disbanded 0/0"));
  EXPECT_THAT(receive(1, Disband{kFirst, "a node joins", 0, {}}), IsEmpty());
}

TEST_F(MemberTest, DropsADisbandOfAnOlderRound) {
  join_round(welcome(round_of(0, 2)));
  EXPECT_THAT(receive(1, Disband{round_of(0, 1), "late", 0, {}}), IsEmpty());
}

TEST_F(MemberTest, StopsItsWorkersWhenThePingsAreOfANewerRoundThanItsOwn) {
  join_round(welcome(kFirst));
  EXPECT_THAT(ping(1, 2, round_of(0, 1)), ElementsAre("to 1: pong 2", "disbanded 0/0"));
}

TEST_F(MemberTest, DoesNotTakeASecondPlaceWhileItsWorkersRun) {
  join_round(welcome(kFirst));
  wait(2s);
  EXPECT_THAT(receive(1, welcome(round_of(0, 1))), Not(Contains("placed in 0/1")));
  EXPECT_EQ(member.round(), kFirst);
  EXPECT_NE(member.phase(), MemberPhase::attached);
}

TEST_F(MemberTest, GoesOnInItsRoundWhenTheCoordinatorIsBack) {
  join_round(welcome(kFirst));
  wait(2s);
  ping(1, 2, kFirst);
  wait(2s);
  EXPECT_THAT(closed(1), Contains("dial 2 head:29400"));
  EXPECT_THAT(connected(2), ElementsAre("to 2: join from 10.0.0.2, held 0/0 rank 1 running"));
  EXPECT_THAT(ping(2, 1, kFirst), ElementsAre("to 2: pong 1"));
  EXPECT_THAT(said, ElementsAre("lost the coordinator at head:29400 (closed); workers go on; "
                                "looking for it",
                                "the coordinator is back at head:29400"));
}

TEST_F(MemberTest, IsAttachedWithinTwoSecondsOfTheCoordinatorsReturn) {
  join_round(welcome(kFirst));
  closed(1);
  int dial = 1;
  for (int i = 0; i < 200; ++i) {  // a long time of refusals
    const TimePoint before = now;
    while (member.phase() == MemberPhase::pausing) {
      now = *member.next_deadline();
      for (const std::string& line : tell(member::Tick{})) {
        if (line.starts_with("dial ")) ++dial;
      }
    }
    EXPECT_LE(now - before, 500ms);
    refused_by_host(dial);
  }
}

TEST_F(MemberTest, LosesACoordinatorThatIsSilentForThreeBeats) {
  join_round(welcome(kFirst));
  EXPECT_THAT(wait(2900ms), IsEmpty());
  EXPECT_THAT(wait(100ms), ElementsAre("hang up 1", "dial 2 head:29400"));
  EXPECT_THAT(said, ElementsAre(HasSubstr("(silent for 3 s)")));
}

TEST_F(MemberTest, WaitsAsLongAsTheCoordinatorDoesIfItsTermsAreOther) {
  join_round(welcome(kFirst));
  receive(1, Ping{2, kFirst, true, 10s});
  EXPECT_THAT(wait(9900ms), IsEmpty());
  EXPECT_THAT(wait(100ms), Contains("hang up 1"));
}

TEST_F(MemberTest, DoesNotTakeItsOwnPauseForTheCoordinatorsSilence) {
  join_round(welcome(kFirst));
  now += 60s;  // stopped and continued; pings wait unread
  EXPECT_THAT(tell(member::Tick{}), IsEmpty());
  EXPECT_THAT(ping(1, 61, kFirst), ElementsAre("to 1: pong 61"));
  now += 60s;
  tell(member::Tick{});
  EXPECT_THAT(wait(1s), Contains("hang up 1")) << "forgiven for one beat only";
}

TEST_F(MemberTest, KeepsAnOutcomeForTheCoordinatorsReturn) {
  join_round(welcome(kFirst));
  closed(1);
  EXPECT_THAT(ended(kFirst), IsEmpty());
  wait(500ms);
  EXPECT_THAT(connected(2), ElementsAre("to 2: join from 10.0.0.2, held 0/0 rank 1 ended"));
  EXPECT_THAT(ping(2, 1, kFirst), ElementsAre("to 2: pong 1")) << "told already";
}

TEST_F(MemberTest, TellsAnOutcomeThatCameAfterItsJoinWithEnded) {
  join_round(welcome(kFirst));
  closed(1);
  wait(500ms);
  connected(2);
  EXPECT_THAT(ended(kFirst), IsEmpty());
  EXPECT_THAT(ping(2, 1, kFirst), ElementsAre("to 2: ended 0/0, store 5001", "to 2: pong 1"));
}

TEST_F(MemberTest, KeepsAFailureAndItsAgeUntilItCanBeTold) {
  join_round(welcome(kFirst));
  closed(1);
  tell(member::FailedHere{Failure{}});
  wait(500ms);
  connected(2);
  EXPECT_THAT(ping(2, 1, kFirst), ElementsAre("to 2: failed 0/0, 500 ms ago", "to 2: pong 1"));
}

TEST_F(MemberTest, AgesTheFailureInAKeptOutcome) {
  join_round(welcome(kFirst));
  closed(1);
  Failure failure;
  failure.age = 1s;
  ended(kFirst, failure);
  wait(500ms);
  EXPECT_THAT(connected(2),
              ElementsAre("to 2: join from 10.0.0.2, held 0/0 rank 1 failed 1.5 s ago"));
}

TEST_F(MemberTest, DoesNotFollowACoordinatorThatForgotItsRound) {
  join_round(welcome(round_of(0, 4)));
  closed(1);
  wait(500ms);
  connected(2);
  EXPECT_THAT(ping(2, 1, round_of(0, 3)), ElementsAre("hang up 2"));
  EXPECT_NE(member.phase(), MemberPhase::attached);
}

TEST_F(MemberTest, GivesUpAnExternalCoordinatorAfterItsPatience) {
  join_round(welcome(kFirst));
  closed(1);
  for (int dial = 2; !no_round; ++dial) {
    refused_by_host(dial);
    wait(500ms);
    ASSERT_LT(dial, 4000);
  }
  EXPECT_EQ(no_round->reason, GaveUp::closed);
  EXPECT_THAT(no_round->why, HasSubstr("the coordinator at head:29400 was away for 10 min"));
}

TEST_F(MemberTest, KeepsItsWorkersWhenSomebodyElsesCoordinatorRefusesIt) {
  join_round(welcome(kFirst));
  closed(1);
  wait(500ms);
  connected(2);
  EXPECT_THAT(refuse(2, RefusalCode::token), ElementsAre("hang up 2"));
  EXPECT_FALSE(no_round);
}

TEST_F(MemberTest, LeavesWithAWordAndForGood) {
  join_round(welcome(kFirst));
  EXPECT_THAT(tell(member::Left{"SIGTERM"}), ElementsAre("to 1: leave: SIGTERM", "hang up 1"));
  EXPECT_EQ(member.phase(), MemberPhase::done);
  EXPECT_THAT(ended(kFirst), IsEmpty());
}

TEST_F(MemberTest, LeavesWhileItStillLooks) {
  ask();
  EXPECT_THAT(tell(member::Left{"SIGINT"}), ElementsAre("hang up 1"));
}

TEST_F(MemberTest, FollowsToTheCoordinatorThatANewcomerIsSentTo) {
  ask();
  connected(1);
  EXPECT_THAT(refuse(1, RefusalCode::elsewhere, {"10.0.0.9", 7000}),
              ElementsAre("hang up 1", "dial 2 10.0.0.9:7000"));
  EXPECT_THAT(connected(2), ElementsAre("to 2: join from 10.0.0.2"));
}

TEST_F(MemberTest, IsNotSentRoundInCircles) {
  ask();
  connected(1);
  refuse(1, RefusalCode::elsewhere, {"10.0.0.9", 7000});
  connected(2);
  EXPECT_THAT(refuse(2, RefusalCode::elsewhere, {"head", 29400}), ElementsAre("hang up 2"));
  EXPECT_EQ(member.phase(), MemberPhase::pausing);
}

TEST_F(MemberTest, DoesNotReturnInALoopToACoordinatorThatDropsIt) {
  join_round(welcome(kFirst));
  closed(1);
  EXPECT_EQ(member.phase(), MemberPhase::pausing) << "it did not last";
}

TEST_F(MemberTest, IgnoresWordsOfAConnectionThatItHungUp) {
  join_round(welcome(kFirst));
  closed(1);
  EXPECT_THAT(ping(1, 9, kFirst), IsEmpty());
  EXPECT_THAT(connected(1), IsEmpty());
  EXPECT_THAT(closed(1), IsEmpty());
}

}  // namespace
}  // namespace distrun::rendezvous
