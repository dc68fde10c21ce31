// The coordinator's port on real sockets: agents, store clients and browsers at once; those that
// are silent, slow, of another version or hostile.
#include "rendezvous/server/coordinator_server.h"

#include "rendezvous/server/connection.h"
#include "rendezvous/server/takeover_port.h"
#include "tests/network/served.h"
#include "tests/network/stub_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <ifaddrs.h>
#include <string>
#include <sys/resource.h>
#include <vector>

namespace distrun::rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using wire::tcpstore::Op;

constexpr std::size_t kMiB = 1024 * 1024;

using ServedCoordinator = Served<CoordinatorServer, CoordinatorServerOptions>;

// All that comes until the other side closes.
std::string rest(StoreClient& client) {
  std::string all;
  for (;;) {
    const std::string byte = client.receive(1);
    if (byte.empty()) return all;
    all += byte;
  }
}

std::string fetch(std::uint16_t port, const std::string& request) {
  StoreClient browser(port);
  browser.send(request);
  return rest(browser);
}

class CoordinatorServerTest : public testing::Test {
 protected:
  // A one-node job of its own still gets its round.
  static void expect_alive(const ServedCoordinator& server) {
    static int jobs = 0;
    StubAgent agent(server.port(), join_of("alive-" + std::to_string(++jobs), "host-z", 1));
    EXPECT_TRUE(agent.await<Welcome>());
  }
};

TEST_F(CoordinatorServerTest, AgentsThatJoinGetTheirPlacesAndRankZerosStore) {
  ServedCoordinator server;
  server.start();
  Join first = join_of("train", "host-a", 2);
  first.nproc = 4;
  Join second = join_of("train", "host-b", 2);
  second.store_port = 40'002;
  StubAgent a(server.port(), first);
  const auto waiting = a.await<Waiting>();
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->present, 1);
  StubAgent b(server.port(), second);
  const auto at_a = a.await<Welcome>();
  const auto at_b = b.await<Welcome>();
  ASSERT_TRUE(at_a && at_b);
  EXPECT_EQ(at_a->node_rank, NodeRank(0));
  EXPECT_EQ(at_b->node_rank, NodeRank(1));
  EXPECT_EQ(at_b->base_rank, Rank(4));
  EXPECT_EQ(at_b->world_size, 5);
  EXPECT_EQ(at_b->master_addr, "127.0.0.1");
  EXPECT_EQ(at_b->master_port, 40'001);
}

TEST_F(CoordinatorServerTest, AJoinThatComesByteByByteIsAJoin) {
  ServedCoordinator server;
  server.start();
  StubAgent slow(server.port());
  const std::string bytes =
      std::string(greeting()) + encode(AgentMessage(join_of("train", "host-a", 1)));
  for (const char byte : bytes) ASSERT_TRUE(slow.socket().send({&byte, 1}));
  EXPECT_TRUE(slow.await<Welcome>());
}

TEST_F(CoordinatorServerTest, AMemberWhoseConnectionClosesIsLostToItsJobOnly) {
  ServedCoordinator server;
  server.start();
  auto a = std::make_unique<StubAgent>(server.port(), join_of("one", "host-a", 2));
  StubAgent b(server.port(), join_of("one", "host-b", 2));
  StubAgent other(server.port(), join_of("two", "host-c", 1));
  ASSERT_TRUE(a->await<Welcome>() && b.await<Welcome>() && other.await<Welcome>());
  a.reset();
  const auto disband = b.await<Disband>();
  ASSERT_TRUE(disband);
  EXPECT_THAT(disband->why, HasSubstr("host-a"));
  EXPECT_TRUE(other.hears_only_pings());
}

TEST_F(CoordinatorServerTest, AMemberThatAnswersNoPingIsLost) {
  ServedCoordinator server;
  server.start();
  Join quick = join_of("train", "host-a", 2);
  quick.terms.beat = milliseconds(1000);  // three: long enough for b to be late and not lost
  StubAgent deaf(server.port(), quick);
  quick.host = "host-b";
  quick.node = "host-b.1.1";
  StubAgent b(server.port(), quick);
  ASSERT_TRUE(b.await<Welcome>());
  const auto disband = b.await<Disband>();
  ASSERT_TRUE(disband);
  EXPECT_THAT(disband->why, HasSubstr("host-a"));
}

