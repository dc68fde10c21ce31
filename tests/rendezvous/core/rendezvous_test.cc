#include "rendezvous/core/rendezvous.h"

#include "tests/rendezvous/core/rendezvous_fixture.h"

#include <gmock/gmock.h>

namespace distrun::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(Rendezvous, ARoundIsSealedAtOnceWithMax) {
  Hall hall(terms(1, 2));
  const SessionId a = hall.join("host1");
  EXPECT_EQ(hall.phase(), RoundPhase::last_call);
  const SessionId b = hall.join("host2");
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  EXPECT_EQ(hall.rank(a), 0);
  EXPECT_EQ(hall.rank(b), 1);
}

TEST(Rendezvous, WithMinItWaitsForTheLastCall) {
  Hall hall(terms(2, 4));
  const SessionId a = hall.join("host1");
  hall.pass(60s);
  EXPECT_EQ(hall.phase(), RoundPhase::gathering);
  hall.join("host2");
  hall.pass(29s);
  EXPECT_EQ(hall.phase(), RoundPhase::last_call);
  EXPECT_LE(hall.last<Waiting>(a)->sealing_in, 3s);
  hall.pass(1s);
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
}

TEST(Rendezvous, WhoeverWaitsHearsForWhom) {
  Hall hall(terms(2, 3));
  const SessionId a = hall.join("host1");
  const auto waiting = hall.last<Waiting>(a);
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->present, 1);
  EXPECT_THAT(waiting->hosts, testing::ElementsAre("host1"));
  EXPECT_EQ(waiting->giving_up_in, 600s);
}

TEST(Rendezvous, TooFewNodesEndTheJobInTime) {
  Hall hall(terms(2, 2));
  const SessionId a = hall.join("host1");
  hall.pass(600s);
  ASSERT_TRUE(hall.last<Over>(a));
  EXPECT_EQ(hall.last<Over>(a)->result, OverResult::timed_out);
  EXPECT_EQ(hall.last<Over>(a)->exit_code, 75);
}

TEST(Rendezvous, WorkersAreNumberedAlongTheNodes) {
  Hall hall(terms(3, 3));
  const int nproc[] = {2, 3, 4};
  std::vector<SessionId> nodes;
  for (int i = 0; i < 3; ++i) {
    Join join = hall.a_join("host" + std::to_string(i));
    join.nproc = nproc[i];
    join.role = i == 1 ? "reader" : "trainer";
    nodes.push_back(hall.join(join));
  }
  const Welcome last = *hall.last<Welcome>(nodes[2]);
  EXPECT_EQ(last.base_rank, Rank(5));
  EXPECT_EQ(last.world_size, 9);
  EXPECT_EQ(last.base_role_rank, 2);
  EXPECT_EQ(last.role_world_size, 6);
  EXPECT_EQ(last.master_addr, "10.0.0.0");
}

TEST(Rendezvous, TheJobIsOverWhenAllHaveSucceeded) {
  Hall hall(terms(2, 2));
  const SessionId a = hall.join("host1");
  const SessionId b = hall.join("host2");
  hall.ended(a, RoundResult::succeeded);
  EXPECT_FALSE(hall.last<Over>(a));
  hall.ended(b, RoundResult::succeeded);
  EXPECT_EQ(hall.last<Over>(a)->result, OverResult::succeeded);
  EXPECT_EQ(hall.last<Over>(b)->exit_code, 0);
}

TEST(Rendezvous, AFailureRestartsAllAndCostsOneRestart) {
  Hall hall(terms(2, 2, 1));
  const SessionId a = hall.join("host1");
  const SessionId b = hall.join("host2");
  hall.failed(b, 1);
  EXPECT_THAT(hall.last<Disband>(a)->why, HasSubstr("rank 1 on host1: exited with status 13"));
  EXPECT_EQ(hall.phase(), RoundPhase::ended);
  hall.ended(a, RoundResult::stopped);
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  EXPECT_EQ(hall.last<Welcome>(a)->restart_count, 1);
  EXPECT_EQ(hall.last<Welcome>(b)->restart_count, 1);
}

