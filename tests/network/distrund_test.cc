// distrund as a process: what it prints, how it ends, what it refuses.
#include "tests/network/store_client.h"
#include "tests/support/run_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>

namespace distrun::rendezvous {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using wire::tcpstore::Op;

// A daemon on a free port, and the port.
class Distrund {
 public:
  explicit Distrund(std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.begin(), {DISTRUND, "--port", "0"});
    process_ = std::make_unique<test::Background>(arguments);
    const std::string said = "listening on 127.0.0.1:";
    test::wait_for([&] { return process_->err().find(said) != std::string::npos; }, seconds(20));
    const std::string text = process_->err();
    const auto at = text.find(said);
    if (at != std::string::npos)
      port = static_cast<std::uint16_t>(std::stoi(text.substr(at + said.size())));
  }
  test::Background& process() { return *process_; }
  std::uint16_t port = 0;

 private:
  std::unique_ptr<test::Background> process_;
};

TEST(DistrundTest, ServesUntilItIsToldToStopAndThenExitsWithZero) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Distrund daemon;
    ASSERT_NE(daemon.port, 0) << daemon.process().err();
    StoreClient client(daemon.port);
    client.hello();
    client.ask(Op::add, {"n"}, 3);
    EXPECT_EQ(client.receive_number(), 3);
    ::kill(daemon.process().pid(), signal);
    EXPECT_EQ(daemon.process().wait(seconds(20)), 0);
    EXPECT_TRUE(client.is_closed());
  }
}

TEST(DistrundTest, SaysOnStandardErrorWhoWasRefusedAndWhy) {
  Distrund daemon;
  StoreClient browser(daemon.port);
  browser.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(browser.is_closed());
  EXPECT_TRUE(test::wait_for(
      [&] {
        return daemon.process().err().find(
                   "distrun: warning: closed a store connection (peer=127.0.0.1:") !=
               std::string::npos;
      },
      seconds(20)));
  EXPECT_EQ(daemon.process().out(), "");
}

TEST(DistrundTest, MaxMemoryLimitsTheStore) {
  Distrund daemon({"--max-memory", "1MB"});
  StoreClient greedy(daemon.port);
  greedy.hello();
  greedy.ask(Op::set, {"k", std::string(2 << 20, 'v')});
  EXPECT_TRUE(greedy.is_closed());
}

TEST(DistrundTest, APortInUseIsExitStatus71WithTheReason) {
  Distrund daemon;
  const auto second = test::run_program({DISTRUND, "--port", std::to_string(daemon.port)});
  EXPECT_EQ(second.status, 71);
  EXPECT_THAT(second.err, HasSubstr("cannot listen on 127.0.0.1:" + std::to_string(daemon.port) +
                                    ": Address already in use"));
}

TEST(DistrundTest, WrongUsageIsExitStatus2WithTheReason) {
  const auto port = test::run_program({DISTRUND, "--port", "70000"});
  EXPECT_EQ(port.status, 2);
  EXPECT_THAT(port.err, HasSubstr("--port"));
  const auto name = test::run_program({DISTRUND, "--host", "localhost"});
  EXPECT_EQ(name.status, 2);
  EXPECT_THAT(name.err, HasSubstr("names are not looked up"));
  EXPECT_EQ(test::run_program({DISTRUND, "--nonsense"}).status, 2);
}

TEST(DistrundTest, HelpAndVersionAreExitStatus0) {
  const auto help = test::run_program({DISTRUND, "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("--max-memory"));
  EXPECT_THAT(help.out, HasSubstr("Exit status"));
  EXPECT_EQ(test::run_program({DISTRUND, "--version"}).status, 0);
}

}  // namespace
}  // namespace distrun::rendezvous
