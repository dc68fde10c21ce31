// The election and what a leader keeps, under all that may happen between them and etcd; and that
// the referee notices cores, or users of them, that are wrong.
#include "tests/rendezvous/etcd/election_world.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace distrun::rendezvous::etcd {
namespace {

constexpr std::uint64_t kSeeds = 30;
constexpr std::uint64_t kFlawSeeds = 100;  // the rarest shows after about thirty

TEST(EtcdElectionSim, WhatIsToldWasWrittenByTheOnlyOneThatLed) {
  Tally sum;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    ElectionWorld world(seed, Flaw::none);
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    sum.led += world.tally().led;
    sum.told += world.tally().told;
    sum.decided += world.tally().decided;
    sum.late_tries += world.tally().late_tries;
    sum.pauses += world.tally().pauses;
    sum.unkept += world.tally().unkept;
    sum.went_on += world.tally().went_on;
    sum.not_moved += world.tally().not_moved;
  }
  // Else it would be easy.
  EXPECT_GT(sum.led, 3 * static_cast<int>(kSeeds));
  EXPECT_GT(sum.told, 100 * static_cast<int>(kSeeds));
  EXPECT_GT(sum.decided, sum.told) << "no decision was ever lost";
  EXPECT_GT(sum.late_tries, static_cast<int>(kSeeds));
  EXPECT_GT(sum.pauses, static_cast<int>(kSeeds));
  EXPECT_GT(sum.unkept, 0);
  EXPECT_GT(sum.went_on, static_cast<int>(kSeeds));
  EXPECT_GT(sum.not_moved, 0);
}

TEST(EtcdElectionSim, TheSameSeedIsTheSameRun) {
  ElectionWorld first(7, Flaw::none);
  ElectionWorld second(7, Flaw::none);
  EXPECT_EQ(first.run(), second.run());
  EXPECT_EQ(first.tally(), second.tally());
}

class EtcdElectionFlaw : public testing::TestWithParam<Flaw> {};

TEST_P(EtcdElectionFlaw, IsNoticed) {
  for (std::uint64_t seed = 1; seed <= kFlawSeeds; ++seed) {
    ElectionWorld world(seed, GetParam());
    if (const std::string broken = world.run(); !broken.empty()) {
      RecordProperty("broken", broken);
      return;
    }
  }
  FAIL() << "no run out of " << kFlawSeeds << " shows it";
}

INSTANTIATE_TEST_SUITE_P(
    All, EtcdElectionFlaw,
    testing::Values(Flaw::tells_before_it_is_kept, Flaw::does_not_ask_before_it_tells,
                    Flaw::writes_without_the_key, Flaw::writes_without_the_sequence,
                    Flaw::a_pause_stops_its_clock, Flaw::keeps_on_after_a_failed_guard,
                    Flaw::asks_for_ever_to_keep, Flaw::renews_without_a_look));

}  // namespace
}  // namespace distrun::rendezvous::etcd
