#include "agent/process/output.h"

#include "agent/process/worker_stream.h"
#include "tests/process/output_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>

namespace distrun::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Line `i` of a writer: of many lengths, so that pipes and buffers cut it anywhere.
std::string line_of(int writer, int i) {
  return std::to_string(writer) + " " + std::to_string(i) + " " +
         std::string(static_cast<std::size_t>(i * 37 + writer) % 120,
                     static_cast<char>('a' + writer)) +
         "\n";
}

TEST_F(OutputTest, ManyLinesOfFourWritersArriveWholeInOrderAndInTheirFiles) {
  constexpr int kWriters = 4;
  constexpr int kLines = 25'000;
  resize(kWriters);
  tee_all();
  open();
  for (int writer = 0; writer < kWriters; ++writer) {
    start(writer, [writer] {
      std::string block;
      for (int i = 0; i < kLines; ++i) {
        block += line_of(writer, i);
        if (block.size() < 4096) continue;
        write_fully(1, std::string_view(block).substr(0, 4096));  // in the middle of a line
        block.erase(0, 4096);
      }
      write_fully(1, block);
    });
  }
  ASSERT_TRUE(run_until_drained());

  std::map<int, int> next;
  std::istringstream lines(console_out_);
  for (std::string line; std::getline(lines, line);) {
    const int writer = line.at(8) - '0';
    ASSERT_EQ(line + "\n",
              "[default" + std::to_string(writer) + "]:" + line_of(writer, next[writer]));
    ++next[writer];
  }
  for (int writer = 0; writer < kWriters; ++writer) {
    EXPECT_EQ(next[writer], kLines);
    std::string expected;
    for (int i = 0; i < kLines; ++i) expected += line_of(writer, i);
    EXPECT_EQ(file_text(output_->log_file(LocalRank(writer), Stream::out)), expected);
  }
}

TEST_F(OutputTest, NothingIsLostOfAWorkerThatIsKilledInTheMiddle) {
  tee_all();
  open();
  void* shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* lines_written = new (shared) std::atomic<int>(0);
  const pid_t child = start(0, [lines_written] {
    for (int i = 0;; ++i) {
      const std::string line = "line " + std::to_string(i) + "\n";
      write_fully(2, line);
      lines_written->store(i + 1);
    }
  });
  ASSERT_TRUE(run_until([&] { return lines_written->load() > 3000; }));
  // More than the loop has seen: a thousand lines, or a full pipe.
  const int seen = lines_written->load();
  const TimePoint enough = Clock::now() + std::chrono::milliseconds(500);
  while (lines_written->load() < seen + 1000 && Clock::now() < enough) ::sched_yield();
  ::kill(child, SIGKILL);
  ASSERT_TRUE(WIFSIGNALED(wait_for(child, 0)));
  const int written = lines_written->load();  // the next one may have been written, too

  // Before the loop has run again: that is when the report is made.
  const auto last = output_->last_lines(LocalRank(0), Stream::err);
  ASSERT_FALSE(last.empty());
  EXPECT_THAT(last.back(), ::testing::AnyOf("line " + std::to_string(written - 1),
                                            "line " + std::to_string(written)));
  ASSERT_TRUE(run_until_drained());
  const std::string end = last.back() + "\n";
  EXPECT_TRUE(file_text(output_->log_file(LocalRank(0), Stream::err)).ends_with(end));
  EXPECT_TRUE(console_err_.ends_with("[default0]:" + end));
  ::munmap(shared, 4096);
}

TEST_F(OutputTest, EachStreamGoesItsOwnWay) {
  // torchrun -r 0:1,1:2 -t 1:1 --role trainer
  resize(2);
  spec_.role = "trainer";
  spec_.log.base_dir = folder_;
  spec_.log.redirects = {{true, false}, {false, true}};
  spec_.log.tee = {{false, false}, {true, false}};
  open();
  for (int rank = 0; rank < 2; ++rank) {
    start(rank, [rank] {
      write_fully(1, "out " + std::to_string(rank) + "\n");
      write_fully(2, "err " + std::to_string(rank) + "\n");
    });
  }
  ASSERT_TRUE(run_until_drained());
  EXPECT_EQ(console_out_, "[trainer1]:out 1\n");
  EXPECT_EQ(console_err_, "err 0\n");
  while (!children_.empty()) wait_for(children_.back(), 0);
  EXPECT_EQ(file_text(output_->log_file(LocalRank(0), Stream::out)), "out 0\n");
  EXPECT_EQ(file_text(output_->log_file(LocalRank(1), Stream::out)), "out 1\n");
  EXPECT_EQ(file_text(output_->log_file(LocalRank(1), Stream::err)), "err 1\n");
  EXPECT_EQ(output_->log_file(LocalRank(0), Stream::err), "");
}

