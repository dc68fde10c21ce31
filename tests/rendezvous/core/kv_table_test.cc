#include "rendezvous/core/kv_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace distrun::rendezvous {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr ConnectionId a{1};
constexpr ConnectionId b{2};
constexpr ConnectionId c{3};

// The table, and what its writes released, as short calls.
class KvTableTest : public testing::Test {
 protected:
  using Keys = std::vector<std::string_view>;

  ~KvTableTest() override { EXPECT_EQ(table.broken_invariant(), ""); }

  Released set(std::string_view key, std::string_view value) {
    Released released;
    EXPECT_TRUE(table.set(key, value, released));
    return released;
  }
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) {
    Released released;
    const auto held = table.compare_set(key, expected, desired, released);
    return held ? std::string(*held) : "error";
  }
  std::int64_t add(std::string_view key, std::int64_t delta) {
    Released released;
    const auto sum = table.add(key, delta, released);
    EXPECT_TRUE(sum) << sum.error().detail;
    return sum ? *sum : -999;
  }
  // The error's text; empty: there was none.
  std::string add_error(std::string_view key, std::int64_t delta) {
    Released released;
    const auto sum = table.add(key, delta, released);
    return sum ? "" : sum.error().detail;
  }
  bool wait(ConnectionId connection, const Keys& keys) {
    const auto ready = table.wait(connection, keys);
    EXPECT_TRUE(ready);
    return ready && *ready;
  }
  Released push(std::string_view queue, std::string_view value) {
    Released released;
    EXPECT_TRUE(table.push(queue, value, released));
    return released;
  }
  bool barrier(ConnectionId connection, std::string_view key, std::int64_t world_size,
               Released& released) {
    const auto last = table.barrier(connection, key, world_size, released);
    EXPECT_TRUE(last);
    return last && *last;
  }

  MemoryBudget budget{1 << 20};
  KvTable table{budget, /*value_bytes_max=*/1000};
};

// Values.

TEST_F(KvTableTest, WhatIsSetIsRead) {
  set("k", "v1");
  EXPECT_EQ(table.get("k"), "v1");
  set("k", "");
  EXPECT_EQ(table.get("k"), "");
}

TEST_F(KvTableTest, KeysAndValuesAreBytesAndMayBeEmpty) {
  using namespace std::string_view_literals;
  set("", "\0\xFF"sv);
  EXPECT_EQ(table.get(""), "\0\xFF"sv);
  EXPECT_EQ(table.num_keys(), 1u);
}

TEST_F(KvTableTest, AMissingValueIsEmpty) {
  EXPECT_EQ(table.get("missing"), "");
  EXPECT_EQ(table.num_keys(), 0u);
}

TEST_F(KvTableTest, NumKeysCountsEveryKeyButNoQueue) {
  set("init/", "1");
  set("/k", "v");
  push("/q", "item");
  EXPECT_EQ(table.num_keys(), 2u);
}

TEST_F(KvTableTest, EraseSaysWhetherThereWasOne) {
  set("k", "v");
  EXPECT_TRUE(table.erase("k"));
  EXPECT_FALSE(table.erase("k"));
  EXPECT_EQ(table.num_keys(), 0u);
}

TEST_F(KvTableTest, AppendExtendsOrCreates) {
  Released released;
  EXPECT_TRUE(table.append("k", "po", released));
  EXPECT_TRUE(table.append("k", "tato", released));
  EXPECT_EQ(table.get("k"), "potato");
}

TEST_F(KvTableTest, AppendNeverMakesAValueLargerThanASetCould) {
  Released released;
  EXPECT_TRUE(table.append("k", std::string(1000, 'x'), released));
  const auto refused = table.append("k", "y", released);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().detail, "the value of 'k' would grow to 1001 bytes; at most 1000");
  EXPECT_EQ(table.get("k").size(), 1000u);
}

TEST_F(KvTableTest, EachKeyIsVisitedOnce) {
  set("a", "");
  set("b", "");
  std::vector<std::string> keys;
  table.for_each_key([&](std::string_view key) { keys.emplace_back(key); });
  EXPECT_THAT(keys, testing::UnorderedElementsAre("a", "b"));
}

// compare_set.

TEST_F(KvTableTest, CompareSetCreatesAMissingKeyWhenNothingIsExpected) {
  EXPECT_EQ(compare_set("k", "", "new"), "new");
  EXPECT_EQ(table.get("k"), "new");
}