TEST(Rendezvous, WhenTheBudgetIsSpentAllHearTheSameEnd) {
  Hall hall(terms(2, 2, 0));
  const SessionId a = hall.join("host1");
  const SessionId b = hall.join("host2");
  hall.failed(b, 1);
  hall.ended(a, RoundResult::stopped);
  ASSERT_TRUE(hall.last<Over>(a));
  EXPECT_EQ(*hall.last<Over>(a), *hall.last<Over>(b));
  EXPECT_EQ(hall.last<Over>(a)->exit_code, 13);
  EXPECT_EQ(hall.last<Over>(a)->report, "report of rank 1");
}

TEST(Rendezvous, TheFirstFailureIsTheOldestNotTheFirstHeard) {
  Hall hall(terms(2, 2, 0));
  const SessionId a = hall.join("host1");
  const SessionId b = hall.join("host2");
  hall.pass(10s);
  hall.failed(a, 0);
  Failure failure;
  failure.host = "host2";
  failure.rank = Rank(1);
  failure.exit_code = 3;
  failure.age = 200ms;
  hall.say(b, Failed{{0, Generation(0)}, failure});
  Outcome outcome;
  outcome.round = {0, Generation(0)};
  outcome.result = RoundResult::failed;
  outcome.failure = failure;
  outcome.report = "the cause";
  hall.say(b, Ended{outcome, 1});
  EXPECT_EQ(hall.last<Over>(a)->exit_code, 3);
  EXPECT_EQ(hall.last<Over>(a)->report, "the cause");
}

TEST(Rendezvous, AFailureAtTheFirstStartIsNotRetried) {
  Hall hall(terms(1, 1, 3));
  const SessionId a = hall.join("host1");
  hall.failed(a, 0, true);
  ASSERT_TRUE(hall.last<Over>(a));
  EXPECT_THAT(hall.last<Over>(a)->why, HasSubstr("not restarted"));
}

TEST(Rendezvous, ALostNodeIsNoRestart) {
  Hall hall(terms(1, 2, 0));
  const SessionId a = hall.join("host1");
  const SessionId b = hall.join("host2");
  hall.close(b);
  EXPECT_THAT(hall.last<Disband>(a)->why, HasSubstr("host2 (node rank 1) is lost"));
  hall.ended(a, RoundResult::stopped);
  hall.pass(100ms);
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  EXPECT_EQ(hall.last<Welcome>(a)->restart_count, 0);
  EXPECT_EQ(hall.last<Welcome>(a)->world_size, 1);
}

TEST(Rendezvous, ASilentNodeIsLostAfterThreeSeconds) {
  Hall hall(terms(1, 2));
  hall.join("host1");
  const SessionId b = hall.join("host2");
  hall.pass(10s);
  hall.silence(b);
  hall.pass(1900ms);
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  hall.pass(1100ms);
  EXPECT_EQ(hall.phase(), RoundPhase::ended);
}

TEST(Rendezvous, ACoordinatorThatSleptDoesNotTakeItForTheirs) {
  Hall hall(terms(1, 2));
  const SessionId a = hall.join("host1");
  const SessionId b = hall.join("host2");
  hall.pass(10s);
  hall.sleep(60s);
  hall.pass(10s);
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  EXPECT_FALSE(hall.last<Disband>(a));
  EXPECT_FALSE(hall.last<Disband>(b));
}

TEST(Rendezvous, AVictimOfALostNodeCostsNoRestart) {
  Hall hall(terms(1, 2, 0));
  const SessionId a = hall.join("host1");
  const SessionId b = hall.join("host2");
  hall.failed(a, 0);  // its peer is gone, and it is heard of first
  hall.close(b);
  hall.pass(100ms);
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  EXPECT_FALSE(hall.last<Over>(a));
}

TEST(Rendezvous, SurvivorsKeepTheirRanksAndASpareFillsTheHole) {
  Hall hall(terms(3, 3));
  const SessionId a = hall.join("host1");
  const SessionId b = hall.join("host2");
  const SessionId c = hall.join("host3");
  const SessionId spare = hall.join("host0");
  EXPECT_TRUE(hall.last<Waiting>(spare)->spare);
  hall.close(b);
  hall.ended(a, RoundResult::stopped);
  hall.ended(c, RoundResult::stopped);
  EXPECT_EQ(hall.rank(a), 0);
  EXPECT_EQ(hall.rank(spare), 1);
  EXPECT_EQ(hall.rank(c), 2);
}

