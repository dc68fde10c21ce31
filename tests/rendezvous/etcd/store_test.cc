// EtcdStore: what is kept is kept by the leader alone, once, and in order, whatever happens to
// answers.
#include "rendezvous/etcd/core/store.h"

#include "tests/rendezvous/etcd/model_etcd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

namespace distrun::rendezvous::etcd {
namespace {

using testing::HasSubstr;

constexpr TimePoint kNow{std::chrono::hours(1)};
constexpr LeaseId kLease = 7;
constexpr Duration kKeepWithin = std::chrono::seconds(3);

class EtcdStoreTest : public testing::Test {
 protected:
  EtcdStoreTest() {
    etcd_.add_lease(kLease);
    etcd_.put(keys_.leader(), "a:1 a");
    etcd_.put(keys_.sequence(), sequence_text(kLease, 0));
    store_.emplace(keys_, etcd_.find(keys_.leader())->create_revision, kLease, kKeepWithin);
  }
  EtcdStore::Verdict carry_out(const Transaction& transaction) {
    return store_->answered(etcd_.carry_out(transaction, kNow), kNow);
  }
  std::string kept(const std::string& job) const {
    const KeyValue* found = etcd_.find(keys_.job(job));
    return found == nullptr ? "nothing" : found->value;
  }