TEST_F(OutputTest, ARedirectedWorkerWritesIntoItsFileItself) {
  spec_.log.redirects = {{true, false}};
  open();
  const pid_t child = start(0, [] {
    struct stat status {};
    ::fstat(1, &status);
    write_fully(1, S_ISREG(status.st_mode) ? "first\na file\n" : "first\nno file\n");
  });
  wait_for(child, 0);
  EXPECT_THAT(output_->last_lines(LocalRank(0), Stream::out), ElementsAre("first", "a file"));
}

TEST_F(OutputTest, BytesAreNeverChanged) {
  tee_all();
  open();
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  bytes += std::string("\0\r\n\xff\xfe half of \xc3", 16);
  start(0, [&bytes] { write_fully(1, bytes); });
  ASSERT_TRUE(run_until_drained());
  EXPECT_EQ(file_text(output_->log_file(LocalRank(0), Stream::out)), bytes);
  std::string expected = "[default0]:" + bytes;
  for (std::size_t at = expected.find('\n'); at != expected.npos;
       at = expected.find('\n', at + 1)) {
    if (at + 1 < expected.size()) expected.insert(at + 1, "[default0]:");
  }
  EXPECT_EQ(console_out_, expected);
}

TEST_F(OutputTest, AnUnfinishedLineIsShownSoonAndItsRestHasNoSecondPrefix) {
  tee_all();
  open();
  start(0, [] {
    write_fully(1, "step 0");
    ::raise(SIGSTOP);
    write_fully(1, " done\nstep 1\n");
  });
  ASSERT_TRUE(run_until([&] { return console_out_ == "[default0]:step 0"; })) << console_out_;
  int status = 0;
  ASSERT_EQ(::waitpid(children_[0], &status, WUNTRACED), children_[0]);
  ::kill(children_[0], SIGCONT);
  ASSERT_TRUE(run_until_drained());
  EXPECT_EQ(console_out_, "[default0]:step 0 done\n[default0]:step 1\n");
}

TEST_F(OutputTest, AnUnfinishedLineIsEndedBeforeAnotherWorkersAndTakenUpUnderItsPrefix) {
  resize(2);
  tee_all();
  open();
  const pid_t first = start(0, [] {
    write_fully(1, "step 0");
    ::raise(SIGSTOP);
    write_fully(1, " done\n");
  });
  ASSERT_TRUE(run_until([&] { return console_out_ == "[default0]:step 0"; }));
  const pid_t second = start(1, [] { write_fully(1, "hello\n"); });
  wait_for(second, 1);
  int status = 0;
  ASSERT_EQ(::waitpid(first, &status, WUNTRACED), first);
  ::kill(first, SIGCONT);
  ASSERT_TRUE(run_until_drained());
  EXPECT_EQ(console_out_, "[default0]:step 0\n[default1]:hello\n[default0]: done\n");
}

TEST_F(OutputTest, ALineThatIsCutByTheWorkersBufferIsNotCutOnTheConsole) {
  console_.emplace(io_, out_[1], err_[1]);
  const auto stream = [this](int owner, const std::string& prefix) {
    // Longer than this test may be held up.
    WorkerStream::Ways ways{.owner = owner, .prefix = prefix, .hold_block = std::chrono::hours(1)};
    auto made = std::make_shared<WorkerStream>(io_, *console_, std::move(ways), [] {});
    EXPECT_TRUE(made->open(1 << 16));
    return made;
  };
  const auto first = stream(0, "0:");
  const auto second = stream(1, "1:");
  const std::string line(5000, 'x');
  write_fully(first->child_end(), line.substr(0, 4096));
  const TimePoint later = Clock::now() + 3 * WorkerStream::kHold;
  ASSERT_TRUE(run_until([&] { return Clock::now() > later; }));
  EXPECT_EQ(console_out_, "");
  write_fully(second->child_end(), "hello\n");
  ASSERT_TRUE(run_until([&] { return !console_out_.empty(); }));
  write_fully(first->child_end(), line.substr(4096) + "\n");
  ASSERT_TRUE(run_until([&] { return console_out_.size() >= 8 + 2 + line.size() + 1; }));
  EXPECT_EQ(console_out_, "1:hello\n0:" + line + "\n");
  first->close();
  second->close();
}

