#include "agent/process/line_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace distrun::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Pieces {
  LineSplitter splitter;
  std::vector<std::string> given;
  void feed(std::string_view bytes) {
    splitter.feed(bytes, [this](std::string_view piece) { given.emplace_back(piece); });
  }
  void flush() {
    splitter.flush([this](std::string_view piece) { given.emplace_back(piece); });
  }
};

TEST(LineSplitter, GivesWholeLinesOnInOnePiece) {
  Pieces pieces;
  pieces.feed("one\ntwo\n");
  EXPECT_THAT(pieces.given, ElementsAre("one\ntwo\n"));
  EXPECT_FALSE(pieces.splitter.holding());
}

TEST(LineSplitter, HoldsAnUnfinishedLineUntilItsEndComes) {
  Pieces pieces;
  pieces.feed("one\ntw");
  pieces.feed("o");
  EXPECT_THAT(pieces.given, ElementsAre("one\n"));
  EXPECT_TRUE(pieces.splitter.holding());
  pieces.feed("\nthree\n");
  EXPECT_THAT(pieces.given, ElementsAre("one\n", "two\n", "three\n"));
}

TEST(LineSplitter, FlushGivesTheUnfinishedLineOnce) {
  Pieces pieces;
  pieces.feed("half");
  pieces.flush();
  pieces.flush();
  EXPECT_THAT(pieces.given, ElementsAre("half"));
}

TEST(LineSplitter, HoldsALineOfTheLongestLengthAndPassesOnALongerOne) {
  const std::string longest(LineSplitter::kLongestHeld, 'x');
  Pieces pieces;
  pieces.feed(longest);
  EXPECT_THAT(pieces.given, IsEmpty());
  pieces.feed("y");
  EXPECT_THAT(pieces.given, ElementsAre(longest + "y"));
  EXPECT_FALSE(pieces.splitter.holding());
}

TEST(LineSplitter, KeepsEveryByteWhateverTheBytesAndTheCuts) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string all;
    const std::size_t size = random() % 5000;
    for (std::size_t i = 0; i < size; ++i) {
      all += random() % 20 == 0 ? '\n' : static_cast<char>(random() % 256);
    }
    Pieces pieces;
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t step = 1 + random() % 300;
      pieces.feed(std::string_view(all).substr(at, step));
      at += step;
    }
    pieces.flush();
    std::string joined;
    for (const std::string& piece : pieces.given) joined += piece;
    ASSERT_EQ(joined, all);
    for (std::size_t i = 0; i + 1 < pieces.given.size(); ++i) {
      ASSERT_EQ(pieces.given[i].back(), '\n') << "only the last piece may be unfinished";
    }
  }
}

}  // namespace
}  // namespace distrun::agent
