#include "runtime/base/log.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace distrun {
namespace {

class Log : public ::testing::Test {
 protected:
  void SetUp() override {
    log::set_sink([this](std::string_view line) { written_ += line; });
  }
  void TearDown() override {
    log::set_sink({});
    log::start({});
  }
  std::string written_;
};

TEST_F(Log, TextPutsFieldsInBracketsBehindTheSentence) {
  log::start({});
  log::warn("worker was killed", {{"rank", "3"}, {"signal", "SIGKILL"}});
  EXPECT_EQ(written_, "distrun: warning: worker was killed (rank=3, signal=SIGKILL)\n");
}

TEST_F(Log, ATerminalIsNotCommandedByWhatIsLogged) {
  log::start({});
  log::warn("refused: \x1b[2J", {{"why", "a\rb"}});
  EXPECT_EQ(written_, "distrun: warning: refused: ?[2J (why=a?b)\n");
}

TEST_F(Log, JsonIsOneParsableObjectALineWhateverTheBytes) {
  log::start({.format = log::Format::json});
  log::error("bad \"byte\" \xff", {{"path", "a\nb"}});
  ASSERT_EQ(written_.back(), '\n');
  const auto object = nlohmann::json::parse(written_);
  EXPECT_EQ(object["level"], "error");
  EXPECT_EQ(object["path"], "a\nb");
  EXPECT_TRUE(object["text"].get<std::string>().starts_with("bad \"byte\" "));
  EXPECT_TRUE(object.contains("time"));
}

TEST_F(Log, BelowTheLevelNothingIsWritten) {
  log::start({.level = log::Level::warning});
  log::info("hidden");
  EXPECT_EQ(written_, "");
  log::warn("shown");
  EXPECT_EQ(written_, "distrun: warning: shown\n");
}

}  // namespace
}  // namespace distrun
