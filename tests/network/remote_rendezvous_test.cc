// RemoteRendezvous on real sockets: several nodes of one job in one process, on loopback.
#include "agent/remote_rendezvous.h"

#include "agent/rendezvous_words.h"
#include "rendezvous/server/coordinator_server.h"
#include "rendezvous/server/listener.h"
#include "rendezvous/server/store_server.h"
#include "tests/support/held_port.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace distrun::agent {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class Node {
 public:
  Node(boost::asio::io_context& io, std::string name, RemoteRendezvousOptions options) {
    options.host_name = std::move(name);
    options.job = "job";
    spec.nproc = 2;
    client = std::make_unique<RemoteRendezvous>(io, spec, std::move(options));
    client->on_answer([this](const Event& event) {
      if (const auto* welcome = std::get_if<Welcome>(&event)) places.push_back(welcome->assignment);
      if (std::holds_alternative<Disband>(event)) ++disbands;
      if (const auto* over = std::get_if<JobOver>(&event)) ends.push_back(*over);
      if (const auto* failed = std::get_if<RoundFailed>(&event)) no_round = *failed;
    });
  }

  void join() { client->join({}, {}); }
  void end_round(GroupResult result) {
    GroupVerdict verdict;
    verdict.generation = places.back().generation;
    verdict.result = result;
    if (result == GroupResult::failed) {
      verdict.first_failure = failure();
      client->join({verdict}, "the report");
    } else {
      client->join({verdict}, {});
    }
  }
  Ending failure() const {
    Ending ending;
    ending.rank = places.back().base_rank;
    ending.pid = 4711;
    ending.status = ExitedWith{3};
    ending.part = Part::first_failure;
    ending.at = Clock::now();
    return ending;
  }
  bool placed(std::size_t rounds = 1) const { return places.size() >= rounds; }

  Spec spec;
  std::unique_ptr<RemoteRendezvous> client;
  std::vector<Assignment> places;
  int disbands = 0;
  std::vector<JobOver> ends;
  std::optional<RoundFailed> no_round;
};

class RemoteRendezvousTest : public testing::Test {
 protected:
  RemoteRendezvousTest() {
    options_.endpoint = {"127.0.0.1", held_.port()};
    options_.terms.min_nodes = options_.terms.max_nodes = 2;
    options_.terms.command = "train.py";
    options_.terms.last_call = 0ms;
    options_.terms.beat = 500ms;  // lost after 1.5 s
    options_.start_timeout = 60s;
    options_.takeover_patience = 20s;
  }

  std::unique_ptr<Node> node(const std::string& name) {
    return std::make_unique<Node>(io_, name, options_);
  }
  testing::AssertionResult run_until(const std::function<bool()>& done, Duration patience = 40s) {
    const TimePoint until = Clock::now() + patience;
    while (!done()) {
      if (Clock::now() > until) return testing::AssertionFailure() << "not within the time";
      io_.restart();
      io_.run_one_for(20ms);
    }
    return testing::AssertionSuccess();
  }
  void nodes(int min, int max) {
    options_.terms.min_nodes = min;
    options_.terms.max_nodes = max;
  }

  // Long enough for all nodes to be there before it is over; a full round does not wait for it.
  static constexpr Duration kLastCall = 20s;

  test::HeldPort held_;
  boost::asio::io_context io_{1};
  RemoteRendezvousOptions options_;
};

TEST_F(RemoteRendezvousTest, TheFirstOfTwoAgentsHostsAndBothGetTheirPlaces) {
  const auto a = node("a");
  const auto b = node("b");
  a->join();
  b->join();
  ASSERT_TRUE(run_until([&] { return a->placed() && b->placed(); }));
  EXPECT_TRUE(a->client->hosting());
  EXPECT_FALSE(b->client->hosting());
  EXPECT_EQ(a->places[0].node_rank, NodeRank(0));
  EXPECT_EQ(b->places[0].node_rank, NodeRank(1));
  EXPECT_EQ(b->places[0].base_rank, Rank(2));
  EXPECT_EQ(b->places[0].world_size, 4);
  EXPECT_EQ(a->places[0].master_port, b->places[0].master_port);
  EXPECT_EQ(b->places[0].master_addr, "127.0.0.1");
}

