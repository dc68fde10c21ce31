#include "agent/process/signals.h"

#include <gtest/gtest.h>

namespace distrun::agent {
namespace {

using Source = StopCount::Source;

TEST(StopCount, OneWishThatReachesGuardAndAgentCountsOnce) {
  StopCount count;
  EXPECT_EQ(count.add(Source::direct), 1);  // a terminal's Ctrl-C goes to both
  EXPECT_EQ(count.add(Source::guard), 0);
  EXPECT_EQ(count.add(Source::guard), 2);  // the second Ctrl-C
  EXPECT_EQ(count.add(Source::direct), 0);
}

TEST(StopCount, OneSourceAloneCountsEachTime) {
  StopCount count;
  EXPECT_EQ(count.add(Source::guard), 1);
  EXPECT_EQ(count.add(Source::guard), 2);
  EXPECT_EQ(count.add(Source::guard), 3);
}

}  // namespace
}  // namespace distrun::agent