TEST_F(KvTableTest, CompareSetOnAMissingKeyAnswersWhatWasExpectedAndStoresNothing) {
  EXPECT_EQ(compare_set("k", "expected", "new"), "expected");
  EXPECT_EQ(table.num_keys(), 0u);
}

TEST_F(KvTableTest, CompareSetWithTheWrongValueAnswersTheRightOne) {
  set("k", "held");
  EXPECT_EQ(compare_set("k", "wrong", "new"), "held");
  EXPECT_EQ(compare_set("k", "", "new"), "held");
  EXPECT_EQ(table.get("k"), "held");
}

TEST_F(KvTableTest, CompareSetWithTheRightValueStores) {
  set("k", "held");
  EXPECT_EQ(compare_set("k", "held", "new"), "new");
  EXPECT_EQ(compare_set("k", "new", ""), "");
  EXPECT_EQ(compare_set("k", "", "again"), "again");
}

// add.

TEST_F(KvTableTest, AddStartsFromZeroAndStoresDecimalText) {
  EXPECT_EQ(add("n", 5), 5);
  EXPECT_EQ(add("n", -7), -2);
  EXPECT_EQ(add("n", 0), -2);
  EXPECT_EQ(table.get("n"), "-2");
}

TEST_F(KvTableTest, AddReadsTextAsStrtollDoes) {
  const std::vector<std::pair<std::string, std::int64_t>> texts{
      {" 12abc", 12}, {"\t\n\v\f\r 7", 7}, {"+3", 3},  {"-4x", -4},
      {"0x10", 0},    {"007", 7},          {"-0", 0},  {"9223372036854775807", INT64_MAX},
      {"12 34", 12},  {"1.9", 1},          {"5\0", 5}, {"-9223372036854775808", INT64_MIN},
  };
  for (const auto& [text, number] : texts) {
    set("n", text);
    EXPECT_EQ(add("n", 0), number) << text;
  }
}

TEST_F(KvTableTest, AddToWhatIsNoNumberIsAnErrorAndChangesNothing) {
  for (const std::string text : {"", "abc", " ", "-", "+", "+-5", "--5", "- 5", "x1"}) {
    set("n", text);
    EXPECT_EQ(add_error("n", 1), "the value of 'n' is not a 64-bit decimal number: '" + text + "'");
    EXPECT_EQ(table.get("n"), text);
  }
}

TEST_F(KvTableTest, AddToANumberOutOfRangeIsAnError) {
  set("n", "9223372036854775808");
  EXPECT_THAT(add_error("n", 0), HasSubstr("not a 64-bit decimal number"));
}

