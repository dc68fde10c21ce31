#include "rendezvous/server/event_file.h"

#include "runtime/base/log.h"
#include "tests/support/replay_events.h"
#include "tests/support/run_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

namespace distrun::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

std::chrono::system_clock::time_point half_past_one() {
  return std::chrono::system_clock::time_point(1'790'000'000'123'456us);
}

// A coordinator with its event file, as a server runs it, and agents that are told what to say.
class EventFileTest : public testing::Test {
 protected:
  EventFileTest() {
    log::set_sink([this](std::string_view line) { logged_.emplace_back(line); });
  }
  ~EventFileTest() override { log::set_sink({}); }

  std::string path() const { return folder_ / "events.jsonl"; }
  std::string bytes() const { return test::read_file(path()); }
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::istringstream in(bytes());
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  }

  void open(EventFileOptions options = {}) {
    options.wall = half_past_one;
    file_.reset();
    auto opened = EventFile::open(path(), std::move(options));
    ASSERT_TRUE(opened) << opened.error().detail;
    file_ = std::move(*opened);
  }
  void begin(const std::vector<Record>& records = {}) {
    coordinator_ = std::make_unique<Coordinator>(CoordinatorLimits{}, Authority{});
    file_->start(CoordinatorLimits{}, Authority{}, records, now_);
    for (const Record& record : records) coordinator_->restore(record, now_);
  }
  void feed(const Event& event) {
    file_->on_input(event, now_);
    for (const Effect& effect : coordinator_->handle(event, now_)) {
      if (const auto* note = std::get_if<Note>(&effect)) {
        file_->on_happening(note->happening, now_);
      } else if (const auto* save = std::get_if<Save>(&effect)) {
        saved_ = *save->record;
      }
    }
  }
  void say(int session, AgentMessage message) {
    feed(Received{SessionId(session), std::move(message)});
  }
  void wait(Duration time) {
    now_ += time;
    while (coordinator_->next_deadline() && *coordinator_->next_deadline() <= now_) feed(Tick{});
  }
  static Join join(const std::string& host) {
    Join join;
    join.job = "train";
    join.token = "very secret";
    join.node = host + ".4711.1";
    join.host = host;
    join.address = "10.0.0.1";
    join.store_port = 3000;
    join.terms.min_nodes = 2;
    join.terms.max_nodes = 2;
    join.terms.max_restarts = 1;
    join.terms.command = "train.py";
    return join;
  }
  // Two nodes meet, a worker fails, the second round succeeds.
  void run_a_job() {
    say(1, join("host-a"));
    wait(100ms);
    say(2, join("host-b"));
    wait(500ms);
    Outcome failed;
    failed.round = {0, Generation(0)};
    failed.result = RoundResult::failed;
    failed.failure = Failure{"host-b", Rank(1), LocalRank(0), 77, "exited with status 3", 3, 4ms};
    say(2, Failed{failed.round, *failed.failure});
    wait(20ms);
    say(2, Ended{failed, 3001});
    Outcome stopped;
    stopped.round = failed.round;
    say(1, Ended{stopped, 3002});
    wait(10ms);
    Outcome done;
    done.round = {0, Generation(1)};
    done.result = RoundResult::succeeded;
    say(1, Ended{done, 0});
    say(2, Ended{done, 0});
    feed(Closed{SessionId(1)});
    feed(Closed{SessionId(2)});
  }
  test::Replayed replay(const std::string& text) {
    std::istringstream in(text);
    std::ostringstream story;
    auto result = test::replay_events(in, story);
    story_ = story.str();
    return result;
  }

  test::TempFolder folder_;
  TimePoint now_{1000s};
  std::unique_ptr<EventFile> file_;
  std::unique_ptr<Coordinator> coordinator_;
  Record saved_;
  std::string story_;
  std::vector<std::string> logged_;
};

// ---- what is in it -----------------------------------------------------------------------------

TEST_F(EventFileTest, EveryLineIsReadAsItWasWritten) {
  open();
  begin();
  run_a_job();
  for (const std::string& line : lines()) {
    const auto parsed = parse_event_line(line);
    EXPECT_TRUE(parsed) << line << "\n" << parsed.error().detail;
  }
  EXPECT_THAT(lines(), SizeIs(testing::Gt(15U)));
}

