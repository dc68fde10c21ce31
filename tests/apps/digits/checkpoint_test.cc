#include "apps/digits/checkpoint.h"

#include "tests/support/run_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>

namespace digits {
namespace {

using distrun::test::read_file;
using distrun::test::TempFolder;
using ::testing::HasSubstr;

const TrainingState kState{42, {1.5f, -2.0f, 3.25f}, {0.0f, 0.5f, -0.5f}};

std::string refusal(const std::string& path, std::size_t parameters = 3) {
  try {
    load_checkpoint(path, parameters);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(Checkpoint, WhatIsSavedComesBack) {
  TempFolder folder;
  save_checkpoint(folder / "c", kState);
  const auto loaded = load_checkpoint(folder / "c", 3);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->step, 42);
  EXPECT_EQ(loaded->parameters, kState.parameters);
  EXPECT_EQ(loaded->momentum, kState.momentum);
}

TEST(Checkpoint, NoFileIsNoCheckpoint) {
  TempFolder folder;
  EXPECT_FALSE(load_checkpoint(folder / "none", 3));
}

TEST(Checkpoint, SavingLeavesOneFileBehind) {
  TempFolder folder;
  save_checkpoint(folder / "c", kState);
  save_checkpoint(folder / "c", kState);
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path()))
    ++files;
  EXPECT_EQ(files, 1);
}

TEST(Checkpoint, AFileCutOffAnywhereIsRefused) {
  TempFolder folder;
  save_checkpoint(folder / "c", kState);
  const std::string bytes = read_file(folder / "c");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    write(folder / "torn", bytes.substr(0, size));
    EXPECT_THAT(refusal(folder / "torn"), ::testing::ContainsRegex("is not one of|is damaged"))
        << size;
  }
}

TEST(Checkpoint, AnyByteThatIsNotWhatWasSavedIsNoticed) {
  TempFolder folder;
  save_checkpoint(folder / "c", kState);
  const std::string bytes = read_file(folder / "c");
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    write(folder / "changed", changed);
    EXPECT_NE(refusal(folder / "changed"), "accepted") << at;
  }
}

TEST(Checkpoint, AnotherNetworksIsRefusedWithBothSizes) {
  TempFolder folder;
  save_checkpoint(folder / "c", kState);
  EXPECT_THAT(refusal(folder / "c", 4), HasSubstr("is of another network: 3 parameters, not 4"));
}

TEST(Checkpoint, AFolderThatIsNotThereIsNamed) {
  try {
    save_checkpoint("/no/such/folder/c", kState);
    FAIL() << "saved";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/no/such/folder/c.part: cannot be written: No such file"));
  }
}

}  // namespace
}  // namespace digits
