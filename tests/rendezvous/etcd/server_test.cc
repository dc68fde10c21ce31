// What a coordinator does whose decisions are durable only a while later, and what one says that
// stands by: on real sockets.
#include "rendezvous/server/coordinator_server.h"
#include "rendezvous/server/takeover_port.h"
#include "tests/network/stub_agent.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace distrun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::StartsWith;

// A server's thread, and what waits to be durable.
class LateServer : public testing::Test {
 protected:
  LateServer() : work_(io_.get_executor()) {
    CoordinatorServerOptions options;
    options.save_async = [this](const Record& record, std::function<void()> saved) {
      kept_ += " save:" + record.job;
      records_.push_back({record.job, std::move(saved)});
    };
    options.forget = [this](const std::string& job) -> Result<void> {
      kept_ += " forget:" + job;
      return {};
    };
    options.may_act = [this](TimePoint) { return acts_.load(); };
    options.may_tell = [this](TimePoint) { return tells_.load(); };
    options.unreadable = {{"damaged", "the record of job damaged cannot be read"}};
    options.max_held = kMaxHeld;
    options.on_overfull = [this] { ++overfull_; };
    server_ = *CoordinatorServer::listen(io_, std::move(options));
    port_ = server_->port();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~LateServer() override {
    stop();
    work_.reset();
    thread_.join();
  }

  void on_thread(const std::function<void()>& what) {
    std::promise<void> done;
    boost::asio::post(io_, [&] {
      what();
      done.set_value();
    });
    done.get_future().wait();
  }
  // Waits until a record of that job is the oldest that is not durable yet.
  bool waits(const std::string& job) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(20);
    for (bool found = false; std::chrono::steady_clock::now() < deadline;) {
      on_thread([&] { found = !records_.empty() && records_.front().first == job; });
      if (found) return true;
    }
    return false;
  }
  bool waits_now() { return waiting() > 0; }
  std::size_t waiting() {
    std::size_t records = 0;
    on_thread([&] { records = records_.size(); });
    return records;
  }
  bool wait(std::size_t records) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(20);
    while (waiting() != records)
      if (std::chrono::steady_clock::now() > deadline) return false;
    return true;
  }
  void make_durable() {
    on_thread([this] {
      const auto saved = std::move(records_.front().second);
      records_.pop_front();
      saved();
    });
  }
  // What was asked to be kept since the last look, in that order.
  std::string asked_to_keep() {
    std::string order;
    on_thread([&] { order = std::exchange(kept_, {}); });
    return order;
  }
  void stop() {
    on_thread([this] { server_.reset(); });
  }

  static constexpr std::size_t kMaxHeld = 200;
  void tell_again() {
    tells_ = true;
    on_thread([this] { server_->go_on(); });
  }

  std::atomic<bool> acts_ = true;
  std::atomic<bool> tells_ = true;
  std::atomic<int> overfull_ = 0;
  std::uint16_t port_ = 0;

 private:
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::deque<std::pair<std::string, std::function<void()>>> records_;
  std::string kept_;
  std::unique_ptr<CoordinatorServer> server_;
  std::thread thread_;
};

// What an agent waits for, in a thread of its own.
class Listening {
 public:
  explicit Listening(StubAgent& agent)
      : welcome_(std::async(std::launch::async, [&agent] { return agent.await<Welcome>(); })) {}
  bool hears_nothing() {
    return welcome_.wait_for(milliseconds(100)) == std::future_status::timeout;
  }
  bool is_welcome() { return welcome_.get().has_value(); }

 private:
  std::future<std::optional<Welcome>> welcome_;
};

// Of an agent that has heard something before: the next message, if it is a ping; and answers it.
std::optional<Ping> next_ping(StubAgent& agent) {
  std::size_t size = 0;
  for (const char byte : agent.socket().receive(kFrameHeaderBytes))
    size = size << 8U | static_cast<unsigned char>(byte);
  const auto message = decode_coordinator_message(agent.socket().receive(size));
  const Ping* const ping = message ? std::get_if<Ping>(&*message) : nullptr;
  if (ping == nullptr) return std::nullopt;
  agent.say(Pong{ping->number});
  return *ping;
}