TEST_F(RemoteRendezvousTest, EachRoundHasAStoreOfItsOwn) {
  options_.terms.max_restarts = 1;
  const auto a = node("a");
  const auto b = node("b");
  a->join();
  b->join();
  ASSERT_TRUE(run_until([&] { return a->placed() && b->placed(); }));
  const auto answers = [&](const Assignment& place) {
    boost::asio::ip::tcp::socket socket(io_);
    boost::system::error_code failure;
    socket.connect({boost::asio::ip::make_address(place.master_addr), place.master_port}, failure);
    return !failure;
  };
  EXPECT_TRUE(answers(a->places[0]));
  b->client->report({b->places[0].generation, b->failure()});
  ASSERT_TRUE(run_until([&] { return a->disbands == 1; }));
  a->end_round(GroupResult::stopped);
  b->end_round(GroupResult::failed);
  ASSERT_TRUE(run_until([&] { return a->placed(2) && b->placed(2); }));
  EXPECT_EQ(b->places[1].restart_count, 1);
  EXPECT_NE(a->places[1].master_port, a->places[0].master_port);
  EXPECT_TRUE(answers(a->places[1]));
  EXPECT_FALSE(answers(a->places[0])) << "no key of an older round can be read";
}

TEST_F(RemoteRendezvousTest, BothHearHowTheJobEnded) {
  const auto a = node("a");
  const auto b = node("b");
  a->join();
  b->join();
  ASSERT_TRUE(run_until([&] { return a->placed() && b->placed(); }));
  a->end_round(GroupResult::succeeded);
  b->end_round(GroupResult::succeeded);
  ASSERT_TRUE(run_until([&] { return !a->ends.empty() && !b->ends.empty(); }));
  EXPECT_EQ(b->ends[0].result, JobResult::succeeded);
  EXPECT_TRUE(run_until([&] { return a->client->idle(); })) << "all have heard";
}

TEST_F(RemoteRendezvousTest, TheReportOfAFailureComesToTheOtherNodes) {
  const auto a = node("a");
  const auto b = node("b");
  a->join();
  b->join();
  ASSERT_TRUE(run_until([&] { return a->placed() && b->placed(); }));
  b->client->report({b->places[0].generation, b->failure()});
  ASSERT_TRUE(run_until([&] { return a->disbands == 1 && b->disbands == 1; }));
  b->end_round(GroupResult::failed);
  a->end_round(GroupResult::stopped);
  ASSERT_TRUE(run_until([&] { return !a->ends.empty() && !b->ends.empty(); }));
  EXPECT_EQ(a->ends[0].exit_code, 3);
  EXPECT_EQ(a->ends[0].report, "the report");
  EXPECT_EQ(b->ends[0].exit_code, 3);
  EXPECT_EQ(b->ends[0].report, "") << "it has its own";
}

TEST_F(RemoteRendezvousTest, SaysWhatAnsweredIfNobodyHosts) {
  options_.is_host = false;
  options_.start_timeout = 3s;
  const auto a = node("a");
  a->join();
  ASSERT_TRUE(run_until([&] { return a->no_round.has_value(); }));
  EXPECT_EQ(a->no_round->error, RoundError::timed_out);
  EXPECT_THAT(a->no_round->why, HasSubstr("127.0.0.1:" + std::to_string(options_.endpoint.port) +
                                          ": connection refused"));
}

TEST_F(RemoteRendezvousTest, KnowsThatAnotherProtocolAnswers) {
  const auto store = rendezvous::StoreServer::listen(
      io_, {.address = "127.0.0.1", .port = options_.endpoint.port});
  ASSERT_TRUE(store);
  options_.start_timeout = 3s;
  const auto a = node("a");
  a->join();
  ASSERT_TRUE(run_until([&] { return a->no_round.has_value(); }));
  EXPECT_THAT(a->no_round->why, HasSubstr("another program listens there"));
}

