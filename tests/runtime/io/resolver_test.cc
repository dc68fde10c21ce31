// Lookups that the test answers when it likes; questions with real, short limits.
#include "runtime/io/resolver.h"

#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace distrun::io {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class ResolverTest : public ::testing::Test {
 protected:
  std::shared_ptr<Resolver::Question> ask(const std::string& host, Duration timeout) {
    answers_.emplace_back();
    return resolver_.ask(host, timeout, [this, place = answers_.size() - 1](auto answer) {
      answers_[place] = answer ? answer->front().to_string() : answer.error().detail;
    });
  }
  // Until there is nothing left to wait for.
  void run() {
    io_.restart();
    io_.run();
  }
  static Resolver::Addresses addresses(const char* text) {
    return {boost::asio::ip::make_address(text)};
  }

  boost::asio::io_context io_{1};
  std::vector<Resolver::Answer> lookups_;
  int cancelled_ = 0;
  Resolver resolver_{io_, [this](const std::string&, Duration, Resolver::Answer answer) {
                       lookups_.push_back(std::move(answer));
                       return [this] { ++cancelled_; };
                     }};
  std::vector<std::string> answers_;
};

TEST_F(ResolverTest, AnAddressIsItsOwnAnswer) {
  const auto question = ask("10.0.0.1", 1h);
  run();
  EXPECT_EQ(answers_[0], "10.0.0.1");
  EXPECT_TRUE(lookups_.empty());
}

TEST_F(ResolverTest, AnAnswerThatComesTooLateForOneQuestionServesTheNext) {
  const auto first = ask("host-a", 1ms);
  run();
  EXPECT_THAT(answers_[0], HasSubstr("host-a: not looked up within"));
  lookups_[0](addresses("10.0.0.7"));
  const auto second = ask("host-a", 1h);
  run();
  EXPECT_EQ(answers_[1], "10.0.0.7");
  EXPECT_EQ(lookups_.size(), 1u);
}

TEST_F(ResolverTest, ALookupThatGoesOnIsNotBegunAgain) {
  const auto first = ask("host-a", 1ms);
  run();
  const auto second = ask("host-a", 1h);
  EXPECT_EQ(lookups_.size(), 1u);
  lookups_[0](addresses("10.0.0.7"));
  EXPECT_EQ(answers_[1], "10.0.0.7");
  run();
}

TEST_F(ResolverTest, ANameServerThatHasGoneDoesNotMakeAKnownNameUnknown) {
  const auto first = ask("host-a", 1h);
  lookups_[0](addresses("10.0.0.7"));
  const auto other = ask("host-b", 1h);
  lookups_[1](Error{Errc::not_found, "host-b: Name or service not known"});
  EXPECT_EQ(answers_[0], "10.0.0.7");
  EXPECT_EQ(answers_[1], "host-b: Name or service not known");
}

TEST_F(ResolverTest, AQuestionThatIsGivenUpIsNotAnswered) {
  auto question = ask("host-a", 1h);
  question.reset();
  lookups_[0](addresses("10.0.0.7"));
  run();
  EXPECT_EQ(answers_[0], "");
}

TEST_F(ResolverTest, CancellingEndsTheLookupsAndAnswersNobody) {
  const auto question = ask("host-a", 1ms);
  resolver_.cancel();
  run();
  EXPECT_EQ(cancelled_, 1);
  EXPECT_EQ(answers_[0], "");
}

}  // namespace
}  // namespace distrun::io
