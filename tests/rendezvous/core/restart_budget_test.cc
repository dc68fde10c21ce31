#include "rendezvous/core/restart_budget.h"

#include <gtest/gtest.h>

namespace distrun::rendezvous {
namespace {

using namespace std::chrono_literals;
constexpr TimePoint t0{1h};

TEST(RestartBudget, GrantsExactlyAsManyAsAllowed) {
  RestartBudget budget({2, {}});
  budget.spend(t0);
  budget.spend(t0);
  EXPECT_EQ(budget.refusal(t0 + 1000h), "all 2 restarts are used");
  EXPECT_EQ(budget.spent(), 2);
}

TEST(RestartBudget, ZeroRefusesAndSaysWhichFlag) {
  EXPECT_EQ(RestartBudget({0, {}}).refusal(t0), "no restart is allowed (--max-restarts 0)");
}

TEST(RestartBudget, WithAWindowOldRestartsAreForgotten) {
  RestartBudget budget({1, 100s});
  budget.spend(t0);
  EXPECT_EQ(budget.refusal(t0 + 99s), "the limit of 1 within 100 s is reached");
  EXPECT_EQ(budget.refusal(t0 + 100s), std::nullopt);
}

TEST(RestartBudget, WithAWindowAllRestartsAreStillCounted) {
  RestartBudget budget({1, 100s});
  budget.spend(t0);
  budget.spend(t0 + 200s);
  EXPECT_EQ(budget.spent(), 2);
}

}  // namespace
}  // namespace distrun::rendezvous