TEST(Rendezvous, SparesEndWithTheJob) {
  Hall hall(terms(1, 1));
  const SessionId a = hall.join("host1");
  const SessionId spare = hall.join("host2");
  hall.ended(a, RoundResult::succeeded);
  EXPECT_EQ(hall.last<Over>(spare)->result, OverResult::succeeded);
}

TEST(Rendezvous, ALatecomerGetsAPlaceInANewRound) {
  Hall hall(terms(1, 2));
  const SessionId a = hall.join("host1");
  hall.pass(30s);
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  const SessionId b = hall.join("host2");
  EXPECT_THAT(hall.last<Disband>(a)->why, HasSubstr("host2 joins"));
  hall.ended(a, RoundResult::stopped);
  EXPECT_EQ(hall.rank(a), 0);
  EXPECT_EQ(hall.rank(b), 1);
  EXPECT_EQ(hall.last<Welcome>(b)->restart_count, 0);
}

TEST(Rendezvous, ANodeThatFlapsDoesNotRestartTheJobForever) {
  Hall hall(terms(1, 2));
  const SessionId a = hall.join("host1");
  hall.pass(30s);
  int rounds = 0;
  for (int i = 0; i < 100 && hall.phase() != RoundPhase::over; ++i) {
    const SessionId b = hall.join("host2");
    if (hall.phase() == RoundPhase::ended) {
      hall.ended(a, RoundResult::stopped);
      ++rounds;
    }
    hall.close(b);
    if (hall.phase() == RoundPhase::ended) hall.ended(a, RoundResult::stopped);
    hall.pass(100ms);
  }
  EXPECT_LE(rounds, kMembershipChanges);
}

TEST(Rendezvous, LatecomersDoNotUseUpTheLossesAJobMayHave) {
  Hall hall(terms(1, 64));
  std::vector<SessionId> nodes{hall.join("host0")};
  hall.pass(30s);
  for (int i = 1; i <= kMembershipChanges; ++i) {
    nodes.push_back(hall.join("host" + std::to_string(i)));
    for (std::size_t k = 0; k + 1 < nodes.size(); ++k) hall.ended(nodes[k], RoundResult::stopped);
    hall.pass(100ms);
  }
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  hall.close(nodes.back());
  EXPECT_EQ(hall.phase(), RoundPhase::ended);
}

TEST(Rendezvous, FailuresThatComeWithALossAreLimitedToo) {
  Hall hall(terms(2, 2, 0));
  const SessionId a = hall.join("host1");
  for (int i = 0; i < 100 && hall.phase() != RoundPhase::over; ++i) {
    const SessionId b = hall.join("host2");
    hall.failed(b, 1);
    hall.close(b);
    hall.ended(a, RoundResult::stopped);
    hall.pass(100ms);
  }
  EXPECT_LE(hall.generation(), kMembershipChanges);
}

TEST(Rendezvous, AJobThatLostEverybodyHasALastCallAgain) {
  Hall hall(terms(1, 2));
  const SessionId a = hall.join("host1");
  const SessionId b = hall.join("host2");
  hall.close(a);
  hall.close(b);
  hall.join("host3");
  EXPECT_EQ(hall.phase(), RoundPhase::last_call);
  hall.join("host4");
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
}

TEST(Rendezvous, OnlyLoopbackAddressesAreReplaced) {
  Hall hall(terms(3, 3));
  Join loopback = hall.a_join("host1");
  loopback.address = "127.0.0.1";
  const SessionId a = hall.join(loopback);
  hall.join("host2");
  hall.feed(ReachedAt{"10.0.0.77"});
  hall.join("host3");
  EXPECT_EQ(hall.last<Welcome>(a)->master_addr, "10.0.0.77");
  EXPECT_EQ(hall.state().members[1].address, "10.0.0.2");
}

TEST(Rendezvous, WithoutTheTokenNobodyHearsHowItEnded) {
  Hall hall(terms(1, 1));
  const SessionId a = hall.join("host1");
  hall.ended(a, RoundResult::succeeded);
  Join spy = hall.a_join("host2");
  spy.token = "guessed";
  spy.held = Held{{0, Generation(0)}, NodeRank(0), 1, 0, std::nullopt, "host1.1"};
  const SessionId b = hall.join(spy);
  EXPECT_FALSE(hall.last<Over>(b));
  EXPECT_EQ(hall.last<Refused>(b)->code, RefusalCode::token);
}

