// EtcdLeader: who leads, until when, and what a leader that was paused does not do.
#include "rendezvous/etcd/core/leader.h"

#include "tests/rendezvous/etcd/model_etcd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <string>

namespace distrun::rendezvous::etcd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr TimePoint kStart{std::chrono::hours(1)};

// A replica on the model; its requests are answered when the test says so.
class Replica {
 public:
  Replica(ModelEtcd& etcd, const std::string& name)
      : etcd_(etcd), leader_(LeaderLimits{.endpoint = name + ":29400", .id = name}) {}

  void tell(const leader::Event& event, TimePoint now) {
    for (leader::Effect& effect : leader_.handle(event, now)) {
      if (auto* ask = std::get_if<leader::Ask>(&effect)) {
        asked.push_back(std::move(*ask));
      } else if (const auto* lead = std::get_if<leader::Lead>(&effect)) {
        EXPECT_FALSE(led) << "led twice without a halt";
        led = *lead;
      } else if (std::holds_alternative<leader::GoOn>(effect)) {
        EXPECT_TRUE(leader_.acts(now));
        ++went_on;
      } else if (const auto* halt = std::get_if<leader::Halt>(&effect)) {
        led.reset();
        halted = halt->why;
      } else if (const auto* follow = std::get_if<leader::Follow>(&effect)) {
        follows = follow->endpoint;
      } else if (const auto* watch = std::get_if<leader::Watch>(&effect)) {
        watching = watch->watch;
        watched_from = watch->from;
      } else if (std::holds_alternative<leader::Unwatch>(effect)) {
        watching = 0;
      } else if (std::holds_alternative<leader::Resigned>(effect)) {
        resigned = true;
      }
    }
  }
  // Carries out what is asked until nothing is.
  void answer_all(TimePoint now) {
    for (int i = 0; i < 100 && !asked.empty(); ++i) answer_one(now);
    EXPECT_TRUE(asked.empty()) << "it asks for ever";
  }
  void answer_one(TimePoint now) {
    const leader::Ask ask = std::move(asked.front());
    asked.pop_front();
    tell(leader::Answered{ask.number, etcd_.carry_out(ask.request, now)}, now);
  }
  // From one deadline to the next, with an etcd that answers at once.
  void run(TimePoint from, TimePoint to) {
    answer_all(from);
    for (auto next = leader_.next_deadline(); next && *next <= to; next = leader_.next_deadline()) {
      tell(leader::Tick{}, std::max(*next, from));
      answer_all(std::max(*next, from));
    }
  }
  void start(TimePoint now) {
    tell(leader::Start{}, now);
    answer_all(now);
  }
  bool acts(TimePoint now) const { return leader_.acts(now); }
  bool leads(TimePoint now) const { return leader_.leads(now); }
  void fail_one(TimePoint now) {
    const int number = asked.front().number;
    asked.pop_front();
    tell(leader::Answered{number, Failed{"etcd does not answer", false}}, now);
  }
  LeaderPhase phase() const { return leader_.phase(); }
  std::optional<TimePoint> deadline() const { return leader_.next_deadline(); }

  std::deque<leader::Ask> asked;
  std::optional<leader::Lead> led;
  std::string halted;
  std::string follows = "?";
  int watching = 0;
  Revision watched_from = 0;
  int went_on = 0;
  bool resigned = false;

 private:
  ModelEtcd& etcd_;
  EtcdLeader leader_;
};

class EtcdLeaderTest : public testing::Test {
 protected:
  ModelEtcd etcd_;
  Replica a_{etcd_, "a"};
  Replica b_{etcd_, "b"};
};

TEST_F(EtcdLeaderTest, TheFirstToCreateTheKeyLeads) {
  a_.start(kStart);
  EXPECT_TRUE(a_.led);
  EXPECT_TRUE(a_.acts(kStart));
  EXPECT_EQ(etcd_.find("/distrun/leader")->value, "a:29400 a");
}

