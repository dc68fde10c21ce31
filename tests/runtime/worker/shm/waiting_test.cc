#include "runtime/worker/shm/waiting.h"

#include <gtest/gtest.h>

#include <vector>

namespace distrun::shm {
namespace {

using std::chrono::microseconds;

CpuSet cpus(std::initializer_list<std::size_t> numbers) {
  CpuSet set;
  for (const std::size_t number : numbers) set[number] = true;
  return set;
}

Placement placed(const std::vector<CpuSet>& ranks) {
  return placement_of(ranks);
}

TEST(ShmWaiting, RanksPinnedToDifferentCpusAreApart) {
  EXPECT_EQ(placed({cpus({0}), cpus({1})}), Placement::apart);
  EXPECT_EQ(placed({cpus({0, 2}), cpus({1, 3})}), Placement::apart);
  EXPECT_EQ(placed({cpus({5})}), Placement::apart);
}

TEST(ShmWaiting, RanksThatMayMeetHaveRoomIfThereAreCpusForAll) {
  EXPECT_EQ(placed({cpus({0, 1}), cpus({0, 1})}), Placement::roomy);
  EXPECT_EQ(placed({cpus({0}), cpus({0, 1})}), Placement::roomy);
}

TEST(ShmWaiting, MoreRanksThanCpusAreCrowded) {
  EXPECT_EQ(placed({cpus({0}), cpus({0})}), Placement::crowded);
  EXPECT_EQ(placed({cpus({0, 1}), cpus({0, 1}), cpus({1})}), Placement::crowded);
}

TEST(ShmWaiting, UnknownCpusAreNeverApart) {
  EXPECT_EQ(placed({CpuSet().set(), CpuSet().set()}), Placement::roomy);
  EXPECT_EQ(placed({CpuSet(), CpuSet()}), Placement::crowded);
}

TEST(ShmWaiting, NobodySpinsWhereItKeepsAnotherRankFromItsCpu) {
  EXPECT_EQ(policy_for(Placement::crowded).spins, 0);
  EXPECT_TRUE(policy_for(Placement::roomy).look_where_others_run);
  EXPECT_GT(policy_for(Placement::apart).spins, 0);
}

TEST(ShmWaiting, ASleeperWithAnOldValueDoesNotSleep) {
  const std::atomic<std::uint32_t> word{2};
  const TimePoint start = Clock::now();
  futex_sleep(word, 1, std::chrono::seconds(60));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
}

TEST(ShmWaiting, ASleepThatIsOverAtOnceReturns) {
  const std::atomic<std::uint32_t> word{1};
  futex_sleep(word, 1, Duration(-1));
  futex_sleep(word, 1, microseconds(10));
}

TEST(ShmWaiting, AThreadMovesToAFreeCpuAndMayStillUseAll) {
  const CpuSet before = usable_cpus();
  if (before.count() < 2) GTEST_SKIP() << "one CPU only";
  // All but one: wherever it was, that is where it has to be, at least for a moment.
  std::size_t last = kMaxCpus - 1;
  while (!before[last]) --last;
  EXPECT_TRUE(move_away_from(before & ~cpus({last})));
  EXPECT_EQ(usable_cpus(), before);
  EXPECT_FALSE(move_away_from(before)) << "none is free";
  EXPECT_EQ(usable_cpus(), before);
}

}  // namespace
}  // namespace distrun::shm