TEST(Rendezvous, WhoHasSucceededIsNotMissed) {
  Hall hall(terms(1, 2));
  const SessionId a = hall.join("host1");
  const SessionId b = hall.join("host2");
  hall.ended(b, RoundResult::succeeded);
  hall.close(b);
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  hall.ended(a, RoundResult::succeeded);
  EXPECT_EQ(hall.last<Over>(a)->result, OverResult::succeeded);
}

TEST(Rendezvous, LeavingIsNotClosing) {
  Hall hall(terms(1, 2));
  const SessionId a = hall.join("host1");
  const SessionId b = hall.join("host2");
  hall.say(b, Leave{"stopped by SIGTERM"});
  EXPECT_TRUE(hall.dropped(b));
  EXPECT_THAT(hall.last<Disband>(a)->why, HasSubstr("left: stopped by SIGTERM"));
  hall.ended(a, RoundResult::stopped);
  hall.pass(100ms);
  EXPECT_EQ(hall.rank(a), 0);
}

TEST(Rendezvous, OtherFlagsAreRefusedInWordsAndHarmNobody) {
  Hall hall(terms(2, 2));
  const SessionId a = hall.join("host1");
  Join other = hall.a_join("host2");
  other.terms.command = "other.py";
  const SessionId b = hall.join(other);
  EXPECT_EQ(hall.last<Refused>(b)->code, RefusalCode::terms);
  EXPECT_THAT(hall.last<Refused>(b)->why, HasSubstr("script: other.py here, train.py in the job"));
  EXPECT_TRUE(hall.dropped(b));
  hall.join("host3");
  EXPECT_EQ(hall.rank(a), 0);
}

TEST(Rendezvous, ANodeRankIsHonouredOrRefused) {
  Hall hall(terms(2, 2));
  Join first = hall.a_join("host1");
  first.node_rank = NodeRank(1);
  const SessionId a = hall.join(first);
  Join again = hall.a_join("host2");
  again.node_rank = NodeRank(1);
  const SessionId refused = hall.join(again);
  EXPECT_EQ(hall.last<Refused>(refused)->code, RefusalCode::rank);
  EXPECT_THAT(hall.last<Refused>(refused)->why, HasSubstr("host1 has it"));
  const SessionId b = hall.join("host0");
  EXPECT_EQ(hall.rank(a), 1);
  EXPECT_EQ(hall.rank(b), 0);
}

Join back(const Hall& hall, const std::string& host, int rank, int count) {
  Join join = hall.a_join(host);
  join.held = Join::Held{{0, Generation(4)}, NodeRank(rank), count, 2, std::nullopt};
  return join;
}

Record a_record(int count) {
  Record record;
  record.job = "job";
  record.terms = terms(1, 4, 3);
  record.last = {0, Generation(4)};
  record.node_count = count;
  record.restarts = 2;
  return record;
}

TEST(RendezvousRecovering, AllAreBackAndNothingHasHappened) {
  Hall hall(a_record(2), Authority{});
  const SessionId a = hall.join(back(hall, "host1", 0, 2));
  EXPECT_EQ(hall.phase(), RoundPhase::recovering);
  const SessionId b = hall.join(back(hall, "host2", 1, 2));
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  EXPECT_EQ(hall.generation(), 4);
  EXPECT_FALSE(hall.last<Disband>(a));
  EXPECT_FALSE(hall.last<Disband>(b));
}

TEST(RendezvousRecovering, WhoDoesNotComeBackIsLost) {
  Hall hall(a_record(2), Authority{});
  const SessionId a = hall.join(back(hall, "host1", 0, 2));
  hall.pass(kRecovery);
  EXPECT_THAT(hall.last<Disband>(a)->why, HasSubstr("1 of 2 nodes did not come back"));
  hall.ended(a, RoundResult::stopped);
  hall.pass(100ms);
  EXPECT_EQ(hall.generation(), 5);
  EXPECT_EQ(hall.last<Welcome>(a)->restart_count, 2);
}