TEST_F(OutputTest, ALastLineWithoutAnEndIsPassedOnAsItIs) {
  tee_all();
  open();
  start(0, [] { write_fully(1, "no end"); });
  ASSERT_TRUE(run_until_drained());
  EXPECT_TRUE(console_->finish(kLimit));
  read_console();
  EXPECT_EQ(console_out_, "[default0]:no end");
  EXPECT_EQ(file_text(output_->log_file(LocalRank(0), Stream::out)), "no end");
}

TEST_F(OutputTest, WithoutTeeLinesHaveNoPrefix) {
  open();
  start(0, [] {
    write_fully(1, "out\n");
    write_fully(2, "err\n");
  });
  ASSERT_TRUE(run_until_drained());
  EXPECT_EQ(console_out_, "out\n");
  EXPECT_EQ(console_err_, "err\n");
}

TEST_F(OutputTest, AVeryLongLineArrivesWholeWithOnePrefix) {
  tee_all();
  open();
  const std::string line = std::string(1'000'000, 'x') + "\n";
  start(0, [&line] { write_fully(1, line); });
  ASSERT_TRUE(run_until_drained());
  EXPECT_TRUE(console_out_ == "[default0]:" + line) << console_out_.size();
}

TEST_F(OutputTest, AWorkerOffTheConsoleIsStillKeptForTheReportAndInItsFile) {
  resize(2);
  spec_.log.tee = {{false, false}, kBoth};
  spec_.log.on_console = {false, false};
  open();
  for (int rank = 0; rank < 2; ++rank) start(rank, [] { write_fully(2, "quiet\n"); });
  ASSERT_TRUE(run_until_drained());
  EXPECT_EQ(console_err_, "");
  EXPECT_THAT(output_->last_lines(LocalRank(0), Stream::err), ElementsAre("quiet"));
  EXPECT_EQ(file_text(output_->log_file(LocalRank(1), Stream::err)), "quiet\n");
}

TEST_F(OutputTest, AConsoleThatIsNotReadStopsTheWorkerNotTheLoopAndLosesNothing) {
  tee_all();
  open();
  constexpr int kBytes = 16 * 1024 * 1024;
  start(0, [] {
    const std::string line = std::string(1023, 'y') + "\n";
    for (int i = 0; i < kBytes / 1024; ++i) write_fully(1, line);
  });
  ASSERT_TRUE(run_until([&] { return console_->full(Stream::out); }, false));
  std::uintmax_t size = 0;
  for (int i = 0; i < 20; ++i) {  // the loop still turns, and nothing more is read
    io_.restart();
    io_.run_one_for(std::chrono::milliseconds(5));
    size = fs::file_size(output_->log_file(LocalRank(0), Stream::out));
  }
  EXPECT_LT(size, 3u * 1024 * 1024);
  int status = 0;
  EXPECT_EQ(::waitpid(children_[0], &status, WNOHANG), 0) << "the worker should be waiting";

  ASSERT_TRUE(run_until_drained());
  EXPECT_EQ(fs::file_size(output_->log_file(LocalRank(0), Stream::out)),
            static_cast<std::uintmax_t>(kBytes));
  EXPECT_EQ(console_out_.size(), static_cast<std::size_t>(kBytes / 1024) * (1024 + 11));
}