TEST_F(RemoteRendezvousTest, SaysThatTheNameCannotBeLookedUp) {
  options_.endpoint.address = "nobody.invalid";
  options_.start_timeout = 3s;
  const auto a = node("a");
  a->join();
  ASSERT_TRUE(run_until([&] { return a->no_round.has_value(); }));
  EXPECT_THAT(a->no_round->why, HasSubstr("nobody.invalid: "));
  EXPECT_THAT(a->no_round->why, HasSubstr("a name that this machine can look up"));
}

TEST_F(RemoteRendezvousTest, RefusesToHostAtAnAddressThatIsTaken) {
  const auto other = rendezvous::Listener::open(io_, "127.0.0.1", options_.endpoint.port);
  ASSERT_TRUE(other);
  options_.is_host = true;
  const auto a = node("a");
  a->join();
  ASSERT_TRUE(run_until([&] { return a->no_round.has_value(); }));
  EXPECT_THAT(a->no_round->why, HasSubstr("is_host=true: cannot listen on 127.0.0.1:"));
}

TEST_F(RemoteRendezvousTest, HostsAtANameOfThisMachineAndAtIPv6) {
  for (const std::string address : {"localhost", "::1"}) {
    options_.endpoint.address = address;
    const auto a = node("a");
    const auto b = node("b");
    a->join();
    b->join();
    ASSERT_TRUE(run_until([&] { return a->placed() && b->placed(); })) << address;
    EXPECT_NE(a->client->hosting(), b->client->hosting()) << address << ": exactly one hosts";
  }
}

TEST_F(RemoteRendezvousTest, AClientOfACoordinatorThatIsThereDoesNotHost) {
  rendezvous::CoordinatorServerOptions daemon;
  daemon.port = options_.endpoint.port;
  const auto server = rendezvous::CoordinatorServer::listen(io_, daemon);
  ASSERT_TRUE(server);
  const auto a = node("a");
  const auto b = node("b");
  a->join();
  b->join();
  ASSERT_TRUE(run_until([&] { return a->placed() && b->placed(); }));
  EXPECT_FALSE(a->client->hosting());
  EXPECT_FALSE(b->client->hosting());
}

TEST_F(RemoteRendezvousTest, WorkersGoOnWhenTheDaemonIsBackWithItsRecords) {
  rendezvous::CoordinatorServerOptions daemon;
  daemon.port = options_.endpoint.port;
  auto server = rendezvous::CoordinatorServer::listen(io_, daemon);
  ASSERT_TRUE(server);
  const auto a = node("a");
  const auto b = node("b");
  a->join();
  b->join();
  ASSERT_TRUE(run_until([&] { return a->placed() && b->placed(); }));
  daemon.records = (*server)->coordinator().records();
  (*server)->close();
  run_until([] { return false; }, 300ms);
  server = rendezvous::CoordinatorServer::listen(io_, daemon);
  ASSERT_TRUE(server);
  const auto sealed = [&] {
    const auto* job = (*server)->coordinator().find("job");
    return job != nullptr && job->phase() == rendezvous::RoundPhase::sealed;
  };
  EXPECT_TRUE(run_until(sealed, 10s)) << "all are attached again";
  EXPECT_EQ(a->disbands + b->disbands, 0);
  a->end_round(GroupResult::succeeded);
  b->end_round(GroupResult::succeeded);
  EXPECT_TRUE(run_until([&] { return !a->ends.empty() && !b->ends.empty(); }));
}

TEST_F(RemoteRendezvousTest, TheNextNodeTakesOverWhenTheHostDies) {
  nodes(2, 3);
  options_.terms.last_call = kLastCall;
  auto a = node("a");
  const auto b = node("b");
  const auto c = node("c");
  a->join();
  b->join();
  c->join();
  ASSERT_TRUE(run_until([&] { return a->placed() && b->placed() && c->placed(); }));
  a.reset();  // its sockets close as those of a dead process
  ASSERT_TRUE(run_until([&] { return b->disbands == 1 && c->disbands == 1; }));
  b->end_round(GroupResult::stopped);
  c->end_round(GroupResult::stopped);
  ASSERT_TRUE(run_until([&] { return b->placed(2) && c->placed(2); }));
  EXPECT_EQ(b->places[1].node_count, 2);
  EXPECT_GT(b->places[1].generation, b->places[0].generation);
  EXPECT_TRUE(b->client->hosting() != c->client->hosting());
  b->end_round(GroupResult::succeeded);
  c->end_round(GroupResult::succeeded);
  EXPECT_TRUE(run_until([&] { return !b->ends.empty() && !c->ends.empty(); }));
}