TEST_F(EventFileTest, AHappeningHasBothClocksItsRoundAndASentence) {
  open();
  Happening loss;
  loss.kind = HappeningKind::loss;
  loss.job = "train";
  loss.round = {16, Generation(3)};
  loss.node = "host-a.4711.1";
  loss.host = "host-a";
  loss.text = "host-a is lost: silent for 3 s";
  file_->on_happening(loss, now_ + 5ns);
  EXPECT_EQ(
      bytes(),
      R"({"kind":"loss","time":"2026-09-21T14:13:20.123456Z","at":1000000000005,"job":"train",)"
      R"("round":{"epoch":16,"generation":3},"node":"host-a.4711.1","host":"host-a",)"
      R"("text":"host-a is lost: silent for 3 s"})"
      "\n");
}

TEST_F(EventFileTest, InputsAreAsOnTheWire) {
  open();
  file_->on_input(Received{SessionId(7), Pong{42}}, now_);
  file_->on_input(Closed{SessionId(7)}, now_);
  file_->on_input(ReachedAt{"10.0.0.5"}, now_);
  file_->on_input(Tick{}, now_);
  EXPECT_THAT(
      lines(),
      testing::ElementsAre(
          R"({"kind":"input","at":1000000000000,"input":"received","session":7,)"
          R"("message":{"type":"pong","number":42}})",
          R"({"kind":"input","at":1000000000000,"input":"closed","session":7})",
          R"({"kind":"input","at":1000000000000,"input":"reached_at","address":"10.0.0.5"})",
          R"({"kind":"input","at":1000000000000,"input":"tick"})"));
}

TEST_F(EventFileTest, HoldsNoToken) {
  open();
  Record record;
  record.job = "other";
  record.token = "also secret";
  begin({record});
  run_a_job();
  EXPECT_THAT(bytes(), Not(HasSubstr("secret")));
  EXPECT_THAT(bytes(), HasSubstr(R"("token":"token-1")"));
  EXPECT_THAT(bytes(), HasSubstr(R"("token":"token-2")"));
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);  // commands are in it
}

TEST_F(EventFileTest, NamesAFileThatCannotBeOpened) {
  const auto opened = EventFile::open(folder_ / "missing/events.jsonl");
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().detail, HasSubstr("missing/events.jsonl: No such file"));
}

TEST_F(EventFileTest, BadLinesAreErrorsInWords) {
  for (const char* line :
       {"", "{", "[]", "{}", R"({"kind":"party"})", R"({"kind":"input","at":1})",
        R"({"kind":"input","at":-1,"input":"tick"})",
        R"({"kind":"input","at":1,"input":"received","session":1,"message":{"type":"hello"}})",
        R"({"kind":"start","at":1,"format":2,"limits":{},"authority":{},"records":[]})",
        R"({"kind":"seal","at":1})"}) {
    const auto parsed = parse_event_line(line);
    ASSERT_FALSE(parsed) << line;
    EXPECT_THAT(parsed.error().detail, Not(IsEmpty()));
  }
}

// ---- a file that takes no more -----------------------------------------------------------------

TEST_F(EventFileTest, AFullDiskIsSaidOnceAndHarmsNobody) {
  auto full = EventFile::open("/dev/full");
  ASSERT_TRUE(full);
  for (int i = 0; i < 100; ++i) (*full)->on_input(Tick{}, now_);
  ASSERT_THAT(logged_, SizeIs(1));
  EXPECT_THAT(logged_[0], HasSubstr("/dev/full: events are not written for now: No space left"));
}