TEST_F(KvTableTest, AddWrapsAround) {
  set("n", "9223372036854775807");
  EXPECT_EQ(add("n", 1), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(table.get("n"), "-9223372036854775808");
}

TEST_F(KvTableTest, AnErrorShowsNoMoreThanATerminalCanBear) {
  set("n\x1B", std::string("\x1B[2J") + std::string(900, 'x'));
  const std::string text = add_error("n\x1B", 1);
  EXPECT_EQ(text.find('\x1B'), std::string::npos);
  EXPECT_LT(text.size(), 200u);
}

// wait.

TEST_F(KvTableTest, AWaitForWhatIsThereIsOverAtOnce) {
  set("k", "");
  push("q", "item");
  EXPECT_TRUE(wait(a, {}));
  EXPECT_TRUE(wait(a, {"k"}));
  EXPECT_TRUE(wait(a, {"k", "k"}));
  EXPECT_TRUE(wait(a, {"k", "q"}));
}

TEST_F(KvTableTest, AWriteReleasesWhoWaitsForItOnce) {
  EXPECT_FALSE(wait(a, {"k"}));
  EXPECT_THAT(set("k", "v"), ElementsAre(a));
  EXPECT_THAT(set("k", "v"), IsEmpty());
}

TEST_F(KvTableTest, WaitersAreReleasedInTheOrderInWhichTheyCame) {
  for (const ConnectionId connection : {b, c, a}) EXPECT_FALSE(wait(connection, {"k"}));
  EXPECT_THAT(set("k", "v"), ElementsAre(b, c, a));
}

TEST_F(KvTableTest, AWaitForSeveralEndsWithTheLastOfThem) {
  EXPECT_FALSE(wait(a, {"1", "2"}));
  EXPECT_THAT(set("2", ""), IsEmpty());
  EXPECT_THAT(set("1", ""), ElementsAre(a));
}

TEST_F(KvTableTest, AKeyNamedTwiceIsPaidForByOneWrite) {
  EXPECT_FALSE(wait(a, {"k", "k"}));
  EXPECT_THAT(set("k", ""), ElementsAre(a));
}

TEST_F(KvTableTest, AKeyThatWasThereAtTheStartIsNotWaitedForAgain) {
  set("present", "");
  EXPECT_FALSE(wait(a, {"present", "missing"}));
  table.erase("present");
  EXPECT_THAT(set("missing", ""), ElementsAre(a));
}

TEST_F(KvTableTest, AKeyThatCameAndWentCounts) {
  EXPECT_FALSE(wait(a, {"1", "2"}));
  set("1", "");
  table.erase("1");
  EXPECT_THAT(set("2", ""), ElementsAre(a));
}

TEST_F(KvTableTest, EveryWriteThatStoresWakes) {
  Released released;
  wait(a, {"k1"});
  EXPECT_TRUE(table.append("k1", "", released));
  wait(b, {"k2"});
  EXPECT_TRUE(table.add("k2", 1, released));
  wait(c, {"k3"});
  EXPECT_TRUE(table.compare_set("k3", "", "v", released));
  EXPECT_THAT(released, ElementsAre(a, b, c));
}

TEST_F(KvTableTest, ACompareSetThatStoresNothingWakesNobody) {
  wait(a, {"k"});
  Released released;
  EXPECT_TRUE(table.compare_set("k", "expected", "v", released));
  EXPECT_THAT(released, IsEmpty());
}

TEST_F(KvTableTest, EraseWakesNobodyAndEndsNoWait) {
  wait(a, {"k"});
  EXPECT_FALSE(table.erase("k"));
  EXPECT_THAT(set("k", ""), ElementsAre(a));
}

TEST_F(KvTableTest, ACancelledWaitIsNotReleased) {
  wait(a, {"k", "l"});
  wait(b, {"k"});
  table.cancel_wait(a);
  EXPECT_THAT(set("k", ""), ElementsAre(b));
  EXPECT_THAT(set("l", ""), IsEmpty());
}

TEST_F(KvTableTest, CancellingWithoutAWaitIsNothing) {
  table.cancel_wait(a);
}

TEST_F(KvTableTest, ANewWaitReplacesTheOldOne) {
  wait(a, {"old"});
  wait(a, {"new"});
  EXPECT_THAT(set("old", ""), IsEmpty());
  EXPECT_THAT(set("new", ""), ElementsAre(a));
}

TEST_F(KvTableTest, AWaitThatIsOverAtOnceReplacesTheOldOneToo) {
  set("there", "");
  wait(a, {"old"});
  EXPECT_TRUE(wait(a, {"there"}));
  EXPECT_THAT(set("old", ""), IsEmpty());
}

TEST_F(KvTableTest, AReleasedConnectionMayWaitAgain) {
  wait(a, {"1"});
  set("1", "");
  wait(a, {"2"});
  EXPECT_THAT(set("2", ""), ElementsAre(a));
}

// Queues.

TEST_F(KvTableTest, AQueueIsFirstInFirstOut) {
  push("q", "1");
  push("q", "2");
  EXPECT_EQ(table.queue_size("q"), 2u);
  EXPECT_EQ(table.pop("q"), "1");
  EXPECT_EQ(table.pop("q"), "2");
  EXPECT_EQ(table.pop("q"), std::nullopt);
  EXPECT_EQ(table.queue_size("q"), 0u);
}

TEST_F(KvTableTest, AQueueExistsWhileThereIsSomethingInIt) {
  const Keys q{"q"};
  EXPECT_FALSE(table.check(q));
  push("q", "1");
  EXPECT_TRUE(table.check(q));
  table.pop("q");
  EXPECT_FALSE(table.check(q));
}

TEST_F(KvTableTest, AQueueAndAKeyOfOneNameAreTwoThings) {
  set("x", "value");
  push("x", "item");
  EXPECT_EQ(table.get("x"), "value");
  EXPECT_EQ(table.pop("x"), "item");
  EXPECT_EQ(table.get("x"), "value");
}

TEST_F(KvTableTest, APushReleasesOneWaiterTheOneThatCameFirst) {
  wait(a, {"q"});
  wait(b, {"q"});
  EXPECT_THAT(push("q", "1"), ElementsAre(a));
  EXPECT_THAT(push("q", "2"), ElementsAre(b));
  EXPECT_THAT(push("q", "3"), IsEmpty());
}

TEST_F(KvTableTest, APushPassesOverWhoWaitsForMoreAndTheQueueCountsAsSeenForIt) {
  wait(a, {"q", "k"});
  wait(b, {"q"});
  EXPECT_THAT(push("q", "1"), ElementsAre(b));
  EXPECT_THAT(set("k", ""), ElementsAre(a));
}

TEST_F(KvTableTest, ASetOfTheSameNameReleasesAllWhoWaitForTheQueue) {
  wait(a, {"x"});
  wait(b, {"x"});
  EXPECT_THAT(set("x", ""), ElementsAre(a, b));
}

// Barriers.

TEST_F(KvTableTest, ABarrierReleasesAllWithTheLastToArrive) {
  Released released;
  EXPECT_FALSE(barrier(a, "b", 3, released));
  EXPECT_FALSE(barrier(b, "b", 3, released));
  EXPECT_THAT(released, IsEmpty());
  EXPECT_TRUE(barrier(c, "b", 3, released));
  EXPECT_THAT(released, ElementsAre(a, b));
}

TEST_F(KvTableTest, ABarrierServesOnceAndLatecomersPass) {
  Released released;
  EXPECT_TRUE(barrier(a, "b", 1, released));
  EXPECT_TRUE(barrier(b, "b", 1, released));
  EXPECT_THAT(released, IsEmpty());
}

TEST_F(KvTableTest, ABarrierCountsInAnOrdinaryKey) {
  Released released;
  barrier(a, "b", 3, released);
  EXPECT_EQ(table.get("b"), "1");
  EXPECT_EQ(add("other", 0), 0);
  EXPECT_THAT(set("b", "0"), ElementsAre(a));  // a write releases it early
}

TEST_F(KvTableTest, CancellingDoesNotTakeAnArrivalBack) {
  Released released;
  barrier(a, "b", 2, released);
  table.cancel_wait(a);
  EXPECT_TRUE(barrier(b, "b", 2, released));
  EXPECT_THAT(released, IsEmpty());
}

TEST_F(KvTableTest, ABarrierOnWhatIsNoNumberIsAnError) {
  set("b", "abc");
  Released released;
  EXPECT_FALSE(table.barrier(a, "b", 2, released));
  EXPECT_EQ(table.get("b"), "abc");
}

// Memory.

class KvTableMemory : public testing::Test {
 protected:
  ~KvTableMemory() override { EXPECT_EQ(table.broken_invariant(), ""); }
  MemoryBudget budget{4096};
  KvTable table{budget};
  Released released;
};

TEST_F(KvTableMemory, AWriteOverTheBudgetIsRefusedAndChangesNothing) {
  ASSERT_TRUE(table.set("k", "old", released));
  const auto refused = table.set("k", std::string(4096, 'x'), released);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::limit);
  EXPECT_THAT(refused.error().detail, HasSubstr("no memory for 4093 bytes more under 'k'"));
  EXPECT_EQ(table.get("k"), "old");
}