TEST_F(OutputTest, TheDeadAreTakenInFullEvenIfTheConsoleIsNotRead) {
  open();
  console_->write(Stream::err, -2, "", std::string(3'000'000, 'x') + "\n");
  ASSERT_TRUE(console_->full(Stream::err));
  const pid_t child = start(0, [] {
    write_fully(2, std::string(50'000, 'z') + "\nthe reason\n");
    ::_exit(3);
  });
  wait_for(child, 0);
  EXPECT_THAT(output_->last_lines(LocalRank(0), Stream::err), ElementsAre("the reason"));
  ASSERT_TRUE(run_until_drained());
  EXPECT_TRUE(console_err_.ends_with("z\nthe reason\n"));
}

TEST_F(OutputTest, AClosedConsoleIsToldOnceAndWorkersAndFilesGoOn) {
  tee_all();
  open();
  ::close(std::exchange(out_[0], -1));
  const std::string line(1023, 'y');
  const pid_t child = start(0, [&line] {
    for (int i = 0; i < 4096; ++i) write_fully(1, line + "\n");
  });
  ASSERT_TRUE(run_until_drained());
  EXPECT_EQ(wait_for(child, 0), 0);
  EXPECT_EQ(fs::file_size(output_->log_file(LocalRank(0), Stream::out)), 4096u * 1024);
  EXPECT_THAT(told_, HasSubstr("stdout cannot be written any more"));
  EXPECT_EQ(std::count(told_.begin(), told_.end(), '\n'), 1);
}

TEST_F(OutputTest, AConsoleThatIsClosedWhileFullLetsTheWorkersGoOn) {
  tee_all();
  open();
  const pid_t child = start(0, [] {
    for (int i = 0; i < 8192; ++i) write_fully(1, std::string(1023, 'y') + "\n");
  });
  ASSERT_TRUE(run_until([&] { return console_->full(Stream::out); }, false));
  ::close(std::exchange(out_[0], -1));
  ASSERT_TRUE(run_until_drained());
  EXPECT_EQ(wait_for(child, 0), 0);
  EXPECT_EQ(fs::file_size(output_->log_file(LocalRank(0), Stream::out)), 8192u * 1024);
}

TEST_F(OutputTest, AFullDiskIsToldOnceAndTheConsoleGoesOn) {
  if (::mount("none", folder_.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "needs the right to mount a small tmpfs: " << std::strerror(errno);
  }
  tee_all();
  spec_.log.base_dir = folder_;
  open();
  start(0, [] {
    for (int i = 0; i < 1024; ++i) write_fully(1, std::string(1023, 'y') + "\n");
  });
  const bool drained = run_until_drained();
  const std::string file = output_->log_file(LocalRank(0), Stream::out);
  output_.reset();
  ::umount2(folder_.c_str(), MNT_DETACH);
  ASSERT_TRUE(drained);
  EXPECT_EQ(console_out_.size(), 1024u * (1024 + 11));
  EXPECT_THAT(told_, HasSubstr(file));
  EXPECT_THAT(told_, HasSubstr("No space left on device"));
  EXPECT_EQ(std::count(told_.begin(), told_.end(), '\n'), 1);
}

TEST_F(OutputTest, AGrandchildThatHoldsThePipeDelaysNobodyAndIsStillHeard) {
  tee_all();
  open();
  const pid_t child = start(0, [] {
    sigset_t wake;
    ::sigemptyset(&wake);
    ::sigaddset(&wake, SIGUSR1);
    ::sigprocmask(SIG_BLOCK, &wake, nullptr);
    if (::fork() == 0) {
      int signo = 0;
      ::sigwait(&wake, &signo);
      write_fully(1, "from the grandchild\n");
      ::sigwait(&wake, &signo);
    }
    write_fully(1, "from the worker\n");
  });
  wait_for(child, 0);
  EXPECT_THAT(output_->last_lines(LocalRank(0), Stream::out), ElementsAre("from the worker"));
  EXPECT_FALSE(output_->drained());

  children_.push_back(child);  // its group still has a member
  ::kill(-child, SIGUSR1);
  ASSERT_TRUE(run_until([&] {
    return console_out_ == "[default0]:from the worker\n[default0]:from the grandchild\n";
  })) << console_out_;
  EXPECT_FALSE(output_->drained());
  bool called = false;
  output_->when_drained([&called] { called = true; });
  output_->close_round();
  EXPECT_TRUE(output_->drained());
  io_.restart();
  io_.poll();
  EXPECT_FALSE(called);
  ::kill(-child, SIGKILL);
  children_.clear();
}

TEST_F(OutputTest, AGrandchildThatWritesForEverCannotHoldUpTheReport) {
  open();
  const pid_t child = start(0, [] {
    if (::fork() == 0) {
      while (true) write_fully(1, "again and again\n");
    }
  });
  wait_for(child, 0);  // returns
  output_->close_round();
  ::kill(-child, SIGKILL);
}

TEST_F(OutputTest, LinesWithAWordAreCopiedOfTeedStreamsThatAreOnTheConsole) {
  resize(3);
  spec_.log.base_dir = folder_;
  spec_.log.tee = {{true, false}, {true, false}, {false, false}};
  spec_.log.on_console = {true, false, true};
  spec_.log.out_filters = {"loss=", "acc="};
  open();
  const std::string filtered =
      fs::path(output_->run_folder()) / "attempt_0" / "filtered_stdout.log";
  for (int rank = 0; rank < 3; ++rank) {
    start(rank, [] {
      write_fully(1, "step 1\nloss=3\nLOSS=3\nit is lo");
      write_fully(1, "ss=2\nend acc=1");
    });
  }
  ASSERT_TRUE(run_until_drained());
  EXPECT_EQ(file_text(filtered),
            "[default0]:loss=3\n[default0]:it is loss=2\n[default0]:end acc=1\n");
}

TEST_F(OutputTest, ALaterAttemptLeavesEarlierFilesAndStartsWithEmptyOnes) {
  tee_all();
  open();
  wait_for(start(0, [] { write_fully(1, "first\n"); }), 0);
  const std::string first = output_->log_file(LocalRank(0), Stream::out);
  ASSERT_TRUE(output_->open_round(1));
  wait_for(start(0, [] { write_fully(1, "second\n"); }), 0);
  EXPECT_EQ(file_text(first), "first\n");
  EXPECT_EQ(file_text(output_->log_file(LocalRank(0), Stream::out)), "second\n");
  EXPECT_EQ(fs::path(first).parent_path().parent_path().filename(), "attempt_0");
}

TEST_F(OutputTest, IfNobodyAskedForFilesNothingIsOnTheDiskUnlessAWorkerLeavesAnErrorFile) {
  open();
  const auto streams = output_->open_streams(LocalRank(0), Rank(0));
  ASSERT_TRUE(streams);
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_EQ(fs::path(streams->error_file).parent_path(), folder_);
  std::ofstream(streams->error_file) << "{}";
  output_->worker_exited(LocalRank(0));
  output_->finish(true);
  EXPECT_EQ(fs::status(streams->error_file).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  output_->finish(false);
  EXPECT_FALSE(fs::exists(streams->error_file));
}

TEST_F(OutputTest, ARoundNeverReadsTheErrorFileOfAnOlderOneWithTheSameRestartCount) {
  open();
  const auto first = output_->open_streams(LocalRank(0), Rank(0));
  ASSERT_TRUE(output_->open_round(0));
  const auto second = output_->open_streams(LocalRank(0), Rank(0));
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->error_file, second->error_file);
}

TEST_F(OutputTest, DevNullGivesNoFilesNoErrorFileAndStillPrefixes) {
  resize(2);
  spec_.log.base_dir = "/dev/null";
  spec_.log.tee[0] = kBoth;
  spec_.log.redirects[1] = kBoth;
  open();
  for (int rank = 0; rank < 2; ++rank) start(rank, [] { write_fully(1, "hello\n"); });
  ASSERT_TRUE(run_until_drained());
  EXPECT_EQ(console_out_, "[default0]:hello\n");
  EXPECT_EQ(output_->error_file(LocalRank(0)), "");
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(OutputTest, FilesThatWereAskedForAndCannotBeMadeAreAnError) {
  spec_.log.base_dir = "/proc/no";
  console_.emplace(io_, out_[1], err_[1]);
  output_.emplace(io_, spec_, *console_, ConsoleMode::lines);
  const auto opened = output_->open_round(0);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().detail, HasSubstr("/proc/no"));
}

TEST_F(OutputTest, InheritGivesOurOwnDescriptorsAndKeepsNothing) {
  open(ConsoleMode::inherit);
  const auto streams = output_->open_streams(LocalRank(0), Rank(0));
  ASSERT_TRUE(streams);
  EXPECT_EQ(streams->out, 1);
  EXPECT_EQ(streams->err, 2);
  EXPECT_TRUE(output_->drained());
  EXPECT_THAT(output_->last_lines(LocalRank(0), Stream::err), IsEmpty());
}

}  // namespace
}  // namespace distrun::agent