TEST_F(CoordinatorServerTest, AnotherVersionIsToldSoInWords) {
  ServedCoordinator server;
  server.start();
  StubAgent newer(server.port());
  newer.socket().send("DRUN2\n");
  const auto refused = newer.await<Refused>();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, RefusalCode::version);
  EXPECT_THAT(refused->why, HasSubstr("the same version of distrun"));
  EXPECT_TRUE(newer.socket().is_closed());
}

TEST_F(CoordinatorServerTest, BytesThatAreNoMessageAreRefusedLoggedAndHarmNobody) {
  ServedCoordinator server;
  server.start();
  const std::string hello(greeting());
  const auto refusal = [&](const std::string& bytes) {
    StubAgent hostile(server.port());
    hostile.socket().send(hello + bytes);
    const auto refused = hostile.await<Refused>();
    EXPECT_TRUE(hostile.socket().is_closed());
    return refused ? refused->why : "(none)";
  };
  EXPECT_THAT(refusal(std::string("\0\0\0\3abc", 7)), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(std::string("\0\0\0\2{}", 6)), HasSubstr("type: missing"));
  EXPECT_THAT(refusal("\xFF\xFF\xFF\xFF"), HasSubstr("a message of 4294967295 bytes"));
  EXPECT_THAT(refusal(encode(AgentMessage(Pong{1}))), HasSubstr("the first message is no join"));
  EXPECT_GE(server.logged("closed an agent's connection (peer=127.0.0.1:"), 1U);
  expect_alive(server);
}

TEST_F(CoordinatorServerTest, GarbageInAJobIsALossOfThatMember) {
  ServedCoordinator server;
  server.start();
  StubAgent a(server.port(), join_of("train", "host-a", 2));
  StubAgent b(server.port(), join_of("train", "host-b", 2));
  ASSERT_TRUE(a.await<Welcome>() && b.await<Welcome>());
  a.socket().send(std::string("\0\0\0\1?", 5));
  EXPECT_TRUE(b.await<Disband>());
}

TEST_F(CoordinatorServerTest, WhoSaysNothingOrOnlyHalfOfItIsClosed) {
  CoordinatorServerOptions options;
  // Long enough for the one that speaks at once to be heard on a busy machine.
  options.first_byte_within = milliseconds(1000);
  options.first_words_within = milliseconds(1000);
  ServedCoordinator server(options);
  server.start();
  const std::string join = std::string(greeting()) + encode(AgentMessage(join_of("j", "h", 1)));
  std::vector<StoreClient> silent;
  for (const std::string& part : {std::string(), std::string("D"), std::string("DRU"),
                                  std::string(greeting()), join.substr(0, join.size() - 1)}) {
    silent.emplace_back(server.port());
    silent.back().send(part);
  }
  for (StoreClient& each : silent) {
    EXPECT_THAT(rest(each), testing::AnyOf("", greeting())) << &each - silent.data();
  }
  expect_alive(server);
}

TEST_F(CoordinatorServerTest, AMemberMayBeSilentBetweenPings) {
  CoordinatorServerOptions options;
  options.first_words_within = milliseconds(1000);
  ServedCoordinator server(options);
  server.start();
  StubAgent a(server.port(), join_of("train", "host-a", 2));
  ASSERT_TRUE(a.await<Waiting>());
  std::this_thread::sleep_for(milliseconds(1500));
  StubAgent b(server.port(), join_of("train", "host-b", 2));
  EXPECT_TRUE(a.await<Welcome>());
}

TEST_F(CoordinatorServerTest, StoreClientsOfTheSamePortShareAStore) {
  ServedCoordinator server;
  server.start();
  StoreClient newest(server.port());
  newest.hello();
  newest.ask(Op::set, {"/k", "value"});
  newest.ask(Op::ping, {}, 1);
  newest.receive(4);
  StoreClient oldest(server.port());
  oldest.send(std::string("\x02\x02\0\0\0\0\0\0\0/k", 11));
  EXPECT_EQ(oldest.receive_blob(), "value");
  expect_alive(server);
}

