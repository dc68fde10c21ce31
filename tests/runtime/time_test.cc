#include "runtime/base/time.h"

#include <gtest/gtest.h>

namespace distrun {
namespace {

using namespace std::chrono_literals;

TEST(DurationText, IsWhatAPersonWouldSay) {
  EXPECT_EQ(duration_text(0s), "0 ms");
  EXPECT_EQ(duration_text(250ms), "250 ms");
  EXPECT_EQ(duration_text(1s), "1 s");
  EXPECT_EQ(duration_text(1500ms), "1.5 s");
  EXPECT_EQ(duration_text(90s), "90 s");
  EXPECT_EQ(duration_text(10min), "10 min");
}

}  // namespace
}  // namespace distrun