TEST_F(EventFileTest, APipeThatNobodyEmptiesCostsABoundedBufferAndTheGapIsTold) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EventFileOptions options;
  options.max_waiting = 10'000;
  open(options);
  for (int i = 0; i < 5000; ++i) file_->on_input(Closed{SessionId(i)}, now_);
  EXPECT_THAT(logged_, SizeIs(1));

  const int reader = ::open(path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  std::string text;
  const auto empty = [&] {
    std::string buffer(65'536, '\0');
    for (ssize_t n = 0; (n = ::read(reader, buffer.data(), buffer.size())) > 0;) {
      text.append(buffer, 0, static_cast<std::size_t>(n));
    }
  };
  empty();
  file_->on_input(Tick{}, now_);
  empty();
  ::close(reader);

  std::istringstream in(text);
  std::size_t closed = 0;
  std::string gap;
  for (std::string line; std::getline(in, line);) {
    const auto parsed = parse_event_line(line);
    ASSERT_TRUE(parsed) << line;
    if (const auto* found = std::get_if<event_line::Gap>(&*parsed)) gap = found->why;
    if (gap.empty()) ++closed;
  }
  EXPECT_EQ(gap, std::to_string(5000 - closed) + " lines could not be written");
}

TEST_F(EventFileTest, AboveItsSizeOnlyHappeningsAreWrittenAndThenNothing) {
  EventFileOptions options;
  options.max_bytes = 2000;
  open(options);
  for (int i = 0; i < 100; ++i) file_->on_input(Tick{}, now_);
  EXPECT_LT(bytes().size(), 2500U);
  EXPECT_THAT(lines().back(), HasSubstr(R"("kind":"gap")"));
  file_->on_happening(Happening{}, now_);
  EXPECT_THAT(lines().back(), HasSubstr(R"("kind":"join")"));
  for (int i = 0; i < 100; ++i) file_->on_happening(Happening{}, now_);
  EXPECT_LT(bytes().size(), 4600U);
  EXPECT_THAT(logged_, SizeIs(2));
}

// ---- replay ------------------------------------------------------------------------------------

TEST_F(EventFileTest, AReplayTellsTheSameStory) {
  open();
  begin();
  run_a_job();
  const auto result = replay(bytes());
  EXPECT_THAT(result.unreadable, IsEmpty());
  EXPECT_THAT(result.difference, IsEmpty());
  EXPECT_THAT(result.incomplete, IsEmpty());
  EXPECT_EQ(result.coordinators, 1U);
  EXPECT_GT(result.inputs, 8U);
  EXPECT_GT(result.happenings, 6U);
  EXPECT_EQ(static_cast<std::size_t>(std::count(story_.begin(), story_.end(), '\n')),
            result.happenings);
  for (const char* kind :
       {"join [train", "seal [train", "failure [train", "restart [train", "over [train"}) {
    EXPECT_THAT(story_, HasSubstr(kind));
  }
}

TEST_F(EventFileTest, AReplayGoesOnWithTheNextCoordinator) {
  open();
  begin();
  say(1, join("host-a"));
  say(2, join("host-b"));
  open();  // killed and started again
  now_ += 60s;
  begin({saved_});
  Join again = join("host-a");
  again.held = Join::Held{};
  again.held->round = saved_.last;
  again.held->node_count = 2;
  again.held->founder = saved_.founder;
  say(1, again);
  wait(10s);
  const auto result = replay(bytes());
  EXPECT_THAT(result.difference, IsEmpty());
  EXPECT_THAT(result.unreadable, IsEmpty());
  EXPECT_EQ(result.coordinators, 2U);
  EXPECT_THAT(story_, HasSubstr("reattach"));
}

TEST_F(EventFileTest, AReplayFindsWhatDiffers) {
  open();
  begin();
  run_a_job();
  std::string text = bytes();
  const auto at = text.find(R"({"kind":"seal")");
  ASSERT_NE(at, std::string::npos);
  const std::string rest = text.substr(at);

  text.replace(at, 14, R"({"kind":"loss")");
  auto result = replay(text);
  EXPECT_THAT(result.difference, HasSubstr("recorded: loss [train"));
  EXPECT_THAT(result.difference, HasSubstr("replayed: seal [train"));

  text = bytes().substr(0, at) + rest.substr(rest.find('\n') + 1);
  result = replay(text);
  EXPECT_THAT(result.difference, HasSubstr("replayed: seal [train")) << "a line that is gone";
}

TEST_F(EventFileTest, ATornLastLineIsToldAndTheRestReplayed) {
  open();
  begin();
  run_a_job();
  const std::string text = bytes();
  auto result = replay(text.substr(0, text.size() - 10));
  EXPECT_THAT(result.difference, IsEmpty());
  EXPECT_THAT(result.unreadable, IsEmpty());
  EXPECT_THAT(result.incomplete, HasSubstr("the file ends there"));

  // And a coordinator that is started again goes on with a line of its own.
  std::ofstream(path(), std::ios::trunc) << text.substr(0, text.size() - 10);
  open();
  begin();
  result = replay(bytes());
  EXPECT_THAT(result.unreadable, IsEmpty());
  EXPECT_EQ(result.coordinators, 2U);
}

TEST_F(EventFileTest, OtherFilesAreRefused) {
  EXPECT_THAT(replay("").unreadable, Not(IsEmpty()));
  EXPECT_THAT(replay("hello\nworld\n").unreadable, HasSubstr("line 1"));
  EXPECT_THAT(replay("{\"kind\":\"input\",\"at\":1,\"input\":\"tick\"}\n").unreadable,
              HasSubstr("no coordinator begins"));
}

}  // namespace
}  // namespace distrun::rendezvous
