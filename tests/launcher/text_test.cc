#include "launcher/text.h"

#include <gmock/gmock.h>

namespace distrun::launcher {
namespace {

using ::testing::ElementsAre;
using namespace std::chrono_literals;

TEST(Text, IntegersMayHaveASignAndBlanks) {
  EXPECT_EQ(parse_int(" 42 ", 0, 100), 42);
  EXPECT_EQ(parse_int("+7", 0, 100), 7);
  EXPECT_EQ(parse_int("-7", -10, 100), -7);
}

TEST(Text, WhatIsNotAnIntegerInRangeIsNothing) {
  for (const char* text : {"", " ", "4x", "x4", "1.0", "+-3", "-+3", "--3", "+", "-", "0x10", "1_0",
                           "101", "99999999999999999999999"}) {
    EXPECT_EQ(parse_int(text, -100, 100), std::nullopt) << text;
  }
}

TEST(Text, SecondsMayHaveAFraction) {
  EXPECT_EQ(parse_seconds("30"), Duration(30s));
  EXPECT_EQ(parse_seconds("0.5"), Duration(500ms));
  EXPECT_EQ(parse_seconds("0"), Duration(0s));
}

TEST(Text, WhatIsNotATimeIsNothing) {
  for (const char* text : {"", "-1", "nan", "inf", "1e99", "1s", "1,5", "99999999999"}) {
    EXPECT_EQ(parse_seconds(text), std::nullopt) << text;
  }
}

TEST(Text, SplitKeepsEmptyPieces) {
  EXPECT_THAT(split("a,,b,", ','), ElementsAre("a", "", "b", ""));
  EXPECT_THAT(split("", ','), ElementsAre(""));
}

TEST(Text, NearestIsSilentWhenNothingIsClose) {
  EXPECT_EQ(nearest("nprok", {"nproc", "nnodes"}), "nproc");
  EXPECT_EQ(nearest("zebra", {"nproc", "nnodes"}), "");
  EXPECT_EQ(nearest(std::string(10'000, 'n'), {"nproc"}), "");
}

TEST(Text, WhatAnErrorRepeatsIsOneShortLine) {
  EXPECT_EQ(quote("a\nb\x1b[2J"), "'a\\x0ab\\x1b[2J'");
  EXPECT_EQ(quote(std::string(500, 'x')), "'" + std::string(80, 'x') + "...'");
}

}  // namespace
}  // namespace distrun::launcher
