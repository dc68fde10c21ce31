#include "agent/process/log_files.h"

#include "agent/process/log_file_sink.h"
#include "runtime/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdlib.h>
#include <string>
#include <sys/stat.h>

namespace distrun::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class LogFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/distrun_log_files_XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = path;
  }
  void TearDown() override { fs::remove_all(root_); }

  static mode_t mode_of(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
  }
  std::string root_;
};

TEST_F(LogFilesTest, HaveTorchrunsLayoutUnderTheGivenFolder) {
  LogFiles files(root_ + "/new/logs", "/nowhere", "job7");
  ASSERT_TRUE(files.open_attempt(0));
  const auto rank = files.open_rank(LocalRank(12));
  ASSERT_TRUE(rank);
  EXPECT_THAT(*rank, MatchesRegex(root_ + "/new/logs/job7_[a-z0-9]{8}/attempt_0/12"));
  EXPECT_TRUE(fs::is_directory(*rank));
  EXPECT_EQ(mode_of(files.run_folder()), 0700u);
}

TEST_F(LogFilesTest, WithoutAFolderMakeOneOfTheirOwn) {
  LogFiles files("", root_, "none");
  ASSERT_TRUE(files.open_attempt(0));
  EXPECT_THAT(files.run_folder(),
              MatchesRegex(root_ + "/torchelastic_[a-z0-9]{8}/none_[a-z0-9]{8}"));
  EXPECT_EQ(mode_of(fs::path(files.run_folder()).parent_path()), 0700u);
}

TEST_F(LogFilesTest, MakeNothingBeforeTheFirstAttempt) {
  const LogFiles files("", root_, "none");
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(LogFilesTest, ASecondStartOfAnAttemptLeavesTheFirstOnesFilesAlone) {
  LogFiles files(root_, "/nowhere", "job");
  ASSERT_TRUE(files.open_attempt(1));
  const std::string first = files.attempt_folder();
  std::ofstream(first + "/kept") << "x";
  ASSERT_TRUE(files.open_attempt(1));
  EXPECT_EQ(files.attempt_folder(), first + ".1");
  EXPECT_TRUE(fs::exists(first + "/kept"));
  ASSERT_TRUE(files.open_attempt(2));
  EXPECT_EQ(fs::path(files.attempt_folder()).filename(), "attempt_2");
}

TEST_F(LogFilesTest, ARunIdCannotLeaveItsFolder) {
  EXPECT_EQ(run_folder_name("../a/b", "12345678"), ".._a_b_12345678");
  EXPECT_EQ(run_folder_name("a\nb", "12345678"), "a_b_12345678");
  EXPECT_LE(run_folder_name(std::string(5000, 'x'), "12345678").size(), 255u);
  LogFiles files(root_, "/nowhere", "team/job");
  ASSERT_TRUE(files.open_attempt(0));
  EXPECT_EQ(fs::path(files.run_folder()).parent_path(), root_);
}

TEST_F(LogFilesTest, DevNullMeansNoFolderAtAll) {
  LogFiles files("/dev/null", root_, "job");
  ASSERT_TRUE(files.open_attempt(0));
  const auto rank = files.open_rank(LocalRank(0));
  ASSERT_TRUE(rank);
  EXPECT_EQ(*rank, "");
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(LogFilesTest, ARelativeFolderIsMadeAbsolute) {
  const fs::path before = fs::current_path();
  fs::current_path(root_);
  LogFiles files("logs", "/nowhere", "job");
  const bool opened = files.open_attempt(0).has_value();
  fs::current_path(before);
  ASSERT_TRUE(opened);
  EXPECT_THAT(files.run_folder(), HasSubstr(root_ + "/logs/job_"));
}

TEST_F(LogFilesTest, AFileInThePlaceOfTheFolderIsAnErrorThatNamesIt) {
  std::ofstream(root_ + "/file") << "x";
  LogFiles files(root_ + "/file", "/nowhere", "job");
  const auto opened = files.open_attempt(0);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().detail, HasSubstr("a file, not a folder: " + root_ + "/file"));
}

TEST_F(LogFilesTest, AFolderThatCannotBeMadeIsAnErrorThatNamesItAndTheReason) {
  LogFiles files("/proc/no/logs", "/nowhere", "job");
  const auto opened = files.open_attempt(0);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().detail, HasSubstr("/proc/no/logs: No such file or directory"));
  LogFiles no_temporary("", root_ + "/missing", "job");
  const auto missing = no_temporary.open_attempt(0);
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().detail, HasSubstr(root_ + "/missing"));
}

TEST_F(LogFilesTest, LooseErrorFilesAreNamesThatNobodyCanGuessAndNothingOnTheDisk) {
  const LooseErrorFiles files(root_);
  const LooseErrorFiles others(root_);
  EXPECT_THAT(files.path(1, LocalRank(12)),
              MatchesRegex(root_ + "/torchelastic_[a-z0-9]{16}_1_12_error.json"));
  EXPECT_NE(files.path(1, LocalRank(12)), others.path(1, LocalRank(12)));
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST(LogFileSink, TellsAFullDiskOnceWithPathAndReason) {
  std::string told;
  log::set_sink([&told](std::string_view line) { told += line; });
  const auto fd = open_log_file("/dev/full");
  ASSERT_TRUE(fd);
  LogFileSink sink(*fd, "/logs/stdout.log");
  sink.write("one\n");
  sink.write("two\n");
  log::set_sink({});
  EXPECT_THAT(told, HasSubstr("file=/logs/stdout.log"));
  EXPECT_THAT(told, HasSubstr("No space left on device"));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1);
}

}  // namespace
}  // namespace distrun::agent