TEST_F(CoordinatorServerTest, TheStatusPageShowsJobsMembersAndTheLastFailure) {
  ServedCoordinator server;
  server.start();
  Join join = join_of("train", "host-a", 2);
  join.token = "hidden";
  join.terms.max_restarts = 3;
  StubAgent a(server.port(), join);
  join.host = "host-b";
  join.node = "host-b.1.1";
  StubAgent b(server.port(), join);
  const auto welcome = a.await<Welcome>();
  ASSERT_TRUE(welcome && b.await<Welcome>());
  Failure failure;
  failure.host = "host-a";
  failure.status = "exited with status 13";
  failure.exit_code = 13;
  a.say(Failed{welcome->round, failure});
  ASSERT_TRUE(b.await<Disband>());
  const std::string page = fetch(server.port(), "GET /status HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"));
  EXPECT_THAT(page, HasSubstr(R"("job":"train")"));
  EXPECT_THAT(page, HasSubstr(R"("rank":1,"host":"host-b")"));
  EXPECT_THAT(page, HasSubstr(R"("status":"exited with status 13")"));
  EXPECT_THAT(page, Not(HasSubstr("hidden")));
}

TEST_F(CoordinatorServerTest, TheMetricsPageCountsJobsAndConnections) {
  ServedCoordinator server;
  server.start();
  StubAgent a(server.port(), join_of("a\"b", "host-a", 1));
  ASSERT_TRUE(a.await<Welcome>());
  const std::string page = fetch(server.port(), "GET /metrics?x=1 HTTP/1.0\r\n\r\n");
  EXPECT_THAT(page, HasSubstr("\ndistrun_jobs{phase=\"sealed\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("\ndistrun_job_members{job=\"a\\\"b\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("\ndistrun_connections{kind=\"agent\"} 1\n"));
}

TEST_F(CoordinatorServerTest, HttpIsAnsweredOnceInFullAndClosed) {
  ServedCoordinator server;
  server.start();
  const auto get = [&](const std::string& request) { return fetch(server.port(), request); };
  EXPECT_THAT(get("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(get("DELETE /status HTTP/1.1\r\n\r\n"), HasSubstr("\r\nAllow: GET, HEAD\r\n"));
  EXPECT_THAT(get("POST /status HTTP/1.1\r\nContent-Length: 9\r\n\r\n"),
              StartsWith("HTTP/1.1 405 Method Not Allowed\r\n"));
  EXPECT_THAT(get("HEAD /status HTTP/1.1\r\n\r\n"), EndsWith("\r\n\r\n"));
  EXPECT_THAT(get("NONSENSE\r\n\r\n"), StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  EXPECT_THAT(get("GET /status HTTP/1.1\r\nX: " + std::string(9'000, 'x') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  StoreClient slow(server.port());
  for (const char byte : std::string("GET /status HTTP/1.1\r\n\r\n")) slow.send({&byte, 1});
  slow.no_more_to_send();
  EXPECT_THAT(rest(slow), EndsWith("{\"jobs\":[]}\n"));
}

TEST_F(CoordinatorServerTest, ARoundIsSavedBeforeAnybodyHearsOfIt) {
  std::atomic<int> saved{-1};
  CoordinatorServerOptions options;
  options.save = [&](const Record& record) -> Result<void> {
    std::this_thread::sleep_for(milliseconds(50));  // as long as a disk takes
    saved = record.last.generation.value;
    return {};
  };
  ServedCoordinator server(options);
  server.start();
  StubAgent a(server.port(), join_of("train", "host-a", 1));
  const auto welcome = a.await<Welcome>();
  ASSERT_TRUE(welcome);
  EXPECT_EQ(saved, welcome->round.generation.value);
}

TEST_F(CoordinatorServerTest, AFullDiskIsLoudAndTheJobGoesOn) {
  CoordinatorServerOptions options;
  options.save = [](const Record&) -> Result<void> {
    return Error{Errc::io, "journal: No space left on device"};
  };
  ServedCoordinator server(options);
  server.start();
  StubAgent a(server.port(), join_of("train", "host-a", 1));
  EXPECT_TRUE(a.await<Welcome>());
  EXPECT_GE(server.logged("the job goes on without it (job=train, reason=journal: No space"), 1U);
}

TEST_F(CoordinatorServerTest, ARestoredJobTakesItsMemberBack) {
  const Join join = join_of("train", "host-a", 1);
  CoordinatorServerOptions options;
  Record record;
  record.job = "train";
  record.founder = join.node;
  record.terms = join.terms;
  record.last = Fence{0, Generation(4)};
  record.node_count = 1;
  options.records = {record};
  std::vector<HappeningKind> happened;
  options.on_happening = [&](const Happening& happening, TimePoint) {
    happened.push_back(happening.kind);
  };
  ServedCoordinator server(options);
  server.start();
  Join back = join;
  back.held = Join::Held{record.last, NodeRank(0), 1, 0, std::nullopt, join.node};
  StubAgent a(server.port(), back);
  const std::string wanted = R"("phase":"sealed","round":{"epoch":0,"generation":4})";
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  std::string page;
  do {
    a.hear_pings();
    page = fetch(server.port(), "GET /status HTTP/1.0\r\n\r\n");
  } while (page.find(wanted) == std::string::npos && Clock::now() < deadline);
  EXPECT_THAT(page, HasSubstr(wanted));
  server.close();
  EXPECT_THAT(happened, testing::Contains(HappeningKind::reattach));
}

TEST_F(CoordinatorServerTest, OnTheWildcardItLearnsTheAddressThatOthersReach) {
  std::string address;
  ifaddrs* all = nullptr;
  ASSERT_EQ(::getifaddrs(&all), 0);
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = "";
    const auto* in = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    ::inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
    if (!std::string(text).starts_with("127.")) address = text;
  }
  ::freeifaddrs(all);
  if (address.empty()) GTEST_SKIP() << "this machine has only loopback";
  std::vector<std::string> reached;
  CoordinatorServerOptions options;
  options.address = "0.0.0.0";
  options.on_input = [&](const Event& event, TimePoint) {
    if (const auto* at = std::get_if<ReachedAt>(&event)) reached.push_back(at->address);
  };
  ServedCoordinator server(options);
  server.start();
  expect_alive(server);  // by loopback: nothing new
  for (const char* host : {"host-a", "host-b"}) {
    StubAgent remote(server.port(), address.c_str());
    remote.say(join_of(host, host, 1));
    EXPECT_TRUE(remote.await<Welcome>());
  }
  server.close();
  EXPECT_THAT(reached, testing::ElementsAre(address));
}

TEST_F(CoordinatorServerTest, OneConnectionTooManyIsRefusedAndLoggedOnce) {
  CoordinatorServerOptions options;
  options.max_connections = 2;
  ServedCoordinator server(options);
  server.start();
  StubAgent first(server.port(), join_of("train", "host-a", 2));
  ASSERT_TRUE(first.await<Waiting>());
  StoreClient second(server.port());
  second.hello();
  second.ask(Op::num_keys, {});
  EXPECT_EQ(second.receive_number(), 0);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(StoreClient(server.port()).is_closed());
  EXPECT_EQ(server.logged("is one more than 2"), 1U);
}

TEST_F(CoordinatorServerTest, ClosingEndsEveryConnection) {
  ServedCoordinator server;
  server.start();
  StubAgent agent(server.port(), join_of("train", "host-a", 2));
  ASSERT_TRUE(agent.await<Waiting>());
  StoreClient store(server.port());
  store.hello();
  store.ask(Op::num_keys, {});
  store.receive_number();
  StoreClient silent(server.port());
  server.close();
  EXPECT_FALSE(agent.hear());
  EXPECT_TRUE(store.is_closed());
  EXPECT_TRUE(silent.is_closed());
}

TEST_F(CoordinatorServerTest, TwoThousandAgentsJoinAtOnce) {
  constexpr int kNodes = 2000;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_max < 2 * kNodes + 100)
    GTEST_SKIP() << "at most " << files.rlim_max << " file descriptors here";
  const rlimit before = files;
  files.rlim_cur = std::max<rlim_t>(files.rlim_cur, 2 * kNodes + 100);
  ::setrlimit(RLIMIT_NOFILE, &files);
  {
    ServedCoordinator server;
    server.start();
    const auto began = Clock::now();
    std::vector<StubAgent> agents;
    agents.reserve(kNodes);
    for (int i = 0; i < kNodes; ++i) {
      Join join = join_of("big", "host-" + std::to_string(i), kNodes);
      join.terms.beat = std::chrono::minutes(10);  // nobody answers before all have joined
      agents.emplace_back(server.port(), join);
    }
    std::vector<int> ranks;
    for (auto& agent : agents) {
      const auto welcome = agent.await<Welcome>();
      ASSERT_TRUE(welcome) << "agent " << ranks.size();
      ranks.push_back(welcome->node_rank.value);
    }
    RecordProperty("milliseconds", static_cast<int>((Clock::now() - began) / milliseconds(1)));
    std::sort(ranks.begin(), ranks.end());
    for (int i = 0; i < kNodes; ++i) ASSERT_EQ(ranks[static_cast<std::size_t>(i)], i);
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

// ---- the parts alone ---------------------------------------------------------------------------

class LoopTest : public testing::Test {
 protected:
  void run_until(const std::function<bool()>& done) {
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    while (!done() && Clock::now() < deadline) {
      io_.restart();
      io_.run_for(milliseconds(5));
    }
    EXPECT_TRUE(done());
  }
  boost::asio::io_context io_{1};
};

TEST_F(LoopTest, APeerThatDoesNotReadIsLostOnceMoreWaitsForItThanIsAllowed) {
  auto listener = Listener::open(io_, "127.0.0.1", 0);
  ASSERT_TRUE(listener);
  std::shared_ptr<Connection> connection;
  std::string why;
  (*listener)->serve("test", [&](Socket socket, const auto&) {
    connection = std::make_shared<Connection>(io_, std::move(socket), "peer", [] {});
    connection->set_callbacks(
        {.received = {}, .lost = [&](const std::string& reason) { why = reason; }});
    connection->start();
  });
  StoreClient deaf((*listener)->port());
  run_until([&] { return connection != nullptr; });
  const std::string bytes(1 << 20, 'x');
  for (int i = 0; i < 64 && why.empty(); ++i) connection->send(bytes, kMiB);
  EXPECT_THAT(why, HasSubstr("does not read"));
}

TEST_F(LoopTest, WhatWasSentBeforeTheEndArrivesThoughMoreWasOnItsWayHere) {
  auto listener = Listener::open(io_, "127.0.0.1", 0);
  ASSERT_TRUE(listener);
  bool ended = false;
  (*listener)->serve("test", [&](Socket socket, const auto&) {
    const auto connection =
        std::make_shared<Connection>(io_, std::move(socket), "peer", [&] { ended = true; });
    connection->start();
    connection->send("last words", kMiB);
    connection->finish();
  });
  StoreClient talker((*listener)->port());
  talker.send(std::string(100'000, 'x'));
  run_until([&] { return talker.has_something(); });
  EXPECT_EQ(talker.receive(10), "last words");
  run_until([&] { return talker.has_something(); });
  EXPECT_TRUE(talker.is_closed());
  talker.no_more_to_send();
  run_until([&] { return ended; });
}

TEST_F(LoopTest, ATakeoverPortRefersThenCoordinatesThenRefersAgainOnOnePort) {
  auto port = TakeoverPort::listen(io_, "127.0.0.1");
  ASSERT_TRUE(port);
  const std::uint16_t number = (*port)->port();
  const Join join = join_of("train", "host-a", 1);
  const auto ask = [&] {
    StubAgent agent(number, join);
    std::optional<CoordinatorMessage> answer;
    std::atomic<bool> answered = false;
    std::thread asking([&] {
      answer = agent.hear();
      answered = true;
    });
    run_until([&] { return answered.load(); });
    asking.join();
    return answer;
  };
  const auto refused = [&] {
    const auto answer = ask();
    const Refused* held = answer ? std::get_if<Refused>(&*answer) : nullptr;
    return held == nullptr ? Refused{} : *held;
  };

  EXPECT_EQ(refused().code, RefusalCode::not_yet);
  Refused elsewhere;
  elsewhere.code = RefusalCode::elsewhere;
  elsewhere.why = "the job's coordinator is host-b";
  elsewhere.address = "10.0.0.2";
  elsewhere.port = 29'400;
  (*port)->answer_with(elsewhere);
  EXPECT_EQ(refused(), elsewhere);

  auto server = CoordinatorServer::adopt(io_, (*port)->give_up_socket(), {});
  EXPECT_EQ(server->port(), number);
  const auto answer = ask();
  ASSERT_TRUE(answer);
  EXPECT_TRUE(std::holds_alternative<Welcome>(*answer) || std::holds_alternative<Waiting>(*answer));

  (*port)->take_back(server->give_up_socket());
  server.reset();
  EXPECT_EQ(refused(), elsewhere);
}

}  // namespace
}  // namespace distrun::rendezvous
