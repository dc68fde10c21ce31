// The gateway's client, against members that answer as no real etcd can be told to: slow, wrong,
// dead or none at all.
#include "rendezvous/etcd/gateway/client.h"

#include "tests/rendezvous/etcd/scripted_member.h"

#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace distrun::rendezvous::etcd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kFound = R"({"header":{"revision":"7"}})";
constexpr const char* kName = "etcd.example";

Said found(const Asked&) {
  return http(200, kFound);
}
Said nothing(const Asked&) {
  return {};
}
Said a_web_server(const Asked&) {
  return http(404, "<html>not here</html>");
}

std::string chunk(const std::string& text) {
  char size[16];
  std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return size + text + "\r\n";
}

class EtcdClientTest : public testing::Test {
 protected:
  void member(const ScriptedMember& member, const std::string& host = "127.0.0.1") {
    cluster_.endpoints.push_back({host, member.port()});
  }
  void open(ClientLimits limits = {}, io::Resolver::Lookup lookup = {}) {
    auto opened = Client::open(io_, cluster_, limits, std::move(lookup));
    ASSERT_TRUE(opened) << opened.error().detail;
    client_ = std::move(*opened);
  }
  Answer ask(Request request = Range{"/key", {}, 0}, Duration within = seconds(15)) {
    std::optional<Answer> answered;
    const TimePoint began = Clock::now();
    client_->ask(std::move(request), within, [&](Answer answer) { answered = std::move(answer); });
    run_until([&] { return answered.has_value(); });
    took_ = Clock::now() - began;
    return *answered;
  }
  template <class Condition>
  void run_until(Condition condition) {
    const TimePoint deadline = Clock::now() + seconds(20);
    while (!condition() && Clock::now() < deadline) {
      io_.restart();
      io_.run_one_for(milliseconds(100));
    }
    ASSERT_TRUE(condition());
  }
  static bool is_found(const Answer& answer) { return std::holds_alternative<Found>(answer); }
  static Failed failed(const Answer& answer) {
    const auto* held = std::get_if<Failed>(&answer);
    return held == nullptr ? Failed{"it was answered", false} : *held;
  }

  boost::asio::io_context io_{1};
  Cluster cluster_;
  std::unique_ptr<Client> client_;
  Duration took_{};
};

TEST_F(EtcdClientTest, AMemberThatHangsCostsHalfASecondAndOnce) {
  ScriptedMember hung(nothing);
  ScriptedMember good(found);
  member(hung);
  member(good);
  open();
  EXPECT_TRUE(is_found(ask()));
  EXPECT_GE(took_, milliseconds(500));
  EXPECT_TRUE(is_found(ask()));
  EXPECT_EQ(hung.asked(), 1);
}

TEST_F(EtcdClientTest, AConnectionThatTheMemberClosedMeanwhileIsReplacedWithoutAWord) {
  ScriptedMember closing([](const Asked&) {
    Said said = http(200, kFound);
    said.closes = true;
    return said;
  });
  member(closing);
  open();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(is_found(ask()));
}

TEST_F(EtcdClientTest, OneEndpointThatIsAnotherServerIsPassedOver) {
  ScriptedMember web(a_web_server);
  ScriptedMember good(found);
  member(web);
  member(good);
  open();
  EXPECT_TRUE(is_found(ask()));
}

TEST_F(EtcdClientTest, ThatAllAreOtherServersIsSaidAtOnceAndIsARefusal) {
  ScriptedMember web(a_web_server);
  member(web);
  open();
  const Failed answer = failed(ask());
  EXPECT_TRUE(answer.refused);
  EXPECT_THAT(answer.why, HasSubstr("HTTP 404: <html>not here</html>"));
}

TEST_F(EtcdClientTest, WhatEtcdItselfRefusesNoOtherMemberIsAskedFor) {
  ScriptedMember refusing([](const Asked&) {
    return http(403, R"({"error":"etcdserver: permission denied","code":7})");
  });
  ScriptedMember good(found);
  member(refusing);
  member(good);
  open();
  const Failed answer = failed(ask());
  EXPECT_TRUE(answer.refused);
  EXPECT_THAT(answer.why, HasSubstr("grant this user"));
  EXPECT_EQ(good.asked(), 0);
}

TEST_F(EtcdClientTest, ThatALeaseHasEndedIsNoRefusal) {
  ScriptedMember member_of_etcd([](const Asked&) {
    return http(404, R"({"error":"etcdserver: requested lease not found","code":5})");
  });
  member(member_of_etcd);
  open();
  const Failed answer = failed(ask(Transaction{}));
  EXPECT_FALSE(answer.refused);
  EXPECT_THAT(answer.why, HasSubstr("requested lease not found"));
}

