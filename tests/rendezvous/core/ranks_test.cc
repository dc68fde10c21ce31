#include "rendezvous/core/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distrun::rendezvous {
namespace {

using testing::ElementsAre;

TEST(Ranks, NumbersInNamesCompareAsNumbers) {
  EXPECT_TRUE(natural_less("node2", "node10"));
  EXPECT_FALSE(natural_less("node10", "node2"));
  EXPECT_TRUE(natural_less("node", "node1"));
  EXPECT_TRUE(natural_less("a-2-b", "a-2-c"));
  EXPECT_FALSE(natural_less("node02", "node2"));
  EXPECT_FALSE(natural_less("x", "x"));
}

TEST(Ranks, AtFirstByNameTheCoordinatorsNodeInFront) {
  EXPECT_THAT(assign_ranks({{{}, {}, false, "n10"}, {{}, {}, false, "n2"}, {{}, {}, true, "n9"}}),
              ElementsAre(2, 1, 0));
}

TEST(Ranks, SurvivorsStayAndNewcomersFillHoles) {
  EXPECT_THAT(
      assign_ranks(
          {{NodeRank(2), {}, false, "c"}, {{}, {}, false, "a"}, {NodeRank(0), {}, false, "z"}}),
      ElementsAre(2, 1, 0));
}

TEST(Ranks, ARankBeyondTheSizeGivesNoRight) {
  EXPECT_THAT(assign_ranks({{NodeRank(5), {}, false, "a"}, {NodeRank(0), {}, false, "b"}}),
              ElementsAre(1, 0));
}

TEST(Ranks, WhatWasAskedForComesBeforeNames) {
  EXPECT_THAT(assign_ranks({{{}, {}, false, "a"}, {{}, NodeRank(0), false, "b"}}),
              ElementsAre(1, 0));
}

}  // namespace
}  // namespace distrun::rendezvous