TEST_F(KvTableMemory, ManySmallKeysReachTheLimitToo) {
  int stored = 0;
  while (table.set(std::to_string(stored), "", released)) ++stored;
  EXPECT_GT(stored, 10);
  EXPECT_LT(stored, 40);
}

TEST_F(KvTableMemory, WaitsAreChargedAndGivenBack) {
  const std::string key(1000, 'k');
  const std::vector<std::string_view> keys{key};
  int waiting = 0;
  while (table.wait(static_cast<ConnectionId>(waiting), keys)) ++waiting;
  EXPECT_EQ(waiting, 3);
  for (int i = 0; i < waiting; ++i) table.cancel_wait(static_cast<ConnectionId>(i));
  EXPECT_EQ(budget.used(), 0u);
}

TEST_F(KvTableMemory, ABarrierWithoutMemoryCountsNobody) {
  ASSERT_TRUE(table.set("b", "1", released));
  ASSERT_TRUE(table.set("fill", std::string(4096 - budget.used() - 140, 'x'), released));
  EXPECT_FALSE(table.barrier(a, "b", 9, released));
  EXPECT_EQ(table.get("b"), "1");
}

TEST_F(KvTableMemory, AllIsGivenBackWhenAllIsGone) {
  ASSERT_TRUE(table.set("k", std::string(1000, 'x'), released));
  ASSERT_TRUE(table.append("k", "more", released));
  ASSERT_TRUE(table.set("k", "less", released));
  ASSERT_TRUE(table.add("n", 1, released));
  ASSERT_TRUE(table.push("q", "item", released));
  table.erase("k");
  table.erase("n");
  table.pop("q");
  EXPECT_EQ(budget.used(), 0u);
}

}  // namespace
}  // namespace distrun::rendezvous