constexpr int kLongerThanThat = 70;
// Pinged often, and lost after not being heard for three seconds; kLongerThanThat pings take
// longer.
Join impatient(const std::string& job) {
  Join join = join_of(job, "host-a", 1);
  join.terms.beat = milliseconds(50);
  join.terms.beats_missed = 60;
  join.terms.max_restarts = 1;
  return join;
}

TEST_F(LateServer, NobodyHearsOfARoundBeforeItIsDurable) {
  StubAgent agent(port_, join_of("train", "host-a", 1));
  Listening listening(agent);
  ASSERT_TRUE(waits("train"));
  EXPECT_TRUE(listening.hears_nothing());
  make_durable();
  EXPECT_TRUE(listening.is_welcome());
}

TEST_F(LateServer, WhatIsDecidedMeanwhileWaitsForItsOwnRecord) {
  StubAgent first(port_, join_of("one", "host-a", 1));
  ASSERT_TRUE(waits("one"));
  StubAgent second(port_, join_of("two", "host-b", 1));
  Listening listening(second);
  make_durable();
  EXPECT_TRUE(first.await<Welcome>());
  ASSERT_TRUE(waits("two"));
  EXPECT_TRUE(listening.hears_nothing());
  make_durable();
  EXPECT_TRUE(listening.is_welcome());
}

TEST_F(LateServer, WhoMayNotActDecidesNothing) {
  acts_ = false;
  StubAgent agent(port_, join_of("train", "host-a", 1));
  Listening listening(agent);
  EXPECT_TRUE(listening.hears_nothing());
  EXPECT_FALSE(waits_now());
  stop();
  EXPECT_FALSE(listening.is_welcome());
}

TEST_F(LateServer, WhoMayNotActAnyMoreDoesNotTellWhatItDecidedBefore) {
  StubAgent agent(port_, join_of("train", "host-a", 1));
  Listening listening(agent);
  ASSERT_TRUE(waits("train"));
  acts_ = false;
  make_durable();
  stop();
  EXPECT_FALSE(listening.is_welcome());
}

TEST_F(LateServer, AnEndedJobIsForgottenBeforeItsNextRunIsKeptAlsoWhileAnothersRecordWaits) {
  StubAgent ended(port_, join_of("train", "host-a", 1));
  ASSERT_TRUE(waits("train"));
  make_durable();
  const auto welcome = ended.await<Welcome>();
  ASSERT_TRUE(welcome);
  Outcome done;
  done.round = welcome->round;
  done.result = RoundResult::succeeded;
  ended.say(Ended{done, 0});
  ASSERT_TRUE(waits("train"));
  make_durable();
  ASSERT_TRUE(ended.await<Over>());
  StubAgent other(port_, join_of("other", "host-b", 1));
  ASSERT_TRUE(waits("other"));
  asked_to_keep();
  StubAgent anew(port_, join_of("train", "host-c", 1));
  ASSERT_TRUE(wait(2));
  make_durable();
  make_durable();
  ASSERT_TRUE(anew.await<Welcome>());
  EXPECT_EQ(asked_to_keep(), " forget:train save:train");
}

TEST_F(LateServer, PingsDoNotWaitForAnotherJobsRecord) {
  StubAgent member(port_, impatient("train"));
  ASSERT_TRUE(waits("train"));
  make_durable();
  ASSERT_TRUE(member.await<Welcome>());
  ASSERT_TRUE(next_ping(member));
  StubAgent other(port_, join_of("other", "host-b", 1));
  ASSERT_TRUE(waits("other"));
  for (int i = 0; i < kLongerThanThat; ++i) ASSERT_TRUE(next_ping(member)) << "after " << i;
  EXPECT_TRUE(waits_now());
}

