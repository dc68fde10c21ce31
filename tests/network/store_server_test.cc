// The store server on real sockets: clients that are slow, silent, partial, hostile or many.
#include "rendezvous/server/store_server.h"

#include "tests/network/served_store.h"
#include "tests/network/store_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <sched.h>
#include <string>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <vector>

namespace distrun::rendezvous {
namespace {

using testing::HasSubstr;
using wire::tcpstore::Op;

constexpr std::size_t kMiB = 1024 * 1024;
const std::string kReleased(1, '\0');

std::string u64(std::uint64_t value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

class StoreServerTest : public testing::Test {
 protected:
  // A client that has said hello.
  static StoreClient client(const ServedStore& store) {
    StoreClient made(store.port());
    EXPECT_TRUE(made.connected());
    made.hello();
    return made;
  }
  static void expect_alive(const ServedStore& store) {
    StoreClient other = client(store);
    other.ask(Op::ping, {}, 77);
    EXPECT_EQ(other.receive(4), u64(77).substr(0, 4));
  }
};

TEST_F(StoreServerTest, ServesOldAndNewClientsFromOneTable) {
  ServedStore store;
  store.start();
  StoreClient newest = client(store);
  newest.ask(Op::set, {"/k", "from the newest"});
  newest.ask(Op::ping, {}, 1);
  newest.receive(4);  // so that the SET has been carried out
  StoreClient oldest(store.port());
  oldest.send("\x02" + u64(2) + "/k");
  EXPECT_EQ(oldest.receive_blob(), "from the newest");
}

TEST_F(StoreServerTest, ReleasesTwoHundredWaitersInTheOrderInWhichTheyCame) {
  // On one CPU: each has a queue of its own for what goes over loopback, and they keep no order
  // among each other.  The server's thread has its CPUs from this one.
  cpu_set_t all;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  ServedStore store;
  store.start();
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  std::vector<StoreClient> waiters;
  for (std::uint64_t i = 0; i < 200; ++i) {
    waiters.push_back(client(store));
    waiters.back().ask(Op::ping, {}, 1);
    waiters.back().receive(4);
    waiters.back().ask(Op::wait, {"go"});
    waiters.back().ask(Op::ping, {}, 1);
    waiters.back().receive(4);  // it is registered by now
    epoll_event event{EPOLLIN | EPOLLET, {.u64 = i}};
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, waiters.back().fd(), &event);
  }
  client(store).ask(Op::set, {"go", ""});
  // The kernel reports sockets in the order in which they became readable.
  std::vector<std::uint64_t> order;
  while (order.size() < waiters.size()) {
    std::vector<epoll_event> events(waiters.size());
    const int n = ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), 20'000);
    ASSERT_GT(n, 0) << order.size() << " were released";
    for (int i = 0; i < n; ++i) order.push_back(events[static_cast<std::size_t>(i)].data.u64);
  }
  ::close(epoll);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  for (auto& waiter : waiters) EXPECT_EQ(waiter.receive(1), kReleased);
  EXPECT_TRUE(waiters[0].hears_nothing());
  ASSERT_EQ(::sched_setaffinity(0, sizeof all, &all), 0);
}

TEST_F(StoreServerTest, ARequestThatComesByteByByteIsServedAndHoldsUpNobody) {
  ServedStore store;
  store.start();
  StoreClient slow(store.port());
  StoreClient other = client(store);
  const std::string bytes = wire::tcpstore::encode_hello(wire::tcpstore::Generation::g8) +
                            StoreClient::request(Op::add, {"n"}, 5);
  for (const char byte : bytes) {
    ASSERT_TRUE(slow.send({&byte, 1}));
    other.ask(Op::ping, {}, 9);
    ASSERT_EQ(other.receive(4), u64(9).substr(0, 4));
  }
  EXPECT_EQ(slow.receive_number(), 5);
}

TEST_F(StoreServerTest, ManyRequestsInOneSegmentAreAnsweredInOrder) {
  ServedStore store;
  store.start();
  StoreClient pipelining = client(store);
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += StoreClient::request(Op::add, {"n"}, 1);
  pipelining.send(bytes);
  for (int i = 1; i <= 1000; ++i) ASSERT_EQ(pipelining.receive_number(), i);
}

TEST_F(StoreServerTest, AClientThatDoesNotReadHoldsUpNobodyAndGetsAllOnceItReads) {
  ServedStore store({.max_total_bytes = 16 * kMiB});  // far less than the answers
  store.start();
  StoreClient slow = client(store);
  const std::string value(kMiB, 'v');
  slow.ask(Op::set, {"k", value});
  constexpr int kAnswers = 64;
  for (int i = 0; i < kAnswers; ++i) slow.ask(Op::get, {"k"});
  expect_alive(store);
  for (int i = 0; i < kAnswers; ++i) ASSERT_EQ(slow.receive_blob(), value) << "answer " << i;
}

TEST_F(StoreServerTest, AnAnswerOverTheLimitClosesThatConnection) {
  ServedStore store({.max_connection_bytes = kMiB});
  store.start();
  StoreClient greedy = client(store);
  const std::string value(512 * 1024, 'v');
  greedy.ask(Op::set, {"k", value});
  greedy.ask(Op::multi_get, {"k", "k", "k", "k", "k", "k"});
  EXPECT_EQ(store.logged("are not read; at most 1048576"), 1u);
  expect_alive(store);
}

TEST_F(StoreServerTest, AHalfClosedClientIsClosedAndItsWaitDropped) {
  ServedStore store;
  store.start();
  StoreClient half = client(store);
  half.ask(Op::wait, {"never"});
  half.no_more_to_send();
  EXPECT_TRUE(half.is_closed());
  expect_alive(store);
}

TEST_F(StoreServerTest, ARequestBeforeAHalfCloseIsAnswered) {
  ServedStore store;
  store.start();
  StoreClient half = client(store);
  half.ask(Op::add, {"n"}, 1);
  half.no_more_to_send();
  EXPECT_EQ(half.receive_number(), 1);
}

TEST_F(StoreServerTest, AWaiterThatIsGoneCostsTheWriterNothing) {
  ServedStore store;
  store.start();
  {
    StoreClient gone = client(store);
    gone.ask(Op::wait, {"k"});
    gone.ask(Op::ping, {}, 1);
    gone.receive(4);
  }
  StoreClient behind = client(store);
  behind.ask(Op::wait, {"k"});
  behind.ask(Op::ping, {}, 1);
  behind.receive(4);
  StoreClient writer = client(store);
  writer.ask(Op::add, {"k"}, 1);
  EXPECT_EQ(writer.receive_number(), 1);
  EXPECT_EQ(behind.receive(1), kReleased);
}

TEST_F(StoreServerTest, AnotherProtocolIsRefusedAndLoggedOnceWithThePeersAddress) {
  ServedStore store;
  store.start();
  StoreClient browser(store.port());
  browser.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(browser.is_closed());
  EXPECT_EQ(store.logged("not a TCPStore client"), 1u);
  EXPECT_THAT(store.lines()[0], HasSubstr("peer=127.0.0.1:"));
  expect_alive(store);
}

TEST_F(StoreServerTest, AHugeLengthIsRefusedAtOnce) {
  ServedStore store;
  store.start();
  StoreClient hostile(store.port());
  hostile.send(std::string(1, '\0') + u64(1ull << 62));
  EXPECT_TRUE(hostile.is_closed());
  EXPECT_EQ(store.logged("key length 4611686018427387904, at most 8192"), 1u);
}

TEST_F(StoreServerTest, AKeyCountOverTheLimitIsRefusedAtOnce) {
  ServedStore store;
  store.start();
  StoreClient hostile = client(store);
  hostile.send("\x06" + u64(131'073));
  EXPECT_TRUE(hostile.is_closed());
  EXPECT_EQ(store.logged("WAIT: key count 131073, at most 131072"), 1u);
}

TEST_F(StoreServerTest, SilentConnectionsAreNormalAndStayOpen) {
  ServedStore store;
  store.start();
  std::vector<StoreClient> silent;
  for (int i = 0; i < 100; ++i) silent.emplace_back(store.port());
  expect_alive(store);
  for (auto& each : silent) {
    each.hello();
    each.ask(Op::num_keys, {});
    EXPECT_EQ(each.receive_number(), 0);
  }
}

TEST_F(StoreServerTest, MemoryOfAllTogetherHasALimitAndWhoBreaksItIsClosed) {
  ServedStore store({.max_total_bytes = 4 * kMiB});
  store.start();
  StoreClient honest = client(store);
  honest.ask(Op::set, {"honest", "value"});
  StoreClient greedy = client(store);
  const std::string value(kMiB, 'v');
  for (const char* key : {"1", "2", "3", "4", "5"})
    if (!greedy.ask(Op::set, {key, value})) break;
  EXPECT_TRUE(greedy.is_closed());
  EXPECT_EQ(store.logged("no memory for"), 1u);
  honest.ask(Op::get, {"honest"});
  EXPECT_EQ(honest.receive_blob(), "value");
}

TEST_F(StoreServerTest, OneConnectionTooManyIsRefusedAndLoggedOnce) {
  ServedStore store({.max_connections = 2});
  store.start();
  StoreClient first = client(store);
  StoreClient second = client(store);
  StoreClient third(store.port());
  EXPECT_TRUE(third.is_closed());
  StoreClient fourth(store.port());
  EXPECT_TRUE(fourth.is_closed());
  EXPECT_EQ(store.logged("is one more than 2"), 1u);
}

TEST_F(StoreServerTest, WithoutFileDescriptorsItWaitsWithoutSpinningAndThenGoesOn) {
  {
    // UBSan looks at a class with a pipe when it first meets it, and takes the want of descriptors
    // for a bad object: let it meet them all here.
    ServedStore warm;
    warm.start();
    expect_alive(warm);
    log::info("warm");
  }
  ServedStore store;
  std::vector<StoreClient> clients;
  for (int i = 0; i < 8; ++i) clients.emplace_back(store.port());  // in the kernel's queue so far
  rlimit old{};
  ::getrlimit(RLIMIT_NOFILE, &old);
  const auto first_free = static_cast<rlim_t>(::dup(0));
  ::close(static_cast<int>(first_free));
  rlimit tight{first_free + 2, old.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &tight);
  store.start();
  EXPECT_EQ(store.logged("cannot take store connections"), 1u);
  const std::clock_t before = std::clock();  // CPU time of the whole process
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.1);
  EXPECT_EQ(store.logged("cannot take store connections"), 1u);
  ::setrlimit(RLIMIT_NOFILE, &old);
  for (auto& each : clients) {
    each.hello();
    each.ask(Op::num_keys, {});
    EXPECT_EQ(each.receive_number(), 0);
  }
}

TEST_F(StoreServerTest, ClosingEndsEveryConnectionAndFreesThePort) {
  std::uint16_t port = 0;
  std::vector<StoreClient> clients;
  {
    ServedStore store;
    store.start();
    port = store.port();
    for (int i = 0; i < 10; ++i) clients.push_back(client(store));
    clients[0].ask(Op::wait, {"never"});
    expect_alive(store);
    store.close();
  }
  for (auto& each : clients) EXPECT_TRUE(each.is_closed());
  ServedStore again({.port = port});
  again.start();
  expect_alive(again);
}

TEST_F(StoreServerTest, ServesIPv6AndOnItsAnyAddressIPv4Too) {
  std::unique_ptr<ServedStore> store;
  try {
    store = std::make_unique<ServedStore>(StoreServerOptions{.address = "::"});
  } catch (const std::exception& fault) {
    GTEST_SKIP() << "no IPv6 here: " << fault.what();
  }
  store->start();
  for (const char* address : {"::1", "127.0.0.1"}) {
    StoreClient either(store->port(), address);
    ASSERT_TRUE(either.connected()) << address;
    either.hello();
    either.ask(Op::num_keys, {});
    EXPECT_EQ(either.receive_number(), 0) << address;
  }
}

class StoreServerListen : public testing::Test {
 protected:
  std::string failure(const StoreServerOptions& options) {
    auto server = StoreServer::listen(io_, options);
    return server ? "" : server.error().detail;
  }
  boost::asio::io_context io_{1};
};

TEST_F(StoreServerListen, APortInUseIsNamedWithWhatToDo) {
  ServedStore store;
  const std::string port = std::to_string(store.port());
  EXPECT_EQ(failure({.port = store.port()}),
            "cannot listen on 127.0.0.1:" + port +
                ": Address already in use; another process has the port: choose another, or 0 for "
                "any free one");
}

TEST_F(StoreServerListen, ANameIsNoAddress) {
  EXPECT_EQ(failure({.address = "localhost"}),
            "not an IPv4 or IPv6 address: \"localhost\" (names are not looked up)");
}

TEST_F(StoreServerListen, AnAddressOfAnotherHostIsNamed) {
  EXPECT_THAT(failure({.address = "192.0.2.1"}), HasSubstr("give an address of this host"));
}

}  // namespace
}  // namespace distrun::rendezvous
