#include "runtime/worker/error_file.h"
#include "tests/support/run_program.h"
#include <distrun/worker.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace distrun {
namespace {

nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

class Record : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("TORCHELASTIC_ERROR_FILE", path_.c_str(), 1); }
  void TearDown() override { ::unsetenv("TORCHELASTIC_ERROR_FILE"); }
  test::TempFolder dir_;
  std::string path_ = dir_ / "error.json";
};

TEST_F(Record, ReturnsWhatTheBodyReturnsAndWritesNothing) {
  EXPECT_EQ(record([] { return 7; }), 7);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(Record, AnExceptionIsWrittenInTheLaunchersForm) {
  EXPECT_EQ(record([]() -> int { throw std::out_of_range("bad \"index\"\n\xff"); }), 1);
  const auto message = read_json(path_)["message"];
  EXPECT_EQ(message["message"], "std::out_of_range: bad \"index\"\n\xEF\xBF\xBD");
  EXPECT_GT(std::stoll(message["extraInfo"]["timestamp"].get<std::string>()), 1'700'000'000);
  EXPECT_THAT(message["extraInfo"]["py_callstack"].get<std::string>(),
              ::testing::HasSubstr("std::out_of_range"));
}

TEST_F(Record, WhatIsThrownNeedNotBeAnException) {
  EXPECT_EQ(record([]() -> int { throw 42; }), 1);
  EXPECT_EQ(read_json(path_)["message"]["message"], "int: (no text)");
}

TEST_F(Record, AnEmptyVariableMeansNoFile) {
  ::setenv("TORCHELASTIC_ERROR_FILE", "", 1);
  EXPECT_EQ(record([]() -> int { throw std::runtime_error("x"); }), 1);
}

TEST_F(Record, AFileThatCannotBeWrittenIsSaidAndDoesNotChangeTheStatus) {
  ::setenv("TORCHELASTIC_ERROR_FILE", "/no/such/folder/error.json", 1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(record([]() -> int { throw std::runtime_error("x"); }), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("the error file could not be written: open /no/such/folder"));
}

}  // namespace
}  // namespace distrun
