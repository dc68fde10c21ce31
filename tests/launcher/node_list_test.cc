#include "launcher/node_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Names = std::vector<std::string>;

Names names(std::string_view text) {
  auto expanded = expand_node_list(text);
  EXPECT_TRUE(expanded) << (expanded ? "" : expanded.error().detail);
  return expanded ? *expanded : Names{};
}

std::string refusal(std::string_view text) {
  const auto expanded = expand_node_list(text);
  EXPECT_FALSE(expanded) << text;
  return expanded ? "" : expanded.error().detail;
}

TEST(NodeList, APlainNameIsItself) {
  EXPECT_THAT(names("node-7.cluster.local"), ElementsAre("node-7.cluster.local"));
}

TEST(NodeList, NamesAndRangesMix) {
  EXPECT_THAT(names("n[1-3,7],gpu-[08-11],login"),
              ElementsAre("n1", "n2", "n3", "n7", "gpu-08", "gpu-09", "gpu-10", "gpu-11", "login"));
}

TEST(NodeList, NumbersKeepTheWidthOfTheRangesBegin) {
  EXPECT_THAT(names("n[098-102]"), ElementsAre("n098", "n099", "n100", "n101", "n102"));
  EXPECT_THAT(names("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
}

TEST(NodeList, SeveralBracketsAreAllCombinations) {
  EXPECT_THAT(names("r[0-1]n[0-2]"), ElementsAre("r0n0", "r0n1", "r0n2", "r1n0", "r1n1", "r1n2"));
}

TEST(NodeList, ANameMayGoOnBehindABracket) {
  EXPECT_THAT(names("gpu-[1-2]-ib"), ElementsAre("gpu-1-ib", "gpu-2-ib"));
}

TEST(NodeList, WhatIsThereTwiceStaysTwice) {
  EXPECT_THAT(names("a,a"), ElementsAre("a", "a"));
}

TEST(NodeList, SayWhatIsWrong) {
  EXPECT_THAT(refusal("n[1-3"), HasSubstr("a bracket is not closed"));
  EXPECT_THAT(refusal("n[3-1]"), HasSubstr("runs backwards"));
  EXPECT_THAT(refusal("n[a]"), HasSubstr("neither a number nor a range"));
  EXPECT_THAT(refusal("n[]"), HasSubstr("neither a number nor a range"));
  EXPECT_THAT(refusal(""), HasSubstr("a name is empty"));
  EXPECT_THAT(refusal("a,,b"), HasSubstr("a name is empty"));
  EXPECT_THAT(refusal("(null)"), HasSubstr("no part of a name"));
  EXPECT_THAT(refusal("n1]"), HasSubstr("no part of a name"));
}

TEST(NodeList, HasALimit) {
  EXPECT_EQ(names("n[1-65536]").size(), kNodesMax);
  EXPECT_THAT(refusal("n[1-65537]"), HasSubstr("more than 65536"));
  EXPECT_THAT(refusal("a[1-1000]b[1-1000]"), HasSubstr("more than 65536"));
  EXPECT_THAT(refusal("n[1-999999999999999999]"), HasSubstr("more than 65536"));
  EXPECT_THAT(refusal("n[1-9999999999999999999]"), HasSubstr("neither a number nor a range"));
  EXPECT_THAT(refusal("a[1-65536],b"), HasSubstr("more than 65536"));
}

TEST(Counts, AreOneForEachNode) {
  EXPECT_THAT(*expand_counts("3,1(x2)"), ElementsAre(3, 1, 1));
  EXPECT_THAT(*expand_counts("1"), ElementsAre(1));
}

TEST(Counts, RefuseWhatIsNone) {
  for (const char* text : {"", "x", "1(2)", "1(x0)", "1(x", "1,", "1(x65537)", "-1", "1(xx)"}) {
    EXPECT_FALSE(expand_counts(text)) << text;
  }
}

}  // namespace
}  // namespace distrun::launcher