TEST(RendezvousRecovering, ACoordinatorWithoutMemoryLearnsFromTheMembers) {
  Hall hall(terms(1, 4, 3));
  const SessionId a = hall.join(back(hall, "host1", 0, 2));
  hall.join(back(hall, "host2", 1, 2));
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  EXPECT_EQ(hall.generation(), 4);
  hall.failed(a, 0);
  EXPECT_EQ(hall.phase(), RoundPhase::ended);
}

TEST(RendezvousRecovering, AJournalThatIsBehindLearnsOfTheNewerRound) {
  Hall hall(a_record(2), Authority{});
  Join newer = back(hall, "host1", 0, 2);
  newer.held->round.generation = Generation(6);
  hall.join(newer);
  newer = back(hall, "host2", 1, 2);
  newer.held->round.generation = Generation(6);
  hall.join(newer);
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  EXPECT_EQ(hall.generation(), 6);
}

// A daemon takes a new job of an ended one's name.  A node that slept through both belongs to
// neither the new job's rounds nor its end.
Join from_an_older_job(const Hall& hall, int generation) {
  Join late = hall.a_join("host9");
  late.held = Held{{0, Generation(generation)}, NodeRank(0), 2, 0, std::nullopt, "host7.1"};
  return late;
}

TEST(RendezvousRecovering, ANodeOfAnOlderJobOfThisNameDoesNotEndThisOne) {
  Hall hall(terms(1, 2));
  const SessionId a = hall.join("host1");
  const SessionId b = hall.join("host2");
  for (const int generation : {0, 7}) {
    const SessionId late = hall.join(from_an_older_job(hall, generation));
    ASSERT_TRUE(hall.last<Refused>(late));
    EXPECT_EQ(hall.last<Refused>(late)->code, RefusalCode::closed);
    EXPECT_THAT(hall.last<Refused>(late)->why, HasSubstr("another of that name has begun"));
  }
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  EXPECT_FALSE(hall.last<Disband>(a));
  EXPECT_FALSE(hall.last<Disband>(b));
}

TEST(RendezvousRecovering, ANodeOfAnOlderJobDoesNotMakeAJournalSeemBehind) {
  Record record = a_record(2);
  record.founder = "host1.1";
  Hall hall(record, Authority{});
  const SessionId late = hall.join(from_an_older_job(hall, 7));
  EXPECT_EQ(hall.last<Refused>(late)->code, RefusalCode::closed);
  EXPECT_EQ(hall.state().last.generation, Generation(4));
}

TEST(RendezvousRecovering, ANodeOfAnOlderJobDoesNotHearHowThisOneEnded) {
  Hall hall(terms(1, 1));
  hall.ended(hall.join("host1"), RoundResult::succeeded);
  const SessionId late = hall.join(from_an_older_job(hall, 0));
  EXPECT_FALSE(hall.last<Over>(late));
  EXPECT_EQ(hall.last<Refused>(late)->code, RefusalCode::closed);
}

TEST(RendezvousRecovering, ANodeThatComesTwiceWhileItDrainsIsWaitedForOnce) {
  Hall hall(terms(2, 2));
  const SessionId a = hall.join("host1");
  const SessionId b = hall.join("host2");
  hall.close(b);
  Join again = hall.a_join("host2");
  again.held = Held{{0, Generation(0)}, NodeRank(1), 2, 0, std::nullopt, "host1.1"};
  hall.join(again);
  const SessionId last = hall.join(again);  // its connection broke once more
  EXPECT_TRUE(hall.last<Disband>(last));
  hall.ended(a, RoundResult::stopped);
  hall.ended(last, RoundResult::stopped);
  hall.pass(1s);
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  EXPECT_EQ(hall.rank(last), 1);
}

Authority hosted(const std::string& node, int successor = 0) {
  return Authority{node, successor, TakeoverRule::majority};
}

TEST(RendezvousTakeover, AMajorityGoesOn) {
  Hall hall(a_record(4), hosted("host2.1", 1));
  const SessionId b = hall.join(back(hall, "host2", 1, 4));
  hall.join(back(hall, "host3", 2, 4));
  hall.pass(60s);
  EXPECT_EQ(hall.phase(), RoundPhase::recovering) << "two of four may not act";
  EXPECT_FALSE(hall.last<Disband>(b));
  const SessionId d = hall.join(back(hall, "host4", 3, 4));
  hall.pass(1s);
  EXPECT_EQ(hall.phase(), RoundPhase::ended);
  EXPECT_TRUE(hall.last<Disband>(b));
  EXPECT_TRUE(hall.last<Disband>(d));
}

