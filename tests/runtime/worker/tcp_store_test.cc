// The client's side of the protocol, byte by byte, against servers made up by the test; and how it
// finds a server, keeps it, and loses it.
#include "tests/runtime/worker/store_server_thread.h"
#include <distrun/store.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <cstring>
#include <functional>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace distrun {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using ::testing::HasSubstr;

// One end of a connection, as a script sees it.
class Peer {
 public:
  explicit Peer(int fd) : fd_(fd) {}
  ~Peer() { close(); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Exactly n bytes; fewer if the other side hangs up.
  std::string read(std::size_t n) {
    std::string bytes(n, '\0');
    std::size_t have = 0;
    while (have < n) {
      const ssize_t got = ::recv(fd_, bytes.data() + have, n - have, 0);
      if (got <= 0) break;
      have += static_cast<std::size_t>(got);
    }
    bytes.resize(have);
    return bytes;
  }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void write(const std::string& bytes) { ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

 private:
  int fd_;
};

// Plays one script for each connection, in order.
class ScriptedServer {
 public:
  using Script = std::function<void(Peer&)>;

  explicit ScriptedServer(std::vector<Script> scripts) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd_, 8) != 0)
      throw std::runtime_error("listen");
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, scripts = std::move(scripts)] {
      for (const Script& script : scripts) {
        Peer peer(::accept(fd_, nullptr, nullptr));
        script(peer);
      }
    });
  }
  ~ScriptedServer() {
    thread_.join();
    ::close(fd_);
  }
  std::uint16_t port() const { return port_; }
  int fd() const { return fd_; }

 private:
  int fd_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

void greet(Peer& peer) {
  peer.read(5);
  peer.write(peer.read(5).substr(1));
}

// Greets the first connection, then gives the script both.
class TwoConnections {
 public:
  explicit TwoConnections(const std::function<void(Peer&, Peer&)>& script)
      : server_({[this, script](Peer& first) {
          greet(first);
          Peer second(::accept(server_.fd(), nullptr, nullptr));
          script(first, second);
        }}) {}
  std::uint16_t port() const { return server_.port(); }

 private:
  ScriptedServer server_;
};

const std::string kHello = "\x00\xce\xf7\x85\x3c"s;

