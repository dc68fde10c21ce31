#include "agent/process/line_prefix.h"

#include <gtest/gtest.h>

#include <string>

namespace distrun::agent {
namespace {

std::string prefix(std::string_view pattern) {
  return line_prefix(pattern, "trainer", Rank(12), LocalRank(3), "node7");
}

TEST(LinePrefix, DefaultIsTorchrunsRoleAndLocalRank) {
  EXPECT_EQ(prefix(""), "[trainer3]:");
}

TEST(LinePrefix, ReplacesEachMacroWithAndWithoutBraces) {
  EXPECT_EQ(prefix("${role_name}/${rank}/${local_rank}> "), "trainer/12/3> ");
  EXPECT_EQ(prefix("$rank:"), "12:");
}

TEST(LinePrefix, KnowsTheMachinesName) {
  EXPECT_EQ(prefix("${hostname}/$rank "), "node7/12 ");
}

TEST(LinePrefix, LeavesWhatIsNoMacroAsItIs) {
  EXPECT_EQ(prefix("${host}$x ${ $ $1 ${rank"), "${host}$x ${ $ $1 ${rank");
}

TEST(LinePrefix, ATwofoldDollarIsOneDollar) {
  EXPECT_EQ(prefix("$${rank}"), "${rank}");
}

TEST(LinePrefix, IsNeverLongerThanItsLimit) {
  EXPECT_EQ(prefix(std::string(5000, 'x')).size(), kLongestPrefix);
  EXPECT_EQ(line_prefix("${role_name}", std::string(5000, 'r'), Rank(0), LocalRank(0), "").size(),
            kLongestPrefix);
}

}  // namespace
}  // namespace distrun::agent