TEST_F(EtcdClientTest, ATokenThatEndedIsReplacedAlsoForAWatch) {
  std::atomic<int> logins = 0;
  const auto with_token = [&](const Asked& asked) {
    if (asked.path == "/v3/auth/authenticate")
      return http(200, R"({"token":"t)" + std::to_string(++logins) + R"("})");
    if (asked.head.find("Authorization: t" + std::to_string(logins.load())) == std::string::npos ||
        logins == 1)
      return http(401, R"({"error":"etcdserver: invalid auth token","code":16})");
    return http(200, kFound);
  };
  ScriptedMember strict(with_token);
  member(strict);
  cluster_.security.user = "job";
  cluster_.security.password = "secret";
  ClientLimits patient;  // for what is counted below
  patient.one_try = seconds(10);
  open(patient);
  EXPECT_TRUE(is_found(ask()));
  EXPECT_EQ(logins, 2);
  ++logins;  // nobody's any more
  std::string why;
  client_->watch(
      "/key", 1, [](const auto&) {}, [&](std::string text) { why = std::move(text); });
  run_until([&] { return !why.empty(); });
  EXPECT_TRUE(is_found(ask()));
  EXPECT_EQ(strict.asked(), 7) << "with the old token no more than once";
}

TEST_F(EtcdClientTest, AnAnswerHasALimit) {
  ScriptedMember large([](const Asked&) { return http(200, std::string(100'000, ' ')); });
  member(large);
  ClientLimits limits;
  limits.answer_bytes = 10'000;
  open(limits);
  EXPECT_THAT(failed(ask(Range{}, milliseconds(2000))).why, HasSubstr("body limit"));
}

TEST_F(EtcdClientTest, ALineOfAWatchMayComeInPieces) {
  ScriptedMember slow([](const Asked&) {
    return Said{.bytes = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" +
                         chunk(R"({"result":{"ev)") +
                         chunk(R"(ents":[{"kv":{"key":"YQ==","value":"Yg==)") + chunk("\"}}]}}") +
                         chunk("\n")};
  });
  member(slow);
  open();
  std::optional<KeyValue> heard;
  client_->watch(
      "a", 1, [&](const auto& now) { heard = now; }, [](const std::string&) {});
  run_until([&] { return heard.has_value(); });
  EXPECT_EQ(heard->value, "b");
}

TEST_F(EtcdClientTest, AnErrorOfAWatchHasALimit) {
  ScriptedMember endless([](const Asked&) {
    return Said{.bytes = "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n",
                .more = chunk(std::string(4096, 'x'))};
  });
  member(endless);
  open();
  std::string why;
  client_->watch(
      "a", 1, [](const auto&) {}, [&](std::string text) { why = std::move(text); });
  run_until([&] { return !why.empty(); });
  EXPECT_EQ(why, "an error without an end");
}

// ---- names -------------------------------------------------------------------------------------

TEST_F(EtcdClientTest, ANameServerThatIsAwayHoldsUpNoOtherMemberAndNotTheEnd) {
  ScriptedMember good(found);
  member(good, "nowhere.example");
  member(good);
  int lookups = 0;
  open({}, [&](const std::string&, Duration, const auto&) {
    ++lookups;
    return [] {};
  });
  EXPECT_TRUE(is_found(ask()));
  EXPECT_EQ(lookups, 1);
  const TimePoint began = Clock::now();
  client_.reset();
  io_.run();
  EXPECT_LT(Clock::now() - began, seconds(20));  // the lookup's own time: a minute
}

TEST_F(EtcdClientTest, ASlowNameServersAnswerServesALaterTry) {
  ScriptedMember good(found);
  member(good, kName);
  io::Resolver::Answer tell;
  open({}, [&](const std::string&, Duration, io::Resolver::Answer answer) {
    tell = std::move(answer);
    return [] {};
  });
  const Failed first = failed(ask(Range{}, milliseconds(700)));
  EXPECT_THAT(first.why, HasSubstr("is a name server away?"));
  tell(io::Resolver::Addresses{boost::asio::ip::address_v4::loopback()});
  EXPECT_TRUE(is_found(ask()));
}

// A port on 127.0.0.2 that lets connections wait for ever: its queue is full.
class Blackhole {
 public:
  explicit Blackhole(std::uint16_t port) {
    listener_ = socket_to(port, ::bind);
    usable_ = listener_ >= 0 && ::listen(listener_, 0) == 0;
    for (int i = 0; i < 4; ++i) waiting_.push_back(socket_to(port, ::connect));
  }
  ~Blackhole() {
    for (const int socket : waiting_) ::close(socket);
    if (listener_ >= 0) ::close(listener_);
  }
  Blackhole(const Blackhole&) = delete;
  Blackhole& operator=(const Blackhole&) = delete;
  bool usable() const { return usable_; }

 private:
  template <class Call>
  static int socket_to(std::uint16_t port, Call call) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in there{};
    there.sin_family = AF_INET;
    there.sin_port = htons(port);
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    (void)call(socket, reinterpret_cast<const sockaddr*>(&there), sizeof there);
    return socket;
  }
  int listener_ = -1;
  bool usable_ = false;
  std::vector<int> waiting_;
};

TEST_F(EtcdClientTest, ANameWhoseFirstAddressIsDeadIsReachedAtItsNext) {
  ScriptedMember good(found);
  const Blackhole dead(good.port());
  ASSERT_TRUE(dead.usable());
  member(good, kName);
  open({}, [](const std::string&, Duration, const io::Resolver::Answer& answer) {
    answer(io::Resolver::Addresses{boost::asio::ip::make_address("127.0.0.2"),
                                   boost::asio::ip::address_v4::loopback()});
    return [] {};
  });
  EXPECT_TRUE(is_found(ask()));
  EXPECT_GE(took_, milliseconds(500)) << "the first address is not dead";
}

}  // namespace
}  // namespace distrun::rendezvous::etcd
