#include "agent/process/signals.h"

#include <gtest/gtest.h>

#include <signal.h>

namespace distrun::agent {
namespace {

using Source = SameWish::Source;
using std::chrono::milliseconds;

const TimePoint t0{};

TEST(SameWish, OneWishThatReachesGuardAndAgentCountsOnceInWhicheverOrder) {
  SameWish same;
  EXPECT_TRUE(same.is_new(SIGTERM, Source::direct, t0));
  EXPECT_FALSE(same.is_new(SIGTERM, Source::guard, t0 + milliseconds(3)));
  EXPECT_TRUE(same.is_new(SIGTERM, Source::guard, t0 + milliseconds(4)));
  EXPECT_FALSE(same.is_new(SIGTERM, Source::direct, t0 + milliseconds(6)));
}

TEST(SameWish, OneSourceAloneCountsEachTime) {
  SameWish same;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same.is_new(SIGINT, Source::guard, t0));
}

TEST(SameWish, LaterDeliveriesAndOtherSignalsAreWishesOfTheirOwn) {
  SameWish same;
  EXPECT_TRUE(same.is_new(SIGUSR1, Source::direct, t0));
  EXPECT_TRUE(same.is_new(SIGUSR2, Source::guard, t0));
  EXPECT_TRUE(same.is_new(SIGUSR1, Source::guard, t0 + milliseconds(501)));
}

}  // namespace
}  // namespace distrun::agent