  Keys keys_;
  ModelEtcd etcd_;
  std::optional<EtcdStore> store_;
};

TEST_F(EtcdStoreTest, ARecordIsKept) {
  const auto ticket = store_->save("train", "one");
  const auto verdict = carry_out(*store_->next(kNow));
  ASSERT_TRUE(std::holds_alternative<EtcdStore::Kept>(verdict));
  EXPECT_EQ(std::get<EtcdStore::Kept>(verdict).upto, ticket);
  EXPECT_EQ(kept("train"), "one");
}

TEST_F(EtcdStoreTest, AForgottenJobIsGone) {
  store_->save("train", "one");
  carry_out(*store_->next(kNow));
  store_->forget("train");
  carry_out(*store_->next(kNow));
  EXPECT_EQ(kept("train"), "nothing");
}

TEST_F(EtcdStoreTest, ARecordOnALeaseOfItsOwnGoesWithItUnlessItWasKeptAnew) {
  for (const LeaseId lease : {8, 9}) {
    etcd_.add_lease(lease);
    store_->save(lease == 8 ? "ended" : "anew", "over", lease);
  }
  carry_out(*store_->next(kNow));
  store_->save("anew", "runs");
  carry_out(*store_->next(kNow));
  for (const LeaseId lease : {8, 9}) etcd_.carry_out(Revoke{lease}, kNow);
  EXPECT_EQ(kept("ended"), "nothing");
  EXPECT_EQ(kept("anew"), "runs");
}

TEST_F(EtcdStoreTest, OneTransactionIsOnItsWayAtATime) {
  store_->save("a", "1");
  ASSERT_TRUE(store_->next(kNow));
  store_->save("b", "1");
  EXPECT_FALSE(store_->next(kNow));
}

TEST_F(EtcdStoreTest, WhatComesMeanwhileGoesTogetherWithTheLastOfEachJob) {
  store_->save("a", "1");
  const auto first = store_->next(kNow);
  store_->save("b", "1");
  store_->save("a", "2");
  const auto ticket = store_->save("b", "2");
  carry_out(*first);
  const auto verdict = carry_out(*store_->next(kNow));
  EXPECT_EQ(std::get<EtcdStore::Kept>(verdict).upto, ticket);
  EXPECT_EQ(kept("a"), "2");
  EXPECT_EQ(kept("b"), "2");
  EXPECT_FALSE(store_->next(kNow));
}

TEST_F(EtcdStoreTest, NoTransactionIsLargerThanEtcdTakes) {
  for (int i = 0; i < 250; ++i) store_->save(std::to_string(i), "r");
  std::size_t largest = 0;
  while (const auto transaction = store_->next(kNow)) {
    largest = std::max(largest, transaction->changes.size());
    carry_out(*transaction);
  }
  EXPECT_LE(largest, 128u);
  EXPECT_EQ(kept("249"), "r");
}

TEST_F(EtcdStoreTest, WhoDoesNotHoldTheKeyAnyMoreKeepsNothing) {
  etcd_.erase(keys_.leader());
  etcd_.put(keys_.leader(), "b:1 b");
  store_->save("train", "of the old leader");
  const auto verdict = carry_out(*store_->next(kNow));
  ASSERT_TRUE(std::holds_alternative<EtcdStore::Disowned>(verdict));
  EXPECT_THAT(std::get<EtcdStore::Disowned>(verdict).why, HasSubstr("b:1 b leads now"));
  EXPECT_EQ(kept("train"), "nothing");
}

TEST_F(EtcdStoreTest, AnUnansweredTransactionIsAskedForAgain) {
  store_->save("train", "one");
  const auto transaction = store_->next(kNow);
  const auto verdict = store_->answered(Failed{"no answer", false}, kNow);
  EXPECT_TRUE(std::holds_alternative<EtcdStore::Again>(verdict));
  EXPECT_EQ(store_->on_its_way(), *transaction);
}

TEST_F(EtcdStoreTest, ATransactionThatWasCarriedOutBeforeItsSecondTryIsKept) {
  store_->save("train", "one");
  const auto transaction = store_->next(kNow);
  etcd_.carry_out(*transaction, kNow);
  EXPECT_TRUE(std::holds_alternative<EtcdStore::Kept>(carry_out(*transaction)));
}

TEST_F(EtcdStoreTest, ATryThatArrivesLateDoesNotTakeARecordBack) {
  store_->save("train", "one");
  const auto late = store_->next(kNow);
  carry_out(*late);
  store_->save("train", "two");
  carry_out(*store_->next(kNow));
  etcd_.carry_out(*late, kNow);
  EXPECT_EQ(kept("train"), "two");
}

TEST_F(EtcdStoreTest, WhoseTransactionIsNotCarriedOutInItsTimeLeadsNoMore) {
  store_->save("train", "one");
  store_->next(kNow);
  const Failed full{"database space exceeded", false};
  const TimePoint late = kNow + kKeepWithin;
  EXPECT_TRUE(std::holds_alternative<EtcdStore::Again>(
      store_->answered(full, late - std::chrono::milliseconds(1))));
  const auto verdict = store_->answered(full, late);
  ASSERT_TRUE(std::holds_alternative<EtcdStore::Disowned>(verdict));
  EXPECT_THAT(std::get<EtcdStore::Disowned>(verdict).why, HasSubstr("database space exceeded"));
}

TEST_F(EtcdStoreTest, TheTimeOfATransactionBeginsWithIt) {
  store_->save("train", "one");
  carry_out(*store_->next(kNow));
  store_->save("train", "two");
  const TimePoint later = kNow + std::chrono::hours(1);
  store_->next(later);
  EXPECT_EQ(store_->time_left(later), kKeepWithin);
  EXPECT_TRUE(std::holds_alternative<EtcdStore::Again>(
      store_->answered(Failed{"no answer", false}, later)));
}

TEST_F(EtcdStoreTest, OfWhatWaitsOnlyTheLastOfEachJobIsHeldAndIsKeptWithTheFirst) {
  store_->save("a", "1");
  const auto first = store_->next(kNow);
  EtcdStore::Ticket last = 0;
  for (int i = 0; i < 1000; ++i) {
    store_->forget("a");
    last = store_->save("a", std::to_string(i));
  }
  EXPECT_EQ(store_->queued(), 1u);
  carry_out(*first);
  const auto verdict = carry_out(*store_->next(kNow));
  EXPECT_EQ(std::get<EtcdStore::Kept>(verdict).upto, last);
  EXPECT_EQ(kept("a"), "999");
}

TEST_F(EtcdStoreTest, ATicketIsNotKeptBeforeAnEarlierOneOfAnotherJob) {
  for (int i = 0; i < 150; ++i) store_->save(std::to_string(i), "r");
  store_->save("0", "newer");  // goes with the first hundred
  const auto verdict = carry_out(*store_->next(kNow));
  EXPECT_EQ(std::get<EtcdStore::Kept>(verdict).upto, 100u);
  EXPECT_EQ(kept("0"), "newer");
  EXPECT_EQ(std::get<EtcdStore::Kept>(carry_out(*store_->next(kNow))).upto, 151u);
}

TEST_F(EtcdStoreTest, WhatEtcdRefusesForGoodEndsTheLeadership) {
  store_->save("train", "one");
  store_->next(kNow);
  EXPECT_TRUE(std::holds_alternative<EtcdStore::Disowned>(
      store_->answered(Failed{"request is too large", true}, kNow)));
}

}  // namespace
}  // namespace distrun::rendezvous::etcd