// It was in the round, perhaps; whoever took over knows only those who show that they were.
TEST(RendezvousTakeover, WhoShowsNoRoundIsNotCounted) {
  Hall hall(a_record(3), hosted("host2.1", 1));
  hall.join(back(hall, "host2", 1, 3));
  const SessionId c = hall.join("host3");
  hall.pass(60s);
  EXPECT_EQ(hall.phase(), RoundPhase::recovering);
  EXPECT_FALSE(hall.state().has_quorum);
  EXPECT_EQ(hall.rank(c), -1);
}

// An endpoint without memory began the job anew, and took in nodes of the first one.
TEST(RendezvousTakeover, ARoundOfThatNumberInAnotherJobIsNotCounted) {
  Hall hall(a_record(3), hosted("host2.1", 1));
  hall.join(back(hall, "host2", 1, 3));
  Join other = back(hall, "host3", 2, 3);
  other.held->founder = "host9.1";
  hall.join(other);
  hall.pass(60s);
  EXPECT_EQ(hall.phase(), RoundPhase::recovering);
  EXPECT_FALSE(hall.state().has_quorum);
}

TEST(RendezvousTakeover, ARoundThatNobodyHeardOfIsFollowedByAnother) {
  Hall hall(a_record(3), hosted("host2.1", 1));
  std::vector<Join> joins{back(hall, "host1", 0, 3), back(hall, "host2", 1, 3),
                          back(hall, "host3", 2, 3)};
  std::vector<SessionId> sessions;
  for (Join& join : joins) {
    join.held->outcome.emplace();  // its workers are stopped
    join.held->outcome->round = join.held->round;
    sessions.push_back(hall.join(join));
  }
  hall.pass(5s);
  ASSERT_EQ(hall.generation(), 5);
  // What they hold is the round before: of that one, too, they are a majority.
  for (const SessionId session : sessions) hall.close(session);
  hall.join(joins[1]);
  hall.pass(5s);
  EXPECT_EQ(hall.generation(), 5);
  hall.join(joins[2]);
  hall.pass(60s);
  EXPECT_EQ(hall.generation(), 6);
}

// host1 decides draws in that round, and may be alive with a half of its own.
TEST(RendezvousTakeover, AHostThatLeavesNamesNobodyInsteadOfAnotherWhoDecides) {
  Record record = a_record(4);
  record.coordinator = "host1.1";
  Hall hall(record, hosted("host2.1", 1));
  Join own = back(hall, "host2", 1, 4);
  own.hosts = true;
  const SessionId b = hall.join(own);
  const SessionId c = hall.join(back(hall, "host3", 2, 4));
  hall.join(back(hall, "host4", 3, 4));
  hall.say(b, Leave{"stopped by SIGTERM"});
  EXPECT_EQ(hall.last<Disband>(c)->heir, "host1.1");
}

TEST(RendezvousTakeover, ANewEpochBegins) {
  Hall hall(a_record(2), Authority{"host2.1", 1, TakeoverRule::any});
  const SessionId b = hall.join(back(hall, "host2", 1, 2));
  hall.pass(kRecovery);
  hall.ended(b, RoundResult::stopped);
  hall.pass(1s);
  EXPECT_EQ(hall.last<Welcome>(b)->round, (Fence{17, Generation(5)}));
}

TEST(RendezvousQuorum, TheHostOfTheCoordinatorDecidesADraw) {
  Hall hall(terms(1, 2), hosted("host1.1"));
  Join own = hall.a_join("host1");
  own.hosts = true;
  const SessionId a = hall.join(own);
  const SessionId b = hall.join("host2");
  hall.pass(5s);
  hall.close(b);
  hall.ended(a, RoundResult::stopped);
  hall.pass(1s);
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  EXPECT_EQ(hall.generation(), 1);
}