TEST_F(LateServer, APingNamesNoRoundThatIsNotDurable) {
  StubAgent member(port_, impatient("train"));
  ASSERT_TRUE(waits("train"));
  make_durable();
  const auto first = member.await<Welcome>();
  ASSERT_TRUE(first);
  Outcome stopped;
  stopped.round = first->round;
  member.say(Ended{stopped, 40'002});
  ASSERT_TRUE(waits("train"));
  for (int i = 0; i < 30; ++i) {
    const auto ping = next_ping(member);
    ASSERT_TRUE(ping) << "after " << i;
    EXPECT_EQ(ping->last, first->round);
  }
  make_durable();
  const auto second = member.await<Welcome>();
  ASSERT_TRUE(second);
  EXPECT_EQ(next_ping(member)->last, second->round);
}

TEST_F(LateServer, WhoIsNotSureThatItLeadsDecidesAndTellsItOnceItIs) {
  tells_ = false;
  StubAgent agent(port_, join_of("train", "host-a", 1));
  Listening listening(agent);
  ASSERT_TRUE(waits("train"));
  make_durable();
  EXPECT_TRUE(listening.hears_nothing());
  tell_again();
  EXPECT_TRUE(listening.is_welcome());
}

TEST_F(LateServer, WhoIsNotSureThatItLeadsKeepsItsMembers) {
  StubAgent member(port_, impatient("train"));
  ASSERT_TRUE(waits("train"));
  make_durable();
  const auto round = member.await<Welcome>();
  ASSERT_TRUE(round);
  ASSERT_TRUE(next_ping(member));
  tells_ = false;
  for (int i = 0; i < kLongerThanThat; ++i) ASSERT_TRUE(next_ping(member)) << "after " << i;
  Outcome stopped;
  stopped.round = round->round;
  member.say(Ended{stopped, 40'002});
  tell_again();
  ASSERT_TRUE(waits("train"));
  make_durable();
  EXPECT_TRUE(member.await<Welcome>());
}

TEST_F(LateServer, WhatWaitsHasALimitAndPastItNothingIsDecided) {
  std::deque<StubAgent> agents;
  for (int i = 0; overfull_ == 0 && i < 1000; ++i)
    agents.emplace_back(port_, join_of("job-" + std::to_string(i), "host-a", 1));
  EXPECT_EQ(overfull_, 1);
  const std::size_t records = waiting();
  EXPECT_LT(records, kMaxHeld);
  make_durable();
  EXPECT_EQ(waiting(), records - 1);
  stop();
  EXPECT_FALSE(agents.front().await<Welcome>());
}

TEST_F(LateServer, AJobWhoseRecordCannotBeReadIsRefusedAndNoOther) {
  StubAgent refused(port_, join_of("damaged", "host-a", 1));
  const auto answer = refused.await<Refused>();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code, RefusalCode::limit);
  EXPECT_EQ(answer->why, "the record of job damaged cannot be read");
  StubAgent other(port_, join_of("train", "host-a", 1));
  ASSERT_TRUE(waits("train"));
  make_durable();
  EXPECT_TRUE(other.await<Welcome>());
  EXPECT_EQ(asked_to_keep(), " save:train");
}

TEST_F(LateServer, AJobWhoseRecordCannotBeReadGoesOnWhereItsWorkersRun) {
  Join join = join_of("damaged", "host-a", 1);
  join.held.emplace();
  StubAgent comes_back(port_, join);
  const auto answer = comes_back.await<Refused>();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code, RefusalCode::not_yet);
}

// ---- standing by -------------------------------------------------------------------------------

std::string page_of(const Refused& answer) {
  boost::asio::io_context io(1);
  auto port = *TakeoverPort::listen(io, "127.0.0.1");
  port->answer_with(answer);
  const std::uint16_t number = port->port();
  std::string all;
  std::thread browser([&] {
    StoreClient client(number);
    client.send("GET /status?json HTTP/1.1\r\n\r\n");
    for (std::string byte = client.receive(1); !byte.empty(); byte = client.receive(1)) all += byte;
    boost::asio::post(io, [&] { port.reset(); });
  });
  io.run();
  browser.join();
  return all;
}

TEST(StandbyPage, SendsToWhoLeads) {
  Refused answer;
  answer.code = RefusalCode::elsewhere;
  answer.why = "this distrund stands by; [fd77::1]:29400 leads";
  answer.address = "fd77::1";
  answer.port = 29400;
  const std::string page = page_of(answer);
  EXPECT_THAT(page, StartsWith("HTTP/1.1 307 "));
  EXPECT_THAT(page, HasSubstr("\r\nLocation: http://[fd77::1]:29400/status\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\n\r\nthis distrund stands by"));
}

TEST(StandbyPage, SaysThatNobodyLeads) {
  Refused answer;
  answer.code = RefusalCode::not_yet;
  answer.why = "this distrund stands by, and no other leads at the moment";
  const std::string page = page_of(answer);
  EXPECT_THAT(page, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(page, HasSubstr("no other leads"));
}

}  // namespace
}  // namespace distrun::rendezvous
