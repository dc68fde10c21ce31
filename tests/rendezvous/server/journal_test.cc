#include "rendezvous/server/journal.h"

#include "runtime/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace distrun::rendezvous {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

class JournalTest : public testing::Test {
 protected:
  JournalTest() {
    // In memory where there is such a folder: thousands of fsyncs on a disk take minutes.
    const bool memory = ::access("/dev/shm", W_OK) == 0;
    std::string name = (memory ? "/dev/shm/" : testing::TempDir()) + "journal-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
    log::set_sink([this](std::string_view line) { logged_.emplace_back(line); });
  }
  ~JournalTest() override {
    log::set_sink({});
    fs::remove_all(folder_);
  }

  std::string path() const { return folder_ + "/journal"; }
  std::string bytes() const {
    std::ifstream in(path(), std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  void overwrite(const std::string& text) const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << text;
  }
  std::unique_ptr<Journal> open(JournalOptions options = {}) const {
    auto journal = Journal::open(folder_, std::move(options));
    if (!journal) {
      ADD_FAILURE() << journal.error().detail;
      return nullptr;
    }
    return std::move(*journal);
  }
  std::string open_error() const {
    const auto journal = Journal::open(folder_);
    return journal ? "it opened" : journal.error().detail;
  }

  std::string folder_;
  std::vector<std::string> logged_;
};

Record record(const std::string& job, int generation) {
  Record made;
  made.job = job;
  made.token = "secret";
  made.terms.min_nodes = 2;
  made.terms.max_nodes = 4;
  made.terms.command = "train.py --name \"a b\"\n";
  made.last = {0, Generation(generation)};
  made.node_count = 3;
  made.hosts = {"host-a", "host-b", "host-c"};
  made.restarts = generation;
  return made;
}

// A job, saved once for each generation; sentences of the tests are about the last one.
int generation_of(const Journal& journal, const std::string& job) {
  for (const Record& r : journal.records()) {
    if (r.job == job) return r.last.generation.value;
  }
  return -1;
}

TEST_F(JournalTest, ANewOneIsEmpty) {
  EXPECT_THAT(open()->records(), IsEmpty());
}

TEST_F(JournalTest, MakesItsFolderForItsOwnerOnly) {
  folder_ += "/state";
  open();
  struct stat status {};
  ASSERT_EQ(::stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);  // tokens are in it
  folder_ = fs::path(folder_).parent_path();
}

TEST_F(JournalTest, SaysWhichFolderCannotBeMade) {
  const auto journal = Journal::open(folder_ + "/missing/state");
  ASSERT_FALSE(journal);
  EXPECT_THAT(journal.error().detail, HasSubstr(folder_ + "/missing/state: No such file"));
}

TEST_F(JournalTest, WhatWasSavedIsThereAfterwards) {
  {
    const auto journal = open();
    ASSERT_TRUE(journal->save(record("b", 1)));
    ASSERT_TRUE(journal->save(record("a", 1)));
    ASSERT_TRUE(journal->save(record("b", 2)));
    EXPECT_THAT(journal->records(), ElementsAre(record("a", 1), record("b", 2)));
  }
  EXPECT_THAT(open()->records(), ElementsAre(record("a", 1), record("b", 2)));
}

TEST_F(JournalTest, WhatWasForgottenIsGone) {
  {
    const auto journal = open();
    ASSERT_TRUE(journal->save(record("a \"quoted\" n\u00e4me", 1)));
    ASSERT_TRUE(journal->save(record("b", 1)));
    ASSERT_TRUE(journal->forget("a \"quoted\" n\u00e4me"));
    ASSERT_TRUE(journal->forget("never heard of"));
  }
  EXPECT_THAT(open()->records(), ElementsAre(record("b", 1)));
}

TEST_F(JournalTest, WhatCouldNotBeReadAgainIsNotWritten) {
  const auto journal = open();
  EXPECT_FALSE(journal->save(record("not \xff UTF-8", 1)));
  EXPECT_FALSE(journal->save(record("a\nb", 1)));
  EXPECT_THAT(journal->records(), IsEmpty());
  EXPECT_EQ(bytes(), "distrun-journal 1\n");
}

// ---- a file that is not as it was left ---------------------------------------------------------

class JournalBytes : public JournalTest {
 protected:
  // Sizes of the file after each save: where the lines end.
  void write_some() {
    const auto journal = open();
    ends_.push_back(bytes().size());
    for (int generation = 0; generation < 2; ++generation) {
      ASSERT_TRUE(journal->save(record("a", generation)));
      ends_.push_back(bytes().size());
    }
    whole_ = bytes();
  }
  std::vector<std::size_t> ends_;
  std::string whole_;
};

TEST_F(JournalBytes, CutAnywhereItKeepsAllThatIsWhole) {
  write_some();
  for (std::size_t size = 0; size <= whole_.size(); ++size) {
    overwrite(whole_.substr(0, size));
    logged_.clear();
    {
      const auto journal = open();
      ASSERT_TRUE(journal) << size;
      int expected = -1;
      bool at_an_end = size == 0 ? false : size == ends_[0];
      for (std::size_t line = 1; line < ends_.size(); ++line) {
        // A line that lacks its newline only is whole.
        if (size + 1 >= ends_[line]) expected = static_cast<int>(line) - 1;
        at_an_end = at_an_end || size == ends_[line] || size + 1 == ends_[line];
      }
      ASSERT_EQ(generation_of(*journal, "a"), expected) << "cut at " << size;
      if (at_an_end) {
        ASSERT_THAT(logged_, IsEmpty()) << "cut at " << size;
      } else {
        ASSERT_THAT(logged_, Contains(testing::AllOf(HasSubstr(path()),
                                                     HasSubstr(" of " + std::to_string(size)))))
            << "cut at " << size;
      }
      ASSERT_TRUE(journal->save(record("a", 9)));
    }
    ASSERT_EQ(generation_of(*open(), "a"), 9) << "cut at " << size;
  }
}

TEST_F(JournalBytes, RoomThatWasMadeAndNeverWrittenIsATornTail) {
  write_some();
  overwrite(whole_ + std::string(4096, '\0'));
  EXPECT_EQ(generation_of(*open(), "a"), 1);
  overwrite(whole_.substr(0, ends_[1] + 30) + std::string(100, '\0'));
  EXPECT_EQ(generation_of(*open(), "a"), 0);
}

// Not one bit of what was promised may change or go unnoticed.
TEST_F(JournalBytes, AChangedByteIsRefusedWhereverItIs) {
  write_some();
  for (std::size_t at = 0; at < whole_.size(); ++at) {
    for (const int mask : {0x01, 0x0a, 0x80}) {
      std::string text = whole_;
      text[at] = static_cast<char>(text[at] ^ mask);
      overwrite(text);
      const auto journal = Journal::open(folder_);
      if (journal) {
        ASSERT_THAT((*journal)->records(), ElementsAre(record("a", 1))) << at << " ^ " << mask;
      } else {
        ASSERT_THAT(journal.error().detail, HasSubstr(path())) << at;
        ASSERT_EQ(bytes(), text) << "a file that is refused is left as it is";
      }
    }
  }
}

TEST_F(JournalBytes, DamageIsSaidWithItsPlaceAndWhatToDo) {
  write_some();
  std::string text = whole_;
  text[ends_[1] + 25] ^= 1;
  overwrite(text);
  EXPECT_THAT(open_error(), HasSubstr("line 3 (at byte " + std::to_string(ends_[1]) + ")"));
  EXPECT_THAT(open_error(), HasSubstr("truncate -s " + std::to_string(ends_[1]) + " " + path()));
  ASSERT_EQ(::truncate(path().c_str(), static_cast<off_t>(ends_[1])), 0);
  EXPECT_EQ(generation_of(*open(), "a"), 0) << "and what is said to do works";
}

TEST_F(JournalBytes, ALineThatIsGoneOutOfTheMiddleOfAnotherIsRefused) {
  write_some();
  overwrite(whole_.substr(0, ends_[0] + 10) + whole_.substr(ends_[1]));
  EXPECT_THAT(open_error(), HasSubstr("is not as it was written"));
}

TEST_F(JournalBytes, AnotherFormatAndAnotherFileAreRefused) {
  overwrite("distrun-journal 2\n");
  EXPECT_THAT(open_error(), HasSubstr("another version"));
  overwrite("# my notes\n");
  EXPECT_THAT(open_error(), HasSubstr("not a journal of distrund"));
}

// ---- one daemon at a time ----------------------------------------------------------------------

TEST_F(JournalTest, ASecondDaemonIsRefusedWhileTheFirstLives) {
  auto first = open();
  EXPECT_THAT(open_error(), HasSubstr(folder_ + ": another distrund"));
  first.reset();
  EXPECT_TRUE(open());
}

TEST_F(JournalTest, TheLockDiesWithItsDaemon) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto journal = Journal::open(folder_);
    (void)!::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THAT(open_error(), HasSubstr("another distrund"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(open());
  ::close(ready[0]);
  ::close(ready[1]);
}

// ---- growing -----------------------------------------------------------------------------------

TEST_F(JournalTest, DoesNotGrowForEver) {
  JournalOptions options;
  options.compact_above = 8192;
  {
    const auto journal = open(options);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(journal->save(record("a", i)));
      ASSERT_LT(fs::file_size(path()), 16'384U) << i;
    }
    ASSERT_TRUE(journal->save(record("b", 7)));
  }
  EXPECT_THAT(open()->records(), ElementsAre(record("a", 999), record("b", 7)));
}

TEST_F(JournalTest, AHalfWrittenNewFileIsOfNoConcern) {
  ASSERT_TRUE(open()->save(record("a", 1)));
  std::ofstream(folder_ + "/journal.new") << "distrun-jour";
  EXPECT_THAT(open()->records(), ElementsAre(record("a", 1)));
  EXPECT_FALSE(fs::exists(folder_ + "/journal.new"));
}

// ---- each step fails once ----------------------------------------------------------------------

// Saves generations 0…5 with step number `n` failing; what save() said yes to must be found again.
// False: there are fewer steps.
bool run_with_failing_step(const std::string& folder, int n, int error) {
  int steps = 0;
  JournalOptions options;
  options.compact_above = 1200;
  options.interfere = [&](std::string_view) { return ++steps == n ? error : 0; };
  int promised = -1;
  int asked = -1;
  {
    auto journal = Journal::open(folder, options);
    for (int i = 0; journal && i < 6; ++i) {
      asked = i;
      const auto saved = (*journal)->save(record("a", i));
      if (saved) promised = i;
      EXPECT_EQ(generation_of(**journal, "a"), promised) << "step " << n;
    }
    if (journal && steps >= n) {
      EXPECT_TRUE((*journal)->save(record("a", 6))) << "step " << n << ": all is well again";
      promised = asked = 6;
    }
  }
  auto again = Journal::open(folder);
  EXPECT_TRUE(again) << "step " << n << ": " << (again ? "" : again.error().detail);
  if (again) {
    EXPECT_GE(generation_of(**again, "a"), promised) << "step " << n;
    EXPECT_LE(generation_of(**again, "a"), asked) << "step " << n;
  }
  return steps >= n;
}

TEST_F(JournalTest, AfterAnyFailingStepThePromisedIsThere) {
  int n = 1;
  while (run_with_failing_step(folder_, n, ENOSPC)) {
    fs::remove_all(folder_);
    ASSERT_LT(++n, 200);
  }
  EXPECT_GT(n, 15);
}

// The same with a SIGKILL in front of each system call, in a process of its own.
TEST_F(JournalTest, KilledBeforeAnyStepThePromisedIsThere) {
  bool killed = true;
  int n = 1;
  for (; killed; ++n) {
    ASSERT_LT(n, 200);
    fs::remove_all(folder_);
    int promises[2];
    ASSERT_EQ(::pipe(promises), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      int steps = 0;
      JournalOptions options;
      options.compact_above = 1200;
      options.interfere = [&](std::string_view) {
        if (++steps == n) ::raise(SIGKILL);
        return 0;
      };
      auto journal = Journal::open(folder_, options);
      for (char i = 0; journal && i < 6; ++i) {
        if ((*journal)->save(record("a", i))) (void)!::write(promises[1], &i, 1);
      }
      ::_exit(0);
    }
    ::close(promises[1]);
    int promised = -1;
    for (char byte = 0; ::read(promises[0], &byte, 1) == 1;) promised = byte;
    ::close(promises[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    killed = WIFSIGNALED(status);
    const auto journal = open();
    ASSERT_TRUE(journal) << n;
    const int found = generation_of(*journal, "a");
    EXPECT_TRUE(found == promised || found == promised + 1)
        << "step " << n << ": promised " << promised << ", found " << found;
  }
  EXPECT_GT(n, 15);
}

// ---- a full disk -------------------------------------------------------------------------------

// While one lives, files cannot grow beyond `bytes`: a write is done in part and then refused, as
// on a full disk.
class FullDisk {
 public:
  explicit FullDisk(std::uintmax_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const struct rlimit tight { bytes, before_.rlim_max };
    ::setrlimit(RLIMIT_FSIZE, &tight);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  struct rlimit before_ {};
  void (*handler_)(int);
};

TEST_F(JournalTest, OnAFullDiskTheOldStateStays) {
  const auto journal = open();
  ASSERT_TRUE(journal->save(record("a", 1)));
  const std::string before = bytes();
  {
    const FullDisk full(before.size() / 2);
    const auto saved = journal->save(record("a", 2));
    ASSERT_FALSE(saved);
    EXPECT_THAT(saved.error().detail, HasSubstr(path() + ": File too large"));
    EXPECT_FALSE(journal->save(record("a", 3)));
  }
  EXPECT_THAT(journal->records(), ElementsAre(record("a", 1)));
  EXPECT_EQ(bytes(), before);
  ASSERT_TRUE(journal->save(record("a", 4))) << "once there is room again";
  EXPECT_EQ(generation_of(*journal, "a"), 4);
}

TEST_F(JournalTest, WhatWasWrittenInPartIsTakenBack) {
  const auto journal = open();
  ASSERT_TRUE(journal->save(record("a", 1)));
  const std::string before = bytes();
  const FullDisk full(before.size() + 40);
  ASSERT_FALSE(journal->save(record("a", 2)));
  EXPECT_EQ(bytes(), before);
}

}  // namespace
}  // namespace distrun::rendezvous
