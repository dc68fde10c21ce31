#include "launcher/hosts/fan_out.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

namespace distrun::launcher {
namespace {

using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string to_text(const HostsEffect& effect) {
  struct Text {
    std::string operator()(const ConnectHost& e) { return "connect " + std::to_string(e.host); }
    std::string operator()(const OrderHost& e) {
      return "order " + std::to_string(e.host) +
             (e.meeting_place ? " " + e.meeting_place->host + " " +
                                    std::to_string(e.meeting_place->port.value_or(0))
                              : "");
    }
    std::string operator()(const SignalHost& e) {
      return "signal " + std::to_string(e.host) + " " + std::to_string(e.signo);
    }
    std::string operator()(const HangUpHost& e) { return "hang up " + std::to_string(e.host); }
    std::string operator()(const HostsSay& e) { return "say " + e.text; }
    std::string operator()(const HostsFinish& e) { return "finish " + std::to_string(e.status); }
  };
  return std::visit(Text(), effect);
}

class FanOutTest : public testing::Test {
 protected:
  void begin(std::vector<std::string> names, std::size_t min_hosts, bool find = true) {
    core_.emplace(FanOutPlan{std::move(names), min_hosts, find, "1.0", seconds(30)});
    step(HostsBegin{});
  }
  std::vector<std::string> step(const HostsEvent& event) {
    std::vector<std::string> texts;
    for (const HostsEffect& effect : core_->handle(event, now_)) texts.push_back(to_text(effect));
    return texts;
  }
  std::vector<std::string> greeted(std::size_t host, std::string address = "10.0.0.1",
                                   std::string client = "10.0.0.9", std::string version = "1.0") {
    return step(
        HostGreeted{host, {std::move(version), std::move(address), std::move(client), 20000}});
  }
  // By itself, with that status, after the job had begun there.
  std::vector<std::string> ended(std::size_t host, int status) {
    return step(HostEnded{host, status, true, status, false, {}});
  }
  std::vector<std::string> lost(std::size_t host, int status = 255) {
    return step(HostEnded{host, {}, false, status, false, {}});
  }
  std::vector<std::string> tick_after(Duration time) {
    now_ += time;
    return step(HostsTick{});
  }
  std::vector<std::string> running(std::size_t host) { return step(HostRunning{host}); }
  void all_work(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      greeted(i, "10.0.0." + std::to_string(i + 1));
      running(i);
    }
  }

