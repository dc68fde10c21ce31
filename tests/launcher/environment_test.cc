#include "launcher/environment.h"

#include <gtest/gtest.h>

namespace distrun::launcher {
namespace {

TEST(Environment, OfANameThatIsThereTwiceTheFirstCounts) {
  const char* const entries[] = {"A=1", "A=2", "B=x=y", "EMPTY=", "broken", "=odd", nullptr};
  const Environment environment = read_environment(entries);
  EXPECT_EQ(environment, (Environment{{"A", "1"}, {"B", "x=y"}, {"EMPTY", ""}}));
}

TEST(Environment, SetAndEmptyIsNotTheSameAsNotSet) {
  const Environment environment{{"EMPTY", ""}};
  EXPECT_EQ(lookup(environment, "EMPTY"), "");
  EXPECT_EQ(lookup(environment, "OTHER"), std::nullopt);
}

TEST(Environment, NoEntriesAtAllIsAnEmptyEnvironment) {
  EXPECT_TRUE(read_environment(nullptr).empty());
}

}  // namespace
}  // namespace distrun::launcher