std::string u64(std::uint64_t value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string blob(const std::string& bytes) {
  return u64(bytes.size()) + bytes;
}

TCPStoreOptions to(std::uint16_t port, Timeout timeout = 10s) {
  return {.host = "127.0.0.1", .port = port, .timeout = timeout};
}

std::string u32(std::uint32_t value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// What a client sends first, to a server that answers its ping.
std::string greeting_of(StoreProtocol protocol) {
  std::string greeting;
  ScriptedServer server({[&](Peer& peer) {
    greeting = peer.read(10);
    peer.write(greeting.substr(6));
  }});
  TCPStoreOptions options = to(server.port());
  options.protocol = protocol;
  const TCPStore store(options);
  EXPECT_GE(store.protocol(), StoreProtocol::torch_2_5);
  return greeting;
}

TEST(TCPStore, SaysHelloAndPingsWithItsProcessId) {
  const auto pid = static_cast<std::uint32_t>(::getpid());
  EXPECT_EQ(greeting_of(StoreProtocol::newest), kHello + "\x0d" + u32(pid));
}

TEST(TCPStore, GreetsAnUnknownServerSoThatA113OneRefusesAtOnce) {
  const std::string greeting = greeting_of(StoreProtocol::automatic);
  // To it, these are a SET and the length of a key: below 2^63 it would make room for it.
  std::int64_t length = 0;
  std::memcpy(&length, greeting.data() + 1, sizeof length);
  EXPECT_EQ(greeting.substr(0, 6), kHello + "\x0d");
  EXPECT_LT(length, 0);
}

TEST(TCPStore, AServerThatClosesOnThePingIsSpokenToWithoutIt) {
  ScriptedServer server({[](Peer& peer) { peer.read(6); },  // 2.4: PING is unknown
                         [](Peer& peer) {
                           EXPECT_EQ(peer.read(5), kHello);
                           EXPECT_EQ(peer.read(4), "\x07\x07\x07\x07");  // GETNUMKEYS
                           peer.write(u64(1) + u64(1) + u64(1) + u64(1));
                           EXPECT_EQ(peer.read(19), "\x01"s + blob("/k") + u64(0));  // SET
                         }});
  TCPStore store(to(server.port()));
  EXPECT_EQ(store.protocol(), StoreProtocol::torch_2_4);
  EXPECT_TRUE(store.has_extended_api());
  store.set("k", "");
}

TEST(TCPStore, AServerThatClosesOnHelloIsSpokenToAsIn113) {
  ScriptedServer server({[](Peer& peer) { peer.read(9); }, [](Peer& peer) { peer.read(9); },
                         [](Peer& peer) {
                           EXPECT_EQ(peer.read(9), "\x04"s + u64(0));  // CHECK, no handshake
                           peer.write("\0"s);
                           EXPECT_EQ(peer.read(19), "\x03"s + blob("/n") + u64(5));  // ADD
                           peer.write(u64(5));
                         }});
  TCPStore store(to(server.port()));
  EXPECT_EQ(store.protocol(), StoreProtocol::torch_1_13);
  EXPECT_FALSE(store.has_extended_api());
  EXPECT_EQ(store.add("n", 5), 5);
}

TEST(TCPStore, IsCountedByAServerThatWaitsForItsWorkers) {
  ScriptedServer server({[](Peer& peer) {
    greet(peer);
    EXPECT_EQ(peer.read(22), "\x04"s + blob("init/") + u64(1));
    peer.write(u64(1));
  }});
  TCPStoreOptions options = to(server.port());
  options.world_size = 2;
  TCPStore store(options);
}

TEST(TCPStore, AWorldSizeOfZeroIsRefused) {
  ScriptedServer server({[](Peer& peer) { greet(peer); }});
  TCPStoreOptions options = to(server.port());
  options.world_size = 0;  // refused after the connection is made
  EXPECT_THROW(TCPStore store(options), DistArgumentError);
}

TEST(TCPStore, ATimedOutWaitIsCancelledAndTheConnectionUsedOn) {
  ScriptedServer server({[](Peer& peer) {
    greet(peer);
    EXPECT_EQ(peer.read(19), "\x06"s + u64(1) + blob("/k"));
    EXPECT_EQ(peer.read(1), "\x0c"s);  // CANCEL_WAIT
    peer.write("\x01"s);
    EXPECT_EQ(peer.read(1), "\x07"s);  // GETNUMKEYS, on the same connection
    peer.write(u64(3));
  }});
  TCPStore store(to(server.port()));
  EXPECT_THROW(store.wait({"k"}, 30ms), DistTimeoutError);
  EXPECT_EQ(store.num_keys(), 3);
}

TEST(TCPStore, AnAnswerThatCrossesTheCancellingCounts) {
  ScriptedServer server({[](Peer& peer) {
    greet(peer);
    peer.read(19);
    peer.read(1);
    peer.write("\x00\x01"s);  // satisfied, then the answer to CANCEL_WAIT
    peer.read(1);
    peer.write(u64(1));
  }});
  TCPStore store(to(server.port()));
  store.wait({"k"}, 30ms);
  EXPECT_EQ(store.num_keys(), 1);
}

TEST(TCPStore, After113sTimedOutWaitANewConnectionIsMade) {
  ScriptedServer server({[](Peer& peer) {
                           peer.read(9);
                           peer.write("\0"s);
                           peer.read(19);
                           peer.read(1);  // until the client hangs up
                           peer.write("\0"s);
                         },
                         [](Peer& peer) {
                           peer.read(9);
                           peer.write("\0"s);
                           EXPECT_EQ(peer.read(1), "\x06"s);
                           peer.write(u64(12));
                         }});
  TCPStoreOptions options = to(server.port());
  options.protocol = StoreProtocol::torch_1_13;
  TCPStore store(options);
  EXPECT_THROW(store.wait({"k"}, 30ms), DistTimeoutError);
  EXPECT_EQ(store.num_keys(), 12);
}

TEST(TCPStore, APopThatAnotherClientWonWaitsAgain) {
  ScriptedServer server({[](Peer& peer) {
    greet(peer);
    for (const std::string& popped : {u64(0), u64(1) + blob("v")}) {
      EXPECT_EQ(peer.read(19), "\x06"s + u64(1) + blob("/q"));  // WAIT
      peer.write("\0"s);
      EXPECT_EQ(peer.read(11), "\x0f"s + blob("/q"));  // QUEUE_POP
      peer.write(popped);
    }
  }});
  TCPStoreOptions options = to(server.port());
  options.protocol = StoreProtocol::newest;
  TCPStore store(options);
  EXPECT_EQ(store.queue_pop("q"), "v");
}

TEST(TCPStore, WhatTheNamedProtocolLacksIsRefusedWithoutAsking) {
  ScriptedServer server({[](Peer& peer) {
    greet(peer);
    EXPECT_EQ(peer.read(1), "\x07"s);
    peer.write(u64(1));
  }});
  TCPStoreOptions options = to(server.port());
  options.protocol = StoreProtocol::torch_2_5;
  TCPStore store(options);
  EXPECT_THROW(store.queue_len("q"), DistUnsupportedError);
  EXPECT_EQ(store.num_keys(), 1);
}

// The first connection is served while the second is asked.
TEST(TCPStore, WhetherAServerHasQueuesIsAskedOnAnotherConnection) {
  TwoConnections server([&](Peer& first, Peer& second) {
    greet(second);
    EXPECT_EQ(second.read(23), "\x10"s + blob("/distrun/probe"));  // QUEUE_LEN
    second.close();                                                // 2.5: unknown
    EXPECT_EQ(first.read(1), "\x07"s);
    first.write(u64(1));
  });
  TCPStore store(to(server.port()));
  EXPECT_THROW(store.queue_len("q"), DistUnsupportedError);
  EXPECT_THROW(store.queue_push("q", "v"), DistUnsupportedError);  // not asked again
  EXPECT_EQ(store.num_keys(), 1);
}

TEST(TCPStore, ANewServerIsFoundToHaveEverything) {
  testing::StoreServerThread server;
  TCPStore store(to(server.port()));
  EXPECT_EQ(store.protocol(), StoreProtocol::torch_2_5);  // all that is known so far
  EXPECT_EQ(store.queue_len("q"), 0);
  store.barrier("b", 1, 1s);
  EXPECT_EQ(store.protocol(), StoreProtocol::newest);
  EXPECT_THAT(store.list_keys(), ::testing::ElementsAre("b"));  // the question left nothing behind
}

TEST(TCPStore, AServerThatComesLateIsFound) {
  std::uint16_t port = 0;
  { port = testing::StoreServerThread().port(); }
  std::thread later([&] {
    std::this_thread::sleep_for(100ms);
    boost::asio::io_context io;
    auto late = rendezvous::StoreServer::listen(io, {.address = "127.0.0.1", .port = port});
    ASSERT_TRUE(late) << late.error().detail;
    io.run_for(2s);
  });
  TCPStore store(to(port));
  store.set("k", "v");
  EXPECT_EQ(store.get("k"), "v");
  later.join();
}

TEST(TCPStore, AServerThatNeverComesIsNamedAfterTheTimeout) {
  std::uint16_t port = 0;
  { port = testing::StoreServerThread().port(); }
  const auto start = std::chrono::steady_clock::now();
  try {
    TCPStore store(to(port, 300ms));
    FAIL() << "connected";
  } catch (const DistNetworkError& error) {
    EXPECT_THAT(error.what(), HasSubstr("127.0.0.1:" + std::to_string(port)));
    EXPECT_THAT(error.what(), HasSubstr("client socket has timed out after"));
    EXPECT_THAT(error.what(), HasSubstr("Connection refused"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(TCPStore, AHostThatDoesNotExistIsNamed) {
  try {
    TCPStore store({.host = "no-such-host.invalid", .port = 1, .timeout = 50ms});
    FAIL() << "connected";
  } catch (const DistNetworkError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no-such-host.invalid"));
  }
}

TEST(TCPStore, SomethingElseThatAnswersIsNotTakenForAStore) {
  ScriptedServer server({[](Peer& peer) {
    peer.read(10);
    peer.write("HTTP/1.1 400 Bad Request\r\n\r\n");
  }});
  try {
    TCPStore store(to(server.port()));
    FAIL() << "accepted";
  } catch (const DistNetworkError& error) {
    EXPECT_THAT(error.what(), HasSubstr("something else than a store answers there"));
  }
}

TEST(TCPStore, OverIPv6) {
  std::unique_ptr<testing::StoreServerThread> server;
  try {
    server = std::make_unique<testing::StoreServerThread>("::1");
  } catch (const std::exception& error) {
    GTEST_SKIP() << "no IPv6 here: " << error.what();
  }
  TCPStore store({.host = "::1", .port = server->port(), .timeout = 5s});
  store.set("k", "v");
  EXPECT_EQ(store.get("k"), "v");
  EXPECT_EQ(store.local_address(), "::1");
  EXPECT_EQ(store.description(), "TCPStore [::1]:" + std::to_string(server->port()));
}

TEST(TCPStore, ALostServerIsToldAtEveryLaterCall) {
  auto server = std::make_unique<testing::StoreServerThread>();
  TCPStore store(to(server->port()));
  store.set("k", "v");
  EXPECT_EQ(store.get("k"), "v");
  server.reset();
  EXPECT_THROW(store.get("k"), DistNetworkError);
  try {
    store.add("n", 1);
    FAIL() << "answered";
  } catch (const DistNetworkError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no longer connected: store at 127.0.0.1"));
  }
}

TEST(TCPStore, WhatNoServerTakesIsNotSent) {
  testing::StoreServerThread server;
  TCPStore store(to(server.port()));
  EXPECT_THROW(store.set(std::string(8192, 'k'), "v"), DistArgumentError);  // with the "/" too long
  EXPECT_THROW(store.set("k", std::string(8 * 1024 * 1024 + 1, 'v')), DistArgumentError);
  EXPECT_THROW(store.check(std::vector<std::string>(131'073, "k")), DistArgumentError);
  store.set(std::string(8191, 'k'), "v");
  store.set("k", std::string(8 * 1024 * 1024, 'v'));
  EXPECT_EQ(store.num_keys(), 2);
}

TEST(TCPStore, AnAnswerThatNeverComesEndsInATimeoutAndANewConnection) {
  // The least patience for an answer is ten seconds; the second connection shows that the late
  // answer of the first is not taken for another's.
  ScriptedServer server({[](Peer& peer) {
                           greet(peer);
                           peer.read(1);
                           peer.read(1);  // until the client hangs up
                         },
                         [](Peer& peer) {
                           greet(peer);
                           peer.read(1);
                           peer.write(u64(4));
                         }});
  TCPStore store(to(server.port(), 1s));
  EXPECT_THROW(store.num_keys(), DistTimeoutError);
  EXPECT_EQ(store.num_keys(), 4);
}

}  // namespace
}  // namespace distrun
