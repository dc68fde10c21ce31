#include "agent/process/console.h"
#include "tests/process/output_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace distrun::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ConsoleTest : public OutputTest {
 protected:
  void open_console(int out, int err) { console_.emplace(io_, out, err); }
  bool run_until_empty(bool read = true) {
    return run_until([this] { return console_->empty(); }, read);
  }
};

TEST_F(ConsoleTest, LeavesTheFlagsOfADescriptorThatOthersShareAlone) {
  open_console(out_[1], err_[1]);
  const std::string much(4'000'000, 'x');
  console_->write(Stream::out, 1, "", much + "\n");
  EXPECT_TRUE(console_->full(Stream::out));
  EXPECT_EQ(::fcntl(out_[1], F_GETFL) & O_NONBLOCK, 0);
  ASSERT_TRUE(run_until_empty());
  read_console();
  EXPECT_TRUE(console_out_ == much + "\n");
}

TEST_F(ConsoleTest, MakesThePipeThatItWritesToLarger) {
  constexpr int kSize = 1 << 20;
  if (::fcntl(err_[1], F_SETPIPE_SZ, kSize) != kSize) {
    GTEST_SKIP() << "this user may not have pipes of 1 MiB";
  }
  open_console(out_[1], err_[1]);
  EXPECT_EQ(::fcntl(out_[0], F_GETPIPE_SZ), kSize);
}

TEST_F(ConsoleTest, WritesToASocketWithoutWaiting) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  std::swap(ends[0], out_[0]);
  std::swap(ends[1], out_[1]);
  open_console(out_[1], err_[1]);
  const std::string much(4'000'000, 'x');
  console_->write(Stream::out, 1, "", much);
  EXPECT_FALSE(console_->empty());
  EXPECT_EQ(::fcntl(out_[1], F_GETFL) & O_NONBLOCK, 0);
  ASSERT_TRUE(run_until_empty());
  read_console();
  EXPECT_TRUE(console_out_ == much);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(ConsoleTest, WritesToAFileAtOnceAndBehindWhatOthersWrote) {
  const std::string path = folder_ + "/file";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  open_console(file, err_[1]);
  write_fully(file, "theirs\n");
  console_->write(Stream::out, 1, "p:", "ours\n");
  write_fully(file, "theirs\n");
  EXPECT_EQ(file_text(path), "theirs\np:ours\ntheirs\n");
  console_.reset();
  ::close(file);
}

TEST_F(ConsoleTest, StdoutAndStderrOnOnePipeAreOneStreamInOrder) {
  open_console(out_[1], out_[1]);
  console_->write(Stream::out, 1, "1:", "half");
  console_->write(Stream::err, 2, "2:", "whole\n");
  console_->write(Stream::out, 1, "1:", " more\n");
  console_->write_log("distrun: log\n");
  ASSERT_TRUE(run_until_empty());
  read_console();
  EXPECT_EQ(console_out_, "1:half\n2:whole\n1: more\ndistrun: log\n");
}

TEST_F(ConsoleTest, ALogLineEndsAWorkersUnfinishedOne) {
  open_console(out_[1], err_[1]);
  console_->write(Stream::err, 1, "", "half");
  console_->write_log("distrun: log\n");
  ASSERT_TRUE(run_until_empty());
  read_console();
  EXPECT_EQ(console_err_, "half\ndistrun: log\n");
}

TEST_F(ConsoleTest, LogLinesThatNobodyTakesAreBoundedAndCounted) {
  open_console(out_[1], err_[1]);
  log::set_sink([this](std::string_view line) { console_->write_log(line); });
  const std::string line = std::string(99'999, 'l') + "\n";
  for (int i = 0; i < 100; ++i) console_->write_log(line);
  ASSERT_TRUE(run_until_empty());
  ASSERT_TRUE(run_until_empty());
  read_console();
  EXPECT_LT(console_err_.size(), 3'000'000u);  // the pipe's 1 MiB and the log's, of 10 MB
  EXPECT_THAT(console_err_, HasSubstr("lines of this log were dropped (lines="));
  log::set_sink({});
}

TEST_F(ConsoleTest, FinishWaitsForASlowReaderUntilItsLimitOnly) {
  open_console(out_[1], err_[1]);
  console_->write(Stream::out, 1, "", std::string(3'000'000, 'x'));
  EXPECT_FALSE(console_->finish(std::chrono::milliseconds(20)));
}

TEST_F(ConsoleTest, WithoutATerminalThereIsNoProgressLine) {
  open_console(out_[1], err_[1]);
  console_->set_status_line("4 workers running");
  console_->write_log("distrun: log\n");
  ASSERT_TRUE(run_until_empty());
  read_console();
  EXPECT_FALSE(console_->on_terminal());
  EXPECT_EQ(console_err_, "distrun: log\n");
}

// A terminal whose other end is err_[0].
class TerminalTest : public ConsoleTest {
 protected:
  void SetUp() override {
    ConsoleTest::SetUp();
    ::close(err_[0]);
    ::close(err_[1]);
    err_[0] = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ASSERT_GE(err_[0], 0);
    ASSERT_EQ(::grantpt(err_[0]), 0);
    ASSERT_EQ(::unlockpt(err_[0]), 0);
    err_[1] = ::open(::ptsname(err_[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
    ASSERT_GE(err_[1], 0);
    const winsize size{24, 20, 0, 0};
    ASSERT_EQ(::ioctl(err_[1], TIOCSWINSZ, &size), 0);
  }
  static constexpr const char* kErase = "\r\x1b[K";
};

TEST_F(TerminalTest, TheProgressLineIsCutToTheTerminalAndErasedBeforeOtherText) {
  open_console(out_[1], err_[1]);
  console_->set_status_line("4 workers running, round 0");
  console_->write_log("distrun: log\n");
  ASSERT_TRUE(run_until([&] { return console_err_.size() >= 64; })) << console_err_;
  const std::string line = std::string(kErase) + "4 workers running, ";
  EXPECT_EQ(console_err_, line + kErase + "distrun: log\r\n" + line);
}

TEST_F(TerminalTest, TheProgressLineNeverGoesBehindAnUnfinishedLine) {
  open_console(out_[1], err_[1]);
  console_->write(Stream::err, 1, "", "half");
  console_->set_status_line("running");
  ASSERT_TRUE(run_until([&] { return console_err_ == "half"; }));
  console_->set_status_line("still running");
  console_->write(Stream::err, 1, "", " done\n");
  ASSERT_TRUE(run_until([&] { return console_err_.ends_with("still running"); })) << console_err_;
  EXPECT_EQ(console_err_, "half done\r\n" + std::string(kErase) + "still running");
}

TEST_F(TerminalTest, TheEndEndsAnUnfinishedLine) {
  open_console(out_[1], err_[1]);
  console_->write(Stream::err, 1, "", "half");
  EXPECT_TRUE(console_->finish(kLimit));
  // What was written to a terminal is at its other end a moment later.
  ASSERT_TRUE(run_until([&] { return console_err_.size() >= 6; })) << console_err_;
  EXPECT_EQ(console_err_, "half\r\n");
}

TEST_F(TerminalTest, TheEndErasesTheProgressLine) {
  open_console(out_[1], err_[1]);
  console_->set_status_line("running");
  EXPECT_TRUE(console_->finish(kLimit));
  EXPECT_TRUE(run_until([&] { return console_err_.ends_with(std::string("running") + kErase); }))
      << console_err_;
}

}  // namespace
}  // namespace distrun::agent