TEST_F(EtcdLeaderTest, TheSecondStandsByAndSendsAgentsToTheFirst) {
  a_.start(kStart);
  b_.start(kStart);
  EXPECT_FALSE(b_.led);
  EXPECT_EQ(b_.follows, "a:29400");
  EXPECT_NE(b_.watching, 0);
}

TEST_F(EtcdLeaderTest, OfTwoThatCampaignAtOnceOneLeads) {
  a_.tell(leader::Start{}, kStart);
  b_.tell(leader::Start{}, kStart);
  for (int i = 0; i < 10; ++i) {
    if (!a_.asked.empty()) a_.answer_one(kStart);
    if (!b_.asked.empty()) b_.answer_one(kStart);
  }
  EXPECT_TRUE(a_.led);
  EXPECT_FALSE(b_.led);
  EXPECT_EQ(b_.follows, "a:29400");
}

TEST_F(EtcdLeaderTest, ALeaderReadsAllRecordsAlsoOverManyPages) {
  for (int i = 0; i < 200; ++i) etcd_.put("/distrun/jobs/" + std::to_string(i), "r");
  etcd_.put("/distrun/jobs0", "not of the jobs");
  a_.start(kStart);
  ASSERT_TRUE(a_.led);
  EXPECT_EQ(a_.led->jobs.size(), 200u);
}

TEST_F(EtcdLeaderTest, ALeaderWhoseEtcdAnswersLeadsOn) {
  a_.start(kStart);
  a_.run(kStart, kStart + seconds(60));
  EXPECT_TRUE(a_.led);
  EXPECT_TRUE(a_.acts(kStart + seconds(60)));
}

TEST_F(EtcdLeaderTest, AnotherTakesOverWithinTheLeaseOfALeaderThatDied) {
  a_.start(kStart);
  b_.start(kStart);
  ASSERT_TRUE(etcd_.expire(kStart + seconds(2)));
  b_.tell(leader::Changed{b_.watching, std::nullopt}, kStart + seconds(2));
  b_.answer_all(kStart + seconds(2));
  EXPECT_TRUE(b_.led);
}

TEST_F(EtcdLeaderTest, AStandbyWithADeafWatchFindsOutByItself) {
  a_.start(kStart);
  b_.start(kStart);
  b_.run(kStart, kStart + seconds(5));
  EXPECT_TRUE(b_.led);
}

TEST_F(EtcdLeaderTest, ItStopsToActBeforeEtcdCanGiveTheKeyToAnother) {
  a_.start(kStart);
  EXPECT_FALSE(a_.acts(kStart + milliseconds(1500)));
  EXPECT_NE(etcd_.find("/distrun/leader"), nullptr);
  EXPECT_FALSE(etcd_.expire(kStart + milliseconds(1999)));
}

TEST_F(EtcdLeaderTest, TheTimeCountsFromWhenAKeepAliveWasSentNotFromItsAnswer) {
  a_.start(kStart);
  a_.tell(leader::Tick{}, kStart + milliseconds(400));
  a_.answer_one(kStart + milliseconds(400));
  ASSERT_EQ(a_.asked.size(), 1u);
  a_.answer_one(kStart + milliseconds(1400));
  EXPECT_TRUE(a_.acts(kStart + milliseconds(1899)));
  EXPECT_FALSE(a_.acts(kStart + milliseconds(1900)));
}

TEST_F(EtcdLeaderTest, AKeepAliveIsAskedForOnlyAfterALookThatFoundTheKeyItsOwn) {
  a_.start(kStart);
  a_.tell(leader::Tick{}, kStart + milliseconds(400));
  ASSERT_EQ(a_.asked.size(), 1u);
  EXPECT_EQ(std::get<Range>(a_.asked.front().request).key, "/distrun/leader");
  a_.fail_one(kStart + milliseconds(1399));
  EXPECT_TRUE(a_.asked.empty());
  EXPECT_FALSE(a_.acts(kStart + milliseconds(1500)));
}

