// `distrun status` as a process, against distrund and against what is no coordinator.
#include "launcher/http_get.h"
#include "tests/support/run_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <csignal>
#include <cstdint>
#include <functional>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace distrun::launcher {
namespace {

using namespace std::chrono_literals;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::StartsWith;

// Takes one connection on a free loopback port and does with it what it was told.
class FakeServer {
 public:
  explicit FakeServer(std::function<void(int)> serve) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(fd_, any, size) != 0 || ::listen(fd_, 4) != 0) throw std::runtime_error("listen");
    ::getsockname(fd_, any, &size);
    port = ::ntohs(address.sin_port);
    thread_ = std::thread([this, serve = std::move(serve)] {
      const int peer = ::accept(fd_, nullptr, nullptr);
      if (peer >= 0) serve(peer);
      ::close(peer);
    });
  }
  ~FakeServer() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;
  std::uint16_t port = 0;

 private:
  int fd_;
  std::thread thread_;
};

void read_request(int peer) {
  std::string request;
  char buffer[1024];
  while (request.find("\r\n\r\n") == std::string::npos) {
    const ssize_t n = ::read(peer, buffer, sizeof buffer);
    if (n <= 0) return;
    request.append(buffer, static_cast<std::size_t>(n));
  }
}

// A server that reads a request, says `text`, and closes.
std::function<void(int)> says(std::string text) {
  return [text = std::move(text)](int peer) {
    read_request(peer);
    (void)!::write(peer, text.data(), text.size());
  };
}

std::string complaint_about(std::uint16_t port, const HttpLimits& limits = {}) {
  const auto body = http_get("127.0.0.1", port, "/status", limits);
  return body ? "answered: " + *body : body.error().detail;
}

std::string at(std::uint16_t port) {
  return "127.0.0.1:" + std::to_string(port) + ": ";
}

TEST(HttpGet, ReturnsTheBodyHoweverItIsCut) {
  const FakeServer server([](int peer) {
    read_request(peer);
    for (const char byte : std::string("HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n\r\nhello")) {
      (void)!::write(peer, &byte, 1);
    }
  });
  EXPECT_EQ(complaint_about(server.port), "answered: hello");
}

TEST(HttpGet, SaysThatNobodyListens) {
  std::uint16_t port = 0;
  {
    const FakeServer gone([](int) {});
    port = gone.port;
  }
  EXPECT_THAT(complaint_about(port),
              StartsWith(at(port) + "Connection refused; nothing listens there"));
}

TEST(HttpGet, SaysThatNothingIsAnswered) {
  HttpLimits limits;
  limits.answer = 50ms;
  const FakeServer silent([](int peer) {
    char byte = 0;
    while (::read(peer, &byte, 1) > 0) {
    }
  });
  EXPECT_THAT(complaint_about(silent.port, limits),
              StartsWith(at(silent.port) + "took the connection but did not answer within 50 ms"));
}

TEST(HttpGet, SaysWhatAnsweredInsteadOfACoordinator) {
  const FakeServer closes(says(""));
  EXPECT_THAT(complaint_about(closes.port), HasSubstr("closed the connection without an answer"));
  const FakeServer ssh(says("SSH-2.0-OpenSSH_9.2\r\n"));
  EXPECT_THAT(complaint_about(ssh.port), HasSubstr("answered 'SSH-2.0-OpenSSH_9.2"));
  const FakeServer web(says("HTTP/1.1 404 Not Found\r\n\r\n"));
  EXPECT_THAT(complaint_about(web.port), HasSubstr("has no page /status (HTTP/1.1 404 Not Found)"));
}

TEST(HttpGet, AnAnswerWithoutEndIsCutOff) {
  HttpLimits limits;
  limits.bytes = 100'000;
  const FakeServer endless([](int peer) {
    const std::string piece(65'536, 'x');
    while (::send(peer, piece.data(), piece.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  EXPECT_THAT(complaint_about(endless.port, limits), HasSubstr("its answer has no end"));
}

TEST(HttpGet, SaysWhichNameCannotBeLookedUp) {
  const auto body = http_get("no-such-host.invalid", 1, "/status");
  ASSERT_FALSE(body);
  EXPECT_THAT(body.error().detail, HasSubstr("'no-such-host.invalid' cannot be looked up"));
}

// ---- the program -------------------------------------------------------------------------------

class StatusTest : public testing::Test {
 protected:
  StatusTest() : daemon_({DISTRUND, "--port", "0"}) {
    const std::string said = "listening on ";
    test::wait_for([&] { return daemon_.err().find(said) != std::string::npos; }, seconds(20));
    const std::string text = daemon_.err();
    const auto at = text.find(said) + said.size();
    endpoint_ = text.substr(at, text.find('\n', at) - at);
  }
  static test::Ran status(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {DISTRUN, "status"});
    return test::run_program(arguments);
  }
  test::Background daemon_;
  std::string endpoint_;
};

TEST_F(StatusTest, ShowsACoordinatorWithoutJobs) {
  const auto ran = status({"--rdzv-endpoint", endpoint_});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "no jobs\n");
  const auto json = status({"--rdzv-endpoint", endpoint_, "--json"});
  EXPECT_EQ(json.out, "{\"jobs\":[]}\n");
}

TEST_F(StatusTest, AJobThatIsNotThereIsAnExitStatusOfItsOwn) {
  const auto ran = status({"--rdzv-endpoint", endpoint_, "--job", "train"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.err, HasSubstr("no job 'train' there; it has none"));
}

TEST_F(StatusTest, WithoutACoordinatorItIs69AndInWords) {
  ::kill(daemon_.pid(), SIGTERM);
  ASSERT_EQ(daemon_.wait(seconds(20)), 0);
  const auto ran = status({"--rdzv-endpoint", endpoint_});
  EXPECT_EQ(ran.status, 69);
  EXPECT_THAT(ran.err, HasSubstr(endpoint_ + ": Connection refused; nothing listens there"));
}

TEST_F(StatusTest, WatchGoesOnUntilItIsInterruptedAndSeesTheCoordinatorGo) {
  test::Background watching({DISTRUN, "status", "--rdzv-endpoint", endpoint_, "--watch"});
  EXPECT_TRUE(test::wait_for([&] { return watching.out().find("no jobs") != std::string::npos; },
                             seconds(20)));
  ::kill(daemon_.pid(), SIGTERM);
  EXPECT_TRUE(test::wait_for(
      [&] { return watching.out().find("Connection refused") != std::string::npos; }, seconds(20)));
  ::kill(watching.pid(), SIGINT);
  EXPECT_EQ(watching.wait(seconds(20)), 128 + SIGINT);
}

TEST_F(StatusTest, WrongUsageIs2) {
  EXPECT_EQ(status({}).status, 2);
  EXPECT_EQ(status({"--no-such"}).status, 2);
  EXPECT_EQ(status({"--help"}).status, 0);
}

}  // namespace
}  // namespace distrun::launcher