TEST_F(RemoteRendezvousTest, OneOfTwoGivesUpWhenTheHostDies) {
  options_.takeover_patience = 3s;
  const auto b = node("b");
  auto a = node("a");
  a->join();
  ASSERT_TRUE(run_until([&] { return a->client->hosting(); }));
  b->join();
  ASSERT_TRUE(run_until([&] { return a->placed() && b->placed(); }));
  a.reset();
  ASSERT_TRUE(run_until([&] { return b->no_round.has_value(); }));
  EXPECT_EQ(b->no_round->error, RoundError::closed);
  EXPECT_THAT(b->no_round->why, HasSubstr("no majority of the 2 nodes"));
}

TEST_F(RemoteRendezvousTest, OneOfTwoGoesOnAloneIfTheUserSaysSo) {
  nodes(1, 2);
  options_.terms.last_call = kLastCall;
  options_.takeover = rendezvous::TakeoverRule::any;
  auto a = node("a");
  const auto b = node("b");
  a->join();
  ASSERT_TRUE(run_until([&] { return a->client->hosting(); }));
  b->join();
  ASSERT_TRUE(run_until([&] { return a->placed() && b->placed(); }));
  a.reset();
  ASSERT_TRUE(run_until([&] { return b->disbands == 1; }));
  b->end_round(GroupResult::stopped);
  ASSERT_TRUE(run_until([&] { return b->placed(2); }));
  EXPECT_EQ(b->places[1].node_count, 1);
}

TEST_F(RemoteRendezvousTest, AHostThatLeavesHandsOver) {
  nodes(1, 3);
  options_.terms.last_call = kLastCall;
  auto a = node("a");
  const auto b = node("b");
  const auto c = node("c");
  a->join();
  b->join();
  c->join();
  ASSERT_TRUE(run_until([&] { return a->placed() && b->placed() && c->placed(); }));
  a->client->leave({JobResult::interrupted});
  ASSERT_TRUE(run_until([&] { return a->client->idle(); }, 10s))
      << "it does not wait for the others";
  a.reset();
  ASSERT_TRUE(run_until([&] { return b->disbands == 1 && c->disbands == 1; }));
  b->end_round(GroupResult::stopped);
  c->end_round(GroupResult::stopped);
  ASSERT_TRUE(run_until([&] { return b->placed(2) && c->placed(2); }));
}

TEST_F(RemoteRendezvousTest, CanBeInterruptedWhileItLooks) {
  options_.is_host = false;
  const auto a = node("a");
  a->join();
  run_until([] { return false; }, 100ms);
  a->client->leave({JobResult::interrupted});
  EXPECT_TRUE(a->client->idle());
  EXPECT_FALSE(a->no_round);
}

TEST(RendezvousWordsTest, SayWhoIsThereAndWhatIsWaitedFor) {
  rendezvous::Waiting waiting;
  waiting.present = 2;
  waiting.min_nodes = 2;
  waiting.max_nodes = 3;
  waiting.hosts = {"host-a", "host-b"};
  waiting.sealing_in = 23'400ms;
  EXPECT_EQ(words(waiting), "2 of 3 nodes (host-a, host-b); sealing at 3, or with 2 in 24 s");
}

TEST(RendezvousWordsTest, SayHowManyAreNeeded) {
  rendezvous::Waiting waiting;
  waiting.present = 1;
  waiting.min_nodes = waiting.max_nodes = 4;
  waiting.hosts = {"host-a"};
  waiting.giving_up_in = 60s;
  EXPECT_EQ(words(waiting), "1 of 4 nodes (host-a); 4 are needed, giving up in 60 s");
}

}  // namespace
}  // namespace distrun::agent