TEST(RendezvousQuorum, AMinorityWithTheCoordinatorDoesNotGoOn) {
  Hall hall(terms(1, 3), hosted("host1.1"));
  Join own = hall.a_join("host1");
  own.hosts = true;
  const SessionId a = hall.join(own);
  const SessionId b = hall.join("host2");
  const SessionId c = hall.join("host3");
  hall.pass(5s);
  hall.close(b);
  hall.close(c);
  hall.ended(a, RoundResult::stopped);
  hall.pass(60s);
  EXPECT_EQ(hall.generation(), 0);
  EXPECT_FALSE(hall.last<Waiting>(a)->quorum);
  EXPECT_THAT(hall.last<Waiting>(a)->why, HasSubstr("not a majority of round 0: 1 of 3"));
}

// They hung up before the Welcome came: none of them knows the round, and all are here.
TEST(RendezvousQuorum, NodesThatNeverHeardOfTheirRoundGetTheNextOne) {
  Hall hall(terms(3, 3, 1), hosted("host1.1"));
  const std::vector<std::string> names{"host1", "host2", "host3"};
  std::vector<SessionId> sessions;
  for (int i = 1; i <= 3; ++i) hall.silence(SessionId(i));
  for (const std::string& name : names) sessions.push_back(hall.join(name));
  EXPECT_EQ(hall.generation(), 0);
  for (const SessionId session : sessions) hall.close(session);
  sessions.clear();
  for (const std::string& name : names) sessions.push_back(hall.join(name));
  hall.pass(5s);
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  EXPECT_EQ(hall.generation(), 1);
  hall.failed(sessions[1], 1);
  hall.ended(sessions[0], RoundResult::stopped);
  hall.ended(sessions[2], RoundResult::stopped);
  hall.pass(5s);
  EXPECT_EQ(hall.generation(), 2) << "and can go on as any other";
}

// Round 0 of `count` nodes was sealed, and all of them hung up before its Welcome came.
Hall a_round_that_nobody_heard_of(int min_nodes, int count) {
  Hall hall(terms(min_nodes, count, 1), hosted("host1.1"));
  std::vector<SessionId> sessions;
  for (int i = 1; i <= count; ++i) {
    hall.silence(SessionId(i));
    Join join = hall.a_join("host" + std::to_string(i));
    join.hosts = i == 1;
    sessions.push_back(hall.join(join));
  }
  for (const SessionId session : sessions) hall.close(session);
  return hall;
}

TEST(RendezvousQuorum, AMinorityThatNeverHeardOfItsRoundIsInTheNextOne) {
  Hall hall(terms(3, 3), hosted("host1.1"));
  const SessionId a = hall.join("host1");
  const SessionId b = hall.join("host2");
  hall.close(hall.join("host3"));
  const SessionId c = hall.join("host3");
  hall.ended(a, RoundResult::stopped);
  hall.ended(b, RoundResult::stopped);
  hall.pass(1s);
  EXPECT_EQ(hall.generation(), 1);
  EXPECT_EQ(hall.rank(c), 2);
}

TEST(RendezvousQuorum, AMajorityOfThemIsEnough) {
  Hall hall = a_round_that_nobody_heard_of(1, 3);
  hall.join("host2");
  hall.pass(60s);
  EXPECT_EQ(hall.generation(), 0);
  hall.join("host3");
  hall.pass(60s);
  EXPECT_EQ(hall.generation(), 1);
}

TEST(RendezvousQuorum, OneOfThemThatLeavesForGoodDoesNotCount) {
  Hall hall = a_round_that_nobody_heard_of(1, 5);
  hall.join("host1");
  hall.join("host2");
  for (const char* host : {"host3", "host4", "host5"}) hall.say(hall.join(host), Leave{"done"});
  hall.pass(60s);
  EXPECT_EQ(hall.generation(), 1) << "two of the two that are left";
}

TEST(RendezvousQuorum, AnotherProcessOnOneOfTheirHostsDoesNotCount) {
  Hall hall = a_round_that_nobody_heard_of(1, 3);
  const SessionId a = hall.join("host1");
  for (const char* host : {"host2", "host3"}) {
    Join other = hall.a_join(host);
    other.node = std::string(host) + ".2";
    hall.join(other);
  }
  hall.pass(60s);
  EXPECT_EQ(hall.generation(), 0);
  EXPECT_THAT(hall.last<Waiting>(a)->why, HasSubstr("not a majority of round 0: 1 of 3"));
}

