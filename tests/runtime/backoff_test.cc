#include "runtime/base/backoff.h"

#include <gtest/gtest.h>

namespace distrun {
namespace {

using std::chrono::milliseconds;

TEST(Backoff, GrowsByTheFactorUpToTheCapAndStaysInTheUpperHalf) {
  std::mt19937_64 random(1);
  Backoff backoff({.first = milliseconds(100), .cap = milliseconds(350), .factor = 2.0});
  for (const int base : {100, 200, 350, 350}) {
    const Duration pause = backoff.next(random);
    EXPECT_GE(pause, milliseconds(base) / 2);
    EXPECT_LE(pause, milliseconds(base));
  }
}

TEST(Backoff, StartsAgainAfterReset) {
  std::mt19937_64 random(1);
  Backoff backoff({.first = milliseconds(100), .cap = milliseconds(10000), .factor = 10.0});
  backoff.next(random);
  backoff.next(random);
  backoff.reset();
  EXPECT_LE(backoff.next(random), milliseconds(100));
}

}  // namespace
}  // namespace distrun
