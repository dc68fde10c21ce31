#include "launcher/hosts/starting_side.h"

#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <unistd.h>

namespace distrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Duration kLong = std::chrono::seconds(60);

class StartingLineTest : public testing::Test {
 protected:
  StartingLineTest() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0); }
  ~StartingLineTest() override { hang_up(); }

  // The line over our end. `early`: what came together with the order.
  void watch(const std::string& early = {}, Duration silence_max = kLong) {
    StartingSide side;
    side.fd = ends_[0];
    side.frames.feed(early);
    line_.emplace(io_, side,
                  StartingLine::Handlers{[this](int signo) { signals_.push_back(signo); },
                                         [this](const std::string& why) { lost_.push_back(why); }},
                  silence_max);
  }
  void send(const std::string& bytes) {
    ASSERT_EQ(::send(ends_[1], bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  void hang_up() {
    if (ends_[1] >= 0) ::close(std::exchange(ends_[1], -1));
  }
  template <class Condition>
  void run_until(Condition condition) {
    const TimePoint deadline = Clock::now() + std::chrono::seconds(20);
    while (!condition() && Clock::now() < deadline) io_.run_one_for(std::chrono::seconds(1));
  }

  int ends_[2] = {-1, -1};
  boost::asio::io_context io_{1};
  std::optional<StartingLine> line_;
  std::vector<int> signals_;
  std::vector<std::string> lost_;
};

TEST_F(StartingLineTest, SignalsArriveInOrderAndBeatsMeanNothing) {
  watch();
  send("beat 0:\nsignal 2:15\nsig");
  send("nal 1:2\n");
  run_until([this] { return signals_.size() == 2; });
  EXPECT_THAT(signals_, ElementsAre(15, 2));
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(StartingLineTest, WhatCameWithTheOrderIsNotForgotten) {
  watch("signal 2:15\n");
  EXPECT_THAT(signals_, IsEmpty()) << "before anybody runs the loop";
  run_until([this] { return !signals_.empty(); });
  EXPECT_THAT(signals_, ElementsAre(15));
}

TEST_F(StartingLineTest, TheEndOfTheConnectionIsToldOnce) {
  watch();
  hang_up();
  run_until([this] { return !lost_.empty(); });
  io_.run_for(std::chrono::milliseconds(1));
  EXPECT_THAT(lost_, ElementsAre("the connection to the starting side is closed"));
}

TEST_F(StartingLineTest, SilenceIsTheEndOfTheConnection) {
  watch({}, std::chrono::milliseconds(20));
  run_until([this] { return !lost_.empty(); });
  EXPECT_THAT(lost_, ElementsAre("nothing was heard of the starting side for 20 ms"));
}

TEST_F(StartingLineTest, OtherBytesAreTheEndOfTheConnection) {
  watch();
  send("what is this, and why does it not end");
  run_until([this] { return !lost_.empty(); });
  EXPECT_THAT(lost_, ElementsAre(HasSubstr("not what a starting distrun says")));
}

TEST_F(StartingLineTest, ASignalThatIsNoneIsTheEndOfTheConnection) {
  watch();
  send("signal 3:999\n");
  run_until([this] { return !lost_.empty(); });
  EXPECT_THAT(lost_, ElementsAre("not a signal: '999'"));
  EXPECT_THAT(signals_, IsEmpty());
}

}  // namespace
}  // namespace distrun::launcher