// It may have turned to another coordinator: its silence ends the vote, not the loss of its line.
TEST(RendezvousQuorum, OneOfThemThatDoesNotAnswerDoesNotCount) {
  Hall hall = a_round_that_nobody_heard_of(3, 3);
  hall.join("host1");
  const SessionId b = hall.join("host2");
  EXPECT_TRUE(hall.state().has_quorum);
  hall.silence(b);
  hall.sleep(hall.state().terms.silence());
  EXPECT_FALSE(hall.state().has_quorum);
}

TEST(RendezvousQuorum, OneOfThemThatFollowsAnotherCoordinatorEndsThisOnes) {
  Hall hall = a_round_that_nobody_heard_of(3, 3);
  hall.join("host1");
  hall.close(hall.join("host2"));
  Join elsewhere = hall.a_join("host2");
  elsewhere.held = Held{{17, Generation(1)}, NodeRank(0), 3, 0, std::nullopt, "host1.1"};
  const SessionId b = hall.join(elsewhere);
  ASSERT_TRUE(hall.last<Refused>(b));
  EXPECT_EQ(hall.last<Refused>(b)->code, RefusalCode::stale);
  hall.join("host3");
  hall.pass(60s);
  EXPECT_EQ(hall.generation(), 0) << "two of three are here, and the job is another's";
}

// They have the older claim, and only they can show that the round before is over (quorum.h).
TEST(RendezvousQuorum, TheyComeBeforeThoseWhoWaitForAPlace) {
  Hall hall = a_round_that_nobody_heard_of(3, 5);
  for (const char* host : {"host6", "host7", "host8"}) hall.join(host);
  std::vector<SessionId> sessions;
  for (const char* host : {"host1", "host2", "host3"}) sessions.push_back(hall.join(host));
  hall.pass(60s);
  EXPECT_EQ(hall.generation(), 1);
  for (const SessionId session : sessions) EXPECT_GE(hall.rank(session), 0);
}

TEST(RendezvousQuorum, AHostThatNeverHeardNamesWhoDecidesWithoutIt) {
  Hall hall(terms(1, 3), hosted("host1.1"));
  Join own = hall.a_join("host1");
  own.hosts = true;
  const SessionId a = hall.join(own);
  const SessionId b = hall.join("host2");
  hall.join("host3");
  hall.close(a);
  hall.say(hall.join(own), Leave{"stopped by SIGTERM"});
  EXPECT_EQ(hall.last<Disband>(b)->heir, "host2.1");
  EXPECT_EQ(hall.last<Disband>(b)->left, 1);
}

TEST(RendezvousQuorum, NodesThatLeftForGoodDoNotCount) {
  Hall hall(terms(1, 3), hosted("host1.1"));
  Join own = hall.a_join("host1");
  own.hosts = true;
  const SessionId a = hall.join(own);
  const SessionId b = hall.join("host2");
  const SessionId c = hall.join("host3");
  hall.pass(5s);
  hall.say(b, Leave{"done"});
  hall.say(c, Leave{"done"});
  hall.ended(a, RoundResult::stopped);
  hall.pass(1s);
  EXPECT_EQ(hall.generation(), 1);
}

TEST(RendezvousQuorum, AHostThatLeavesNamesWhoDecidesWithoutIt) {
  Hall hall(terms(1, 3), hosted("host1.1"));
  Join own = hall.a_join("host1");
  own.hosts = true;
  const SessionId a = hall.join(own);
  const SessionId b = hall.join("host2");
  hall.join("host3");
  hall.say(a, Leave{"stopped by SIGTERM"});
  EXPECT_EQ(hall.last<Disband>(b)->heir, "host2.1");
  EXPECT_EQ(hall.last<Disband>(b)->left, 1);
}

TEST(RendezvousCost, EachAgentIsToldOncePerPhase) {
  constexpr int kNodes = 1000;
  Hall hall(terms(kNodes, kNodes));
  std::vector<SessionId> nodes;
  for (int i = 0; i < kNodes; ++i) nodes.push_back(hall.join("host" + std::to_string(i)));
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
  EXPECT_LE(hall.messages(), 4L * kNodes);
  const long formed = hall.messages();
  hall.failed(nodes[7], 7);
  EXPECT_LE(hall.messages() - formed, kNodes);
}

}  // namespace
}  // namespace distrun::rendezvous