TEST_F(EtcdLeaderTest,
       ALookThatFindsTheKeyGoneOrAnothersEndsTheLeadershipWithoutAnyNewsOfTheWatch) {
  for (const bool anothers : {false, true}) {
    ModelEtcd etcd;
    Replica a(etcd, "a");
    a.start(kStart);
    etcd.erase("/distrun/leader");
    if (anothers) etcd.put("/distrun/leader", "b:29400 b");
    a.tell(leader::Tick{}, kStart + milliseconds(400));
    a.answer_one(kStart + milliseconds(400));
    EXPECT_FALSE(a.led);
    EXPECT_THAT(a.halted, HasSubstr(anothers ? "b:29400 b leads now" : "/distrun/leader is gone"));
  }
}

TEST_F(EtcdLeaderTest, AWatchThatEndedBeginsAnewAfterTheLastLookNotWhereHistoryMayBeCompacted) {
  a_.start(kStart);
  const Revision first = a_.watched_from;
  for (int i = 0; i < 100; ++i) etcd_.put("/elsewhere", std::to_string(i));
  a_.run(kStart, kStart + seconds(10));
  a_.tell(leader::Deaf{a_.watching}, kStart + seconds(10));
  a_.run(kStart + seconds(10), kStart + seconds(11));
  EXPECT_EQ(a_.watched_from, first + 100);
}

// As etcd, while it elects.
TEST_F(EtcdLeaderTest, OneThatIsNotSureForAWhileLeadsOnIfItHasHeldTheKeyAllAlong) {
  a_.start(kStart);
  a_.tell(leader::Tick{}, kStart + milliseconds(400));
  a_.tell(leader::Tick{}, *a_.deadline());
  const TimePoint back = kStart + milliseconds(3500);
  EXPECT_FALSE(a_.acts(back));
  EXPECT_TRUE(a_.leads(back));
  EXPECT_EQ(a_.went_on, 0);
  etcd_.promote(kStart + seconds(2));
  a_.answer_all(back);
  EXPECT_TRUE(a_.led);
  EXPECT_TRUE(a_.acts(back));
  EXPECT_EQ(a_.went_on, 1);
}

TEST_F(EtcdLeaderTest, OneThatIsNotSureForLongerThanTheNextOneWaitsForItsMembersGivesUp) {
  a_.start(kStart);
  a_.tell(leader::Tick{}, kStart + milliseconds(400));
  EXPECT_TRUE(a_.leads(kStart + milliseconds(4499)));
  EXPECT_FALSE(a_.leads(kStart + milliseconds(4500)));
  a_.tell(leader::Tick{}, kStart + milliseconds(4500));
  EXPECT_FALSE(a_.led);
}

TEST_F(EtcdLeaderTest, ALeaseThatEtcdMakesLongerIsTheMeasureOfAll) {
  a_.start(kStart);
  a_.tell(leader::Tick{}, kStart + milliseconds(400));
  a_.answer_one(kStart + milliseconds(400));
  a_.tell(leader::Answered{a_.asked.front().number, KeptAlive{8}}, kStart + milliseconds(410));
  EXPECT_TRUE(a_.acts(kStart + milliseconds(6399)));
  EXPECT_FALSE(a_.acts(kStart + milliseconds(6400)));
}

TEST_F(EtcdLeaderTest, ALeaderThatWasPausedDoesNotActWhenItWakes) {
  a_.start(kStart);
  b_.start(kStart);
  // Ten seconds without a single event here, while the other took over.
  const TimePoint awake = kStart + seconds(10);
  b_.run(kStart, awake - seconds(1));
  ASSERT_TRUE(b_.led);
  EXPECT_FALSE(a_.acts(awake)) << "before it is told anything";
  a_.tell(leader::Tick{}, awake);
  EXPECT_FALSE(a_.led);
  EXPECT_THAT(a_.halted, HasSubstr("paused"));
}