  TimePoint now_{seconds(1000)};
  std::optional<FanOut> core_;
};

TEST_F(FanOutTest, TheFirstHostIsTheMeetingPlaceAtTheAddressOfItsConnection) {
  begin({"a", "b", "c"}, 3);
  EXPECT_THAT(greeted(1, "10.0.0.2"), IsEmpty());
  EXPECT_THAT(greeted(0, "10.0.0.1"), ElementsAre("order 0 10.0.0.1 20000"));
  EXPECT_THAT(running(0), ElementsAre("order 1 10.0.0.1 20000"));
  EXPECT_THAT(greeted(2, "10.0.0.3"), ElementsAre("order 2 10.0.0.1 20000"));
}

TEST_F(FanOutTest, NobodyIsSentToAHostThatRefusedTheOrder) {
  begin({"a", "b", "c"}, 2);
  greeted(0, "10.0.0.1");
  greeted(1, "10.0.0.2");
  greeted(2, "10.0.0.3");
  EXPECT_THAT(step(HostEnded{0, 126, false, 126, false, {}}),
              ElementsAre("order 1 10.0.0.2 20000"));
  EXPECT_THAT(running(1), ElementsAre("order 2 10.0.0.2 20000"));
}

TEST_F(FanOutTest, AllEndWellAndSoDoWe) {
  begin({"a", "b"}, 2);
  all_work(2);
  EXPECT_THAT(ended(1, 0), IsEmpty());
  EXPECT_THAT(ended(0, 0), ElementsAre("finish 0"));
  EXPECT_TRUE(core_->finished());
}

TEST_F(FanOutTest, AFirstHostThatIsThisMachineIsMetWhereAnotherHeardFromIt) {
  begin({"here", "b", "c"}, 3);
  EXPECT_THAT(greeted(0, "127.0.0.1", "127.0.0.1"), IsEmpty());
  EXPECT_THAT(greeted(2, "10.0.0.3", "10.0.0.9"), ElementsAre("order 0 10.0.0.9 20000"));
  EXPECT_THAT(running(0), ElementsAre("order 2 10.0.0.9 20000"));
}

TEST_F(FanOutTest, LoopbackWillDoIfAllAreThisMachine) {
  begin({"here", "there"}, 2);
  EXPECT_THAT(greeted(0, "::1", "::1"), IsEmpty());
  EXPECT_THAT(greeted(1, "127.0.0.1", "127.0.0.1"), ElementsAre("order 0 ::1 20000"));
  EXPECT_THAT(running(0), ElementsAre("order 1 ::1 20000"));
}

TEST_F(FanOutTest, WithoutAddressesOfAConnectionTheNameIsTheMeetingPlace) {
  begin({"ann@a", "b"}, 2);
  EXPECT_THAT(greeted(0, "", ""), ElementsAre("order 0 a 20000"));
}

TEST_F(FanOutTest, AMeetingPlaceThatTheUserNamedNeedsNoWaiting) {
  begin({"a", "b"}, 2, false);
  EXPECT_THAT(greeted(1), ElementsAre("order 1"));
}

TEST_F(FanOutTest, ABoundedNumberOfClientsIsOnItsWayAtATime) {
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("h" + std::to_string(i));
  core_.emplace(FanOutPlan{names, 40, true, "1.0", seconds(30)});
  EXPECT_EQ(step(HostsBegin{}).size(), FanOut::kConnectingMax);
  EXPECT_THAT(greeted(5), ElementsAre("connect 32"));
}

TEST_F(FanOutTest, AHostThatCannotBeReachedEndsAJobThatNeedsIt) {
  begin({"a", "b", "c"}, 3);
  all_work(2);
  const auto effects =
      step(HostEnded{2, {}, false, 255, false, "ssh: connect to host c: Connection refused\n"});
  EXPECT_THAT(effects,
              ElementsAre(HasSubstr("say c: ssh cannot start anything there: ssh: connect"),
                          "say 2 hosts of 3 left, and the job needs 3: it is stopped "
                          "everywhere",
                          "signal 0 15", "signal 1 15"));
  ended(0, 143);
  EXPECT_THAT(ended(1, 143), ElementsAre("finish 71"));
}

TEST_F(FanOutTest, ThoseWithoutAnOrderAreHungUp) {
  begin({"a", "b"}, 2);
  greeted(1);
  EXPECT_THAT(lost(0), ElementsAre(HasSubstr("say a: ssh"), HasSubstr("1 host of 2"), "hang up 1"));
  EXPECT_THAT(lost(1, 137), ElementsAre("finish 71"));
}

TEST_F(FanOutTest, TheNextIsTheMeetingPlaceIfTheFirstCannotBeReached) {
  begin({"a", "b", "c"}, 2);
  greeted(1, "10.0.0.2");
  EXPECT_THAT(lost(0), ElementsAre(HasSubstr("say a: "), "order 1 10.0.0.2 20000"));
}

TEST_F(FanOutTest, AHostOfAnotherVersionIsNotTaken) {
  begin({"a", "b"}, 2);
  EXPECT_THAT(greeted(0, "10.0.0.1", "10.0.0.9", "0.9"),
              ElementsAre(HasSubstr("say a: has distrun 0.9, and here is 1.0"), "hang up 0",
                          HasSubstr("say 1 host of 2 left"), "hang up 1"));
  lost(0, 137);
  EXPECT_THAT(lost(1, 137), ElementsAre("finish 77"));
}

TEST_F(FanOutTest, AHostThatDoesNotAnswerIsGivenUp) {
  begin({"a"}, 1);
  ASSERT_EQ(core_->next_deadline(), now_ + FanOut::kGreetMax);
  EXPECT_THAT(tick_after(FanOut::kGreetMax),
              ElementsAre("say a: no distrun answered within 60 s", "hang up 0"));
  EXPECT_THAT(lost(0, 137), ElementsAre("finish 75"));
}

TEST_F(FanOutTest, AHostThatRefusesTheOrderEndsAJobThatNeedsIt) {
  begin({"a", "b"}, 2);
  all_work(2);
  EXPECT_THAT(step(HostEnded{1, 127, false, 127, false, {}}),
              ElementsAre(HasSubstr("1 host of 2 left"), "signal 0 15"));
  EXPECT_THAT(ended(0, 143), ElementsAre("finish 127"));
}

TEST_F(FanOutTest, AHostThatIsLostIsNotFatalIfEnoughRemain) {
  begin({"a", "b", "c"}, 2);
  all_work(3);
  EXPECT_THAT(lost(1), ElementsAre("say b: the connection is lost; ssh ended with status 255"));
  ended(0, 0);
  EXPECT_THAT(ended(2, 0), ElementsAre("finish 0"));
}

TEST_F(FanOutTest, AHostThatIsLostEndsAJobThatNeedsIt) {
  begin({"a", "b"}, 2);
  all_work(2);
  EXPECT_THAT(lost(1), ElementsAre(HasSubstr("say b: the connection is lost"),
                                   HasSubstr("1 host of 2 left"), "signal 0 15"));
  EXPECT_THAT(ended(0, 143), ElementsAre("finish 69"));
}

TEST_F(FanOutTest, TheJobsStatusIsTheOneThatMostHostsEndWith) {
  begin({"a", "b", "c"}, 2);
  all_work(3);
  ended(0, 69);  // it had lost the others
  ended(1, 13);
  EXPECT_THAT(ended(2, 13), ElementsAre("finish 13"));
}

TEST_F(FanOutTest, TheOthersHaveTheirGraceAfterTheJobFailed) {
  begin({"a", "b"}, 2);
  all_work(2);
  EXPECT_THAT(ended(0, 13), IsEmpty());
  ASSERT_EQ(core_->next_deadline(), now_ + seconds(30) + FanOut::kFarewell);
  EXPECT_THAT(tick_after(seconds(45)), ElementsAre(HasSubstr("the job needs 2"), "signal 1 15"));
  EXPECT_THAT(ended(1, 143), ElementsAre("finish 13"));
}

TEST_F(FanOutTest, AStopIsPassedOnAndItsStatusIsOurs) {
  begin({"a", "b", "c"}, 3);
  all_work(2);
  EXPECT_THAT(step(HostsStop{SIGINT}), ElementsAre("signal 0 2", "signal 1 2", "hang up 2"));
  ended(0, 130);
  ended(1, 130);
  EXPECT_THAT(lost(2, 137), ElementsAre("finish 130"));
}

TEST_F(FanOutTest, AStopBeforeAnybodyWasReachedEndsAtOnce) {
  begin({"a"}, 1);
  EXPECT_THAT(step(HostsStop{SIGTERM}), ElementsAre("hang up 0"));
  EXPECT_THAT(lost(0, 137), ElementsAre("finish 143"));
}

TEST_F(FanOutTest, TheSecondStopIsPassedOnAndTheThirdHangsUp) {
  begin({"a"}, 1);
  greeted(0);
  EXPECT_THAT(step(HostsStop{SIGINT}), ElementsAre("signal 0 2"));
  EXPECT_THAT(step(HostsStop{SIGINT}), ElementsAre("signal 0 2"));
  EXPECT_THAT(step(HostsStop{SIGINT}), ElementsAre("hang up 0"));
  EXPECT_THAT(lost(0, 137), ElementsAre("finish 130"));
}

TEST_F(FanOutTest, AHostThatDoesNotEndIsHungUp) {
  begin({"a"}, 1);
  greeted(0);
  step(HostsStop{SIGTERM});
  EXPECT_THAT(tick_after(seconds(30)), IsEmpty());
  EXPECT_THAT(tick_after(FanOut::kFarewell),
              ElementsAre("say a: does not end; hanging up", "hang up 0"));
}

TEST_F(FanOutTest, AfterTheSecondStopThereIsNoGraceToWaitFor) {
  begin({"a"}, 1);
  greeted(0);
  step(HostsStop{SIGTERM});
  step(HostsStop{SIGTERM});
  EXPECT_EQ(core_->next_deadline(), now_ + FanOut::kFarewell);
}

TEST_F(FanOutTest, NoticesGoToThoseThatWork) {
  begin({"a", "b"}, 2);
  greeted(0);
  EXPECT_THAT(step(HostsNotice{SIGUSR1}), ElementsAre("signal 0 10"));
}

TEST_F(FanOutTest, AJobThatSucceededBeforeAHostWasLostHasSucceeded) {
  begin({"a", "b"}, 2);
  all_work(2);
  ended(0, 0);
  EXPECT_THAT(lost(1), Contains("finish 0"));
}

TEST_F(FanOutTest, SshsStatusIsTheHostsIfItsLastWordIsMissing) {
  begin({"a", "b"}, 2);
  all_work(2);
  EXPECT_THAT(lost(0, 0), IsEmpty());
  EXPECT_THAT(lost(1, 0), ElementsAre("finish 0"));
}

TEST_F(FanOutTest, AnSshThatWasKilledTellsNothing) {
  begin({"a", "b"}, 1);
  all_work(2);
  EXPECT_THAT(step(HostEnded{0, {}, true, 137, true, {}}),
              ElementsAre("say a: the connection is lost; ssh ended with status 137"));
}

TEST_F(FanOutTest, AfterALostHostTheOthersStillHaveTheirGrace) {
  begin({"a", "b", "c"}, 2);
  all_work(3);
  lost(1);
  EXPECT_THAT(ended(0, 13), IsEmpty());
  EXPECT_EQ(core_->next_deadline(), now_ + seconds(30) + FanOut::kFarewell);
  EXPECT_THAT(ended(2, 13), ElementsAre("finish 13"));
}

TEST(HostTrouble, SaysWhatSshSaidAndWhatToDo) {
  const auto text = [](int status, const char* words) {
    return explain_host_trouble("h1", status, words).text;
  };
  EXPECT_EQ(text(255, "Warning: x\r\nroot@h1: Permission denied (publickey).\r\n"),
            "ssh cannot start anything there: Warning: x; root@h1: Permission denied (publickey).; "
            "no key of yours opens it without a question: ssh-copy-id, or ssh-agent; try: ssh -o "
            "BatchMode=yes h1 true");
  EXPECT_THAT(text(255, "ssh: Could not resolve hostname h1: x"),
              HasSubstr("nobody knows that name"));
  EXPECT_THAT(
      text(127, "sh: 1: exec: distrun: not found"),
      HasSubstr("no distrun that can be run there (sh: 1: exec: distrun: not found); install"));
  EXPECT_THAT(text(255, "1\n2\n3\n4\n\n5\n6\n"), HasSubstr("there: 2; 3; 4; 5; 6; try"));
  EXPECT_THAT(text(2, "distrun: error: --from-stdin: no such option"),
              HasSubstr("another version"));
  EXPECT_EQ(explain_host_trouble("h1", 127, "").status, 127);
  EXPECT_EQ(explain_host_trouble("h1", 255, "").status, 71);
  EXPECT_EQ(explain_host_trouble("h1", 71, "cannot make a pipe for ssh").status, 71);
}

}  // namespace
}  // namespace distrun::launcher
