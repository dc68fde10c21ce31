// distrund as a process: what it prints, how it ends, what it refuses.
#include "tests/network/store_client.h"
#include "tests/network/stub_agent.h"
#include "tests/support/run_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

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
  StoreClient chatty(daemon.port);
  chatty.send("hello, is anybody there?\r\n");
  EXPECT_TRUE(chatty.is_closed());
  EXPECT_TRUE(test::wait_for(
      [&] {
        return daemon.process().err().find(
                   "distrun: warning: closed a store connection (peer=127.0.0.1:") !=
               std::string::npos;
      },
      seconds(20)));
  EXPECT_EQ(daemon.process().out(), "");
}

TEST(DistrundTest, JobsOfAgentsDoNotKnowOfEachOther) {
  Distrund daemon;
  auto a = std::make_unique<StubAgent>(daemon.port, join_of("one", "host-a", 2));
  StubAgent b(daemon.port, join_of("one", "host-b", 2));
  StubAgent c(daemon.port, join_of("two", "host-c", 1));
  ASSERT_TRUE(a->await<Welcome>() && b.await<Welcome>());
  const auto other = c.await<Welcome>();
  ASSERT_TRUE(other);
  EXPECT_EQ(other->node_count, 1);
  a.reset();
  EXPECT_TRUE(b.await<Disband>());
  EXPECT_TRUE(c.hears_only_pings());
}

TEST(DistrundTest, SaysOnStandardErrorWhatHappensInItsJobs) {
  Distrund daemon;
  StubAgent a(daemon.port, join_of("train", "host-a", 1));
  ASSERT_TRUE(a.await<Welcome>());
  EXPECT_TRUE(test::wait_for(
      [&] {
        return daemon.process().err().find("distrun: host-a waits for a round (job=train)") !=
               std::string::npos;
      },
      seconds(20)))
      << daemon.process().err();
}

TEST(DistrundTest, WithAStateFolderAJobOutlivesTheDaemonThatIsKilled) {
  const test::TempFolder folder;
  const std::vector<std::string> arguments{"--state", folder / "state", "--events",
                                           folder / "events.jsonl"};
  Join join = join_of("train", "host-a", 1);
  Fence round;
  {
    Distrund daemon(arguments);
    StubAgent a(daemon.port, join);
    const auto welcome = a.await<Welcome>();
    ASSERT_TRUE(welcome) << daemon.process().err();
    round = welcome->round;
    ::kill(daemon.process().pid(), SIGKILL);
    daemon.process().wait(seconds(20));
  }
  Distrund again(arguments);
  StubAgent browser(again.port);
  browser.socket().send("GET /status HTTP/1.0\r\n\r\n");
  const std::string page = browser.socket().receive(100'000);
  EXPECT_THAT(page, HasSubstr(R"("job":"train","phase":"recovering")"));
  join.held = Join::Held{round, NodeRank(0), 1, 0, std::nullopt, join.node};
  StubAgent a(again.port, join);
  a.hear_pings();
  EXPECT_TRUE(test::wait_for(
      [&] { return again.process().err().find("host-a") != std::string::npos; }, seconds(20)))
      << again.process().err();
  // One says it after the other.
  EXPECT_TRUE(test::wait_for(
      [&] {
        return test::read_file(folder / "events.jsonl").find("\"reattach\"") != std::string::npos;
      },
      seconds(20)))
      << test::read_file(folder / "events.jsonl");
}

TEST(DistrundTest, TwoDaemonsNeverShareAStateFolder) {
  const test::TempFolder folder;
  Distrund daemon({"--state", folder / "state"});
  ASSERT_NE(daemon.port, 0);
  const auto second = test::run_program({DISTRUND, "--port", "0", "--state", folder / "state"});
  EXPECT_EQ(second.status, 71);
  EXPECT_THAT(second.err, HasSubstr(folder / "state"));
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
