#include "apps/digits/images.h"

#include "tests/support/run_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <stdexcept>

namespace digits {
namespace {

using ::testing::HasSubstr;

TEST(Images, EveryFifthOfTheRealOnesIsKeptForTheTest) {
  const Images images = read_images(DIGITS_DATA);
  EXPECT_EQ(images.train.size() + images.test.size(), 1797u);
  EXPECT_EQ(images.test.size(), 359u);
  // The first line of the file is a zero, the fifth a four.
  EXPECT_EQ(images.train[0].digit, 0u);
  EXPECT_EQ(images.test[0].digit, 4u);
  EXPECT_EQ(images.train[0].pixels[2], 5.0f / 16);
}

std::string refusal(const std::string& text) {
  distrun::test::TempFolder folder;
  std::ofstream(folder / "f") << text;
  try {
    read_images(folder / "f");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

std::string line(const std::string& last) {
  std::string text;
  for (int i = 0; i < 64; ++i) text += "1,";
  return text + last + "\n";
}

TEST(Images, AValueThatCannotBeIsNamedWithItsLine) {
  EXPECT_THAT(refusal(line("3") + line("10")),
              HasSubstr("line 2: not a number from 0 to 9: \"10\""));
  EXPECT_THAT(refusal("17,0"), HasSubstr("line 1: not a number from 0 to 16: \"17\""));
  EXPECT_THAT(refusal("1,2"), HasSubstr("line 1: not a number from 0 to 16: \"\""));
  EXPECT_THAT(refusal(line("3,4")), HasSubstr("line 1: more than 65 values"));
  EXPECT_THAT(refusal(line("3")), HasSubstr("fewer than 5 images"));
}

TEST(Images, AnEpochMeetsEachImageOnceAtMostAndTheNextInAnotherOrder) {
  std::set<std::size_t> seen;
  std::size_t count = 0;
  for (int step = 0; step < 11; ++step)
    for (const std::size_t index : batch_at(step, 1438, 128)) {
      EXPECT_LT(index, 1438u);
      seen.insert(index);
      ++count;
    }
  EXPECT_EQ(count, 11u * 128);
  EXPECT_EQ(seen.size(), count);
  EXPECT_NE(batch_at(0, 1438, 128), batch_at(11, 1438, 128));
}

TEST(Images, TheBatchDependsOnTheStepAlone) {
  EXPECT_EQ(batch_at(17, 1438, 128), batch_at(17, 1438, 128));
}

TEST(Images, AFileSmallerThanABatchIsOneBatch) {
  EXPECT_EQ(batch_at(3, 10, 128).size(), 10u);
}

}  // namespace
}  // namespace digits