TEST_F(EtcdLeaderTest, AnAnswerThatWaitedWhileItWasPausedProvesNothing) {
  a_.start(kStart);
  a_.tell(leader::Tick{}, kStart + milliseconds(400));
  a_.answer_one(kStart + milliseconds(400));
  ASSERT_EQ(a_.asked.size(), 1u);
  const int number = a_.asked.front().number;
  const TimePoint awake = kStart + seconds(10);
  a_.tell(leader::Answered{number, KeptAlive{2}}, awake);
  EXPECT_FALSE(a_.led);
  EXPECT_FALSE(a_.acts(awake));
}

TEST_F(EtcdLeaderTest, WhileEtcdIsSilentItDecidesNothingAndLeadsAgainOnceItAnswers) {
  a_.start(kStart);
  a_.tell(leader::Tick{}, kStart + milliseconds(400));
  a_.tell(leader::Tick{}, *a_.deadline());
  EXPECT_FALSE(a_.acts(*a_.deadline()));
  a_.tell(leader::Tick{}, *a_.deadline());
  EXPECT_FALSE(a_.led);
  const TimePoint back = kStart + seconds(30);
  while (!a_.asked.empty()) {
    const int number = a_.asked.front().number;
    a_.asked.pop_front();
    a_.tell(leader::Answered{number, Failed{"etcd does not answer", false}}, kStart + seconds(5));
  }
  a_.run(back, back + seconds(5));
  EXPECT_TRUE(a_.led);
}

TEST_F(EtcdLeaderTest, ALeaderWhoseKeyIsDeletedStops) {
  a_.start(kStart);
  etcd_.erase("/distrun/leader");
  a_.tell(leader::Changed{a_.watching, std::nullopt}, kStart + milliseconds(10));
  EXPECT_FALSE(a_.led);
}

TEST_F(EtcdLeaderTest, ALeaderWhoseLeaseEtcdHasEndedStops) {
  a_.start(kStart);
  a_.tell(leader::Tick{}, kStart + milliseconds(400));
  a_.answer_one(kStart + milliseconds(400));
  const int number = a_.asked.front().number;
  a_.tell(leader::Answered{number, KeptAlive{0}}, kStart + milliseconds(401));
  EXPECT_FALSE(a_.led);
}

TEST_F(EtcdLeaderTest, ACampaignWhoseAnswerWasLostIsRecognised) {
  a_.tell(leader::Start{}, kStart);
  a_.answer_one(kStart);
  a_.answer_one(kStart);
  ASSERT_EQ(a_.phase(), LeaderPhase::campaigning);
  const leader::Ask ask = a_.asked.front();
  etcd_.carry_out(ask.request, kStart);  // its answer is lost, and the gateway tries again
  a_.answer_all(kStart);
  EXPECT_TRUE(a_.led);
}

TEST_F(EtcdLeaderTest, AStandbyThatLosesEtcdStillSendsAgentsToTheLeader) {
  a_.start(kStart);
  b_.start(kStart);
  b_.tell(leader::Tick{}, kStart + seconds(2));
  ASSERT_FALSE(b_.asked.empty());
  b_.tell(leader::Answered{b_.asked.front().number, Failed{"silence", false}}, kStart + seconds(4));
  EXPECT_EQ(b_.follows, "a:29400");
}

TEST_F(EtcdLeaderTest, OneThatResignsGivesTheKeyBackAtOnce) {
  a_.start(kStart);
  a_.tell(leader::Resign{}, kStart + milliseconds(1));
  a_.answer_all(kStart + milliseconds(1));
  EXPECT_FALSE(a_.led);
  EXPECT_TRUE(a_.resigned);
  EXPECT_EQ(etcd_.find("/distrun/leader"), nullptr);
}

TEST_F(EtcdLeaderTest, OneThatResignsDoesNotWaitForADeadEtcd) {
  a_.start(kStart);
  a_.tell(leader::Resign{}, kStart);
  const auto at_last = a_.deadline();
  ASSERT_TRUE(at_last);
  EXPECT_LE(*at_last - kStart, milliseconds(500));
  a_.tell(leader::Tick{}, *at_last);
  EXPECT_TRUE(a_.resigned);
}

}  // namespace
}  // namespace distrun::rendezvous::etcd
