// What PyTorch's own tests ask of every store, asked of each of ours: in one process, in a file,
// with a prefix, and against a real server.
#include "tests/runtime/worker/store_server_thread.h"
#include "tests/support/run_program.h"
#include <distrun/store.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <pthread.h>
#include <thread>

namespace distrun {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Keeps alive what a store needs under it.
struct Site {
  test::TempFolder dir;
  std::unique_ptr<testing::StoreServerThread> server;
};

struct Kind {
  std::string name;
  std::function<std::shared_ptr<Store>(Site&)> make;
  bool queues;
  int own_keys;  // counted by num_keys in a fresh store
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

std::shared_ptr<Store> file_store(Site& site) {
  return std::make_shared<FileStore>(site.dir / "store");
}
std::shared_ptr<Store> tcp_store(Site& site) {
  if (!site.server) site.server = std::make_unique<testing::StoreServerThread>();
  return std::make_shared<TCPStore>(
      TCPStoreOptions{.host = "127.0.0.1", .port = site.server->port()});
}
// Both make the server believe that the client is an old one.
std::shared_ptr<Store> tcp_store_as(Site& site, StoreProtocol protocol) {
  site.server = std::make_unique<testing::StoreServerThread>();
  return std::make_shared<TCPStore>(
      TCPStoreOptions{.host = "127.0.0.1", .port = site.server->port(), .protocol = protocol});
}

const Kind kKinds[] = {
    {"Hash", [](Site&) { return std::make_shared<HashStore>(); }, true, 0},
    {"File", file_store, false, 1},
    {"PrefixOverHash",
     [](Site&) { return std::make_shared<PrefixStore>("p", std::make_shared<HashStore>()); }, true,
     0},
    {"PrefixOverFile",
     [](Site& site) { return std::make_shared<PrefixStore>("p", file_store(site)); }, false, 1},
    {"Tcp", tcp_store, true, 0},
    {"Tcp113", [](Site& site) { return tcp_store_as(site, StoreProtocol::torch_1_13); }, false, 0},
    {"Tcp24", [](Site& site) { return tcp_store_as(site, StoreProtocol::torch_2_4); }, false, 0},
    {"TcpNewest", [](Site& site) { return tcp_store_as(site, StoreProtocol::newest); }, true, 0},
    {"PrefixOverTcp",
     [](Site& site) { return std::make_shared<PrefixStore>("p", tcp_store(site)); }, true, 0},
};

class AnyStore : public ::testing::TestWithParam<Kind> {
 protected:
  Site site_;
  std::shared_ptr<Store> store_ = GetParam().make(site_);
};

TEST_P(AnyStore, AddLeavesTheSumAsText) {
  for (const int delta : {1, 2, 3}) store_->add("a", delta);
  EXPECT_EQ(store_->add("b", -7), -7);
  EXPECT_EQ(store_->get("a"), "6");
  EXPECT_EQ(store_->get("b"), "-7");
  EXPECT_EQ(store_->add("a", 0), 6);
}

TEST_P(AnyStore, AddReadsWhatASetWroteAndRefusesWhatIsNoNumber) {
  store_->set("n", "  12abc");
  EXPECT_EQ(store_->add("n", 1), 13);
  store_->set("n", "abc");
  EXPECT_THROW(store_->add("n", 1), DistError);
}

TEST_P(AnyStore, GetReturnsTheSameBytes) {
  const std::string bytes("\0\xff/\n\x80 v", 7);
  store_->set("k", bytes);
  EXPECT_EQ(store_->get("k"), bytes);
  store_->set("k", "");
  EXPECT_EQ(store_->get("k"), "");
  store_->set("", "no name");
  EXPECT_EQ(store_->get(""), "no name");
}

TEST_P(AnyStore, AMegabyteComesBackWhole) {
  std::string big(1 << 20, '\0');
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>(i * 31 >> 3);
  store_->set("big", big);
  EXPECT_EQ(store_->get("big"), big);
}

TEST_P(AnyStore, NumKeysCountsEveryKey) {
  for (const auto* key : {"key", "key0", "key1", "key2", "key3"}) store_->set(key, "v");
  EXPECT_EQ(store_->num_keys(), 5 + GetParam().own_keys);
  store_->set("key", "again");
  EXPECT_EQ(store_->num_keys(), 5 + GetParam().own_keys);
}

TEST_P(AnyStore, CheckNeedsAllKeys) {
  store_->set("here", "v");
  EXPECT_TRUE(store_->check({"here"}));
  EXPECT_TRUE(store_->check({}));
  EXPECT_FALSE(store_->check({"here", "missing"}));
}

TEST_P(AnyStore, AKeyWithADashInFrontIsAKeyLikeAnyOther) {
  const auto before = store_->num_keys();
  store_->set("-key3", "v");
  EXPECT_EQ(store_->get("-key3"), "v");
  EXPECT_TRUE(store_->delete_key("-key3"));
  EXPECT_FALSE(store_->check({"-key3"}));
  EXPECT_EQ(store_->num_keys(), before);
}

TEST_P(AnyStore, DeleteTakesOneKeyAndLeavesTheOthers) {
  store_->set("a", "1");
  store_->set("b", "2");
  EXPECT_TRUE(store_->delete_key("a"));
  EXPECT_FALSE(store_->check({"a"}));
  EXPECT_EQ(store_->get("b"), "2");
}

TEST_P(AnyStore, CompareSetOnAMissingKeyReturnsWhatWasExpected) {
  EXPECT_EQ(store_->compare_set("k", "wrong_old_value", "new"), "wrong_old_value");
  EXPECT_FALSE(store_->check({"k"}));
}

TEST_P(AnyStore, CompareSetCreatesTheKeyIfNothingWasExpected) {
  EXPECT_EQ(store_->compare_set("k", "", "new"), "new");
  EXPECT_EQ(store_->get("k"), "new");
}

TEST_P(AnyStore, CompareSetStoresOnlyIfTheValueIsTheExpected) {
  store_->set("k", "old");
  EXPECT_EQ(store_->compare_set("k", "other", "new"), "old");
  EXPECT_EQ(store_->get("k"), "old");
  EXPECT_EQ(store_->compare_set("k", "old", "new"), "new");
  EXPECT_EQ(store_->get("k"), "new");
}

TEST_P(AnyStore, WaitReturnsForAKeyThatAddMade) {
  store_->add("n", 1);
  store_->wait({"n"}, 1000ms);
}

TEST_P(AnyStore, WaitOnAMissingKeyTakesItsTimeoutAndNamesTheKey) {
  store_->set("here", "v");
  const auto start = std::chrono::steady_clock::now();
  try {
    store_->wait({"here", "nonexistent key"}, 250ms);
    FAIL() << "returned";
  } catch (const DistTimeoutError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
    EXPECT_THAT(error.what(), HasSubstr("wait timeout after 250 ms, keys: "));
    EXPECT_THAT(error.what(), HasSubstr("nonexistent key"));
  }
  EXPECT_GE(std::chrono::steady_clock::now() - start, 250ms);
}

TEST_P(AnyStore, GetOfAMissingKeyTakesTheStoresTimeout) {
  store_->set_timeout(100ms);
  EXPECT_THROW(store_->get("missing"), DistTimeoutError);
}

TEST_P(AnyStore, AfterATimeoutTheStoreIsAsGoodAsBefore) {
  EXPECT_THROW(store_->wait({"late"}, 50ms), DistTimeoutError);
  // Written after the timeout: an answer that comes late must not be taken for the next one's.
  store_->set("late", "v");
  EXPECT_EQ(store_->get("late"), "v");
  EXPECT_EQ(store_->add("n", 5), 5);
  EXPECT_EQ(store_->num_keys(), 2 + GetParam().own_keys);
}

TEST_P(AnyStore, AZeroTimeoutLooksOnce) {
  EXPECT_THROW(store_->wait({"k"}, 0ms), DistTimeoutError);
  store_->set("k", "v");
  // A server needs a moment to answer; a wait of 0 ms gives it about one.
  for (int tries = 0;; ++tries) {
    try {
      store_->wait({"k"}, 0ms);
      break;
    } catch (const DistTimeoutError&) {
      ASSERT_LT(tries, 1000);
    }
  }
}

TEST_P(AnyStore, ANegativeTimeoutIsRefused) {
  EXPECT_THROW(store_->wait({"k"}, -1ms), DistArgumentError);
  EXPECT_THROW(store_->set_timeout(-1ms), DistArgumentError);
}

TEST_P(AnyStore, AppendMakesOrExtends) {
  store_->append("k", "po");
  store_->append("k", "tato");
  store_->append("k", "");
  EXPECT_EQ(store_->get("k"), "potato");
  store_->set("e", "x");
  store_->append("e", "x");
  EXPECT_EQ(store_->get("e"), "xx");
}

TEST_P(AnyStore, MultiSetAndMultiGetKeepTheOrder) {
  store_->multi_set({{"b", "2"}, {"a", "1"}, {"e", ""}});
  EXPECT_THAT(store_->multi_get({"a", "e", "b"}), ElementsAre("1", "", "2"));
  EXPECT_THAT(store_->multi_get({}), ElementsAre());
}

TEST_P(AnyStore, ACloneSeesTheSameData) {
  const std::shared_ptr<Store> clone = store_->clone();
  store_->set("k", "v");
  EXPECT_EQ(clone->get("k"), "v");
  clone->set("k", "w");
  EXPECT_EQ(store_->get("k"), "w");
}

TEST_P(AnyStore, WaitIsEndedByAWriterInAnotherThread) {
  for (const std::string how : {"set", "add", "compare_set", "append", "multi_set"}) {
    const std::shared_ptr<Store> writer = store_->clone();
    std::thread thread([&] {
      std::this_thread::sleep_for(30ms);
      if (how == "set") writer->set(how, "1");
      if (how == "add") writer->add(how, 1);
      if (how == "compare_set") writer->compare_set(how, "", "1");
      if (how == "append") writer->append(how, "1");
      if (how == "multi_set") writer->multi_set({{"x", "0"}, {how, "1"}});
    });
    store_->wait({how}, 10s);
    thread.join();
    EXPECT_EQ(store_->get(how), "1") << how;
  }
}

TEST_P(AnyStore, ASignalDoesNotEndAWait) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(0, ::sigaction(SIGUSR1, &action, &before));
  const std::shared_ptr<Store> writer = store_->clone();
  std::thread waiter([&] { store_->wait({"k"}, 10s); });
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(10ms);
    ::pthread_kill(waiter.native_handle(), SIGUSR1);
  }
  writer->set("k", "v");
  waiter.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_P(AnyStore, ManyThreadsCountToTheSameSum) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([store = store_->clone()] {
      for (int n = 0; n < 50; ++n) store->add("count", 1);
    });
  // And all on one object.
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([this] {
      for (int n = 0; n < 50; ++n) store_->add("count", 1);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(store_->get("count"), "300");
}

TEST_P(AnyStore, ABarrierHoldsUntilAllHaveCome) {
  std::atomic<int> arrived = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, store = store_->clone(), i] {
      std::this_thread::sleep_for(i * 20ms);
      ++arrived;
      store->barrier("b", 3, 10s);
      EXPECT_EQ(arrived, 3);
    });
  for (auto& thread : threads) thread.join();
}

TEST_P(AnyStore, ABarrierThatIsNotFilledNamesItsKey) {
  try {
    store_->barrier("lonely", 2, 50ms);
    FAIL() << "returned";
  } catch (const DistTimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("barrier timeout after 50 ms, key: lonely"));
  }
  store_->set("k", "usable");
  EXPECT_EQ(store_->get("k"), "usable");
}

TEST_P(AnyStore, ListKeysShowsUsersKeysOnly) {
  store_->multi_set({{"a", "1"}, {"-b", "2"}, {"c/d", "3"}});
  if (GetParam().name == "Tcp113" || GetParam().name == "Tcp24") {
    EXPECT_THROW(store_->list_keys(), DistUnsupportedError);
    return;
  }
  EXPECT_THAT(store_->list_keys(), UnorderedElementsAre("a", "-b", "c/d"));
}

class StoreWithoutQueues : public AnyStore {};

TEST_P(StoreWithoutQueues, SaysSoAndStaysUsable) {
  try {
    store_->queue_push("q", "v");
    FAIL() << "accepted";
  } catch (const DistUnsupportedError& error) {
    EXPECT_THAT(error.what(), ::testing::ContainsRegex("queue_push \"(p/)?q\": "));
  }
  // The connection is as good as before.
  store_->set("k", "v");
  EXPECT_EQ(store_->get("k"), "v");
}

class AnyQueue : public AnyStore {};

TEST_P(AnyQueue, ItemsComeOutInTheOrderInWhichTheyWentIn) {
  EXPECT_FALSE(store_->check({"q"}));
  EXPECT_EQ(store_->queue_len("q"), 0);
  store_->queue_push("q", "1");
  store_->queue_push("q", "");
  EXPECT_TRUE(store_->check({"q"}));
  EXPECT_EQ(store_->queue_len("q"), 2);
  store_->wait({"q"}, 1s);
  EXPECT_EQ(store_->queue_pop("q"), "1");
  EXPECT_EQ(store_->queue_pop("q"), "");
  EXPECT_FALSE(store_->check({"q"}));
  EXPECT_EQ(store_->queue_len("q"), 0);
}

TEST_P(AnyQueue, ATryOnAnEmptyQueueSaysSo) {
  try {
    store_->queue_try_pop("q");
    FAIL() << "returned";
  } catch (const QueueEmptyError& error) {
    EXPECT_THAT(error.what(), ::testing::ContainsRegex("queue \"(p/)?q\" is empty"));
  }
  store_->queue_push("q", "v");
  EXPECT_EQ(store_->queue_try_pop("q"), "v");
}

TEST_P(AnyQueue, APopOfAQueueThatNothingComesToTimesOut) {
  store_->set_timeout(10ms);
  EXPECT_THROW(store_->queue_pop("q"), DistTimeoutError);
}

TEST_P(AnyQueue, TwoThreadsExchangeItems) {
  std::thread other([store = store_->clone()] {
    store->queue_push("ping", "a");
    EXPECT_EQ(store->queue_pop("pong"), "b");
  });
  EXPECT_EQ(store_->queue_pop("ping"), "a");
  store_->queue_push("pong", "b");
  other.join();
}

TEST_P(AnyQueue, NoItemIsLostOrGivenTwice) {
  std::atomic<int> sum = 0;
  std::vector<std::thread> takers;
  for (int i = 0; i < 3; ++i)
    takers.emplace_back([&, store = store_->clone()] {
      for (int n = 0; n < 20; ++n) sum += std::stoi(store->queue_pop("q"));
    });
  for (int n = 1; n <= 60; ++n) store_->queue_push("q", std::to_string(n));
  for (auto& taker : takers) taker.join();
  EXPECT_EQ(sum, 60 * 61 / 2);
}

std::string name_of(const ::testing::TestParamInfo<Kind>& info) {
  return info.param.name;
}

std::vector<Kind> kinds_with(bool queues) {
  std::vector<Kind> kinds;
  for (const Kind& kind : kKinds)
    if (kind.queues == queues) kinds.push_back(kind);
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(All, AnyStore, ::testing::ValuesIn(kKinds), name_of);
INSTANTIATE_TEST_SUITE_P(All, AnyQueue, ::testing::ValuesIn(kinds_with(true)), name_of);
INSTANTIATE_TEST_SUITE_P(All, StoreWithoutQueues, ::testing::ValuesIn(kinds_with(false)), name_of);

// --- PrefixStore ---------------------------------------------------------------------------------

TEST(PrefixStore, TheInnerStoresPrefixComesFirst) {
  auto base = std::make_shared<HashStore>();
  PrefixStore store("a", std::make_shared<PrefixStore>("b", base));
  store.set("k", "v");
  EXPECT_EQ(base->get("b/a/k"), "v");
  PrefixStore("", base).set("k", "v");
  EXPECT_TRUE(base->check({"/k"}));
}

TEST(PrefixStore, TheUnderlyingStoreIsTheVeryOnePassedIn) {
  auto base = std::make_shared<HashStore>();
  auto middle = std::make_shared<PrefixStore>("b", base);
  const PrefixStore store("a", middle);
  EXPECT_EQ(store.underlying_store(), middle);
  EXPECT_EQ(store.underlying_non_prefix_store(), base);
}

TEST(PrefixStore, ANullStoreIsRefused) {
  EXPECT_THROW(PrefixStore("prefix", nullptr), DistArgumentError);
}

TEST(PrefixStore, TimeoutsAndNumKeysAreTheUnderlyingStores) {
  auto base = std::make_shared<HashStore>();
  base->set("other", "v");
  PrefixStore store("p", base);
  store.set("k", "v");
  store.set_timeout(123ms);
  EXPECT_EQ(base->timeout(), 123ms);
  EXPECT_EQ(store.num_keys(), 2);
  EXPECT_TRUE(store.has_extended_api());
  EXPECT_THAT(store.list_keys(), ElementsAre("k"));
}

// A store that somebody else wrote, with the least that it must have.
class MinimalStore final : public Store {
 public:
  using Store::wait;
  std::string description() const override { return "MinimalStore"; }
  void set(const std::string& key, std::string_view value) override { hash_.set(key, value); }
  std::string get(const std::string& key) override { return hash_.get(key); }
  std::int64_t add(const std::string& key, std::int64_t n) override { return hash_.add(key, n); }
  bool check(const std::vector<std::string>& keys) override { return hash_.check(keys); }
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override {
    return hash_.compare_set(key, expected, desired);
  }
  bool delete_key(const std::string& key) override { return hash_.delete_key(key); }
  void wait(const std::vector<std::string>& keys, Timeout timeout) override {
    hash_.wait(keys, timeout);
  }
  std::int64_t num_keys() override { return hash_.num_keys(); }
  std::shared_ptr<Store> clone() override { return nullptr; }

 private:
  HashStore hash_;
};

TEST(MinimalStore, WhatItLacksIsMadeUpOrRefused) {
  auto minimal = std::make_shared<MinimalStore>();
  PrefixStore store("p", minimal);
  EXPECT_FALSE(store.has_extended_api());
  store.append("k", "po");
  store.append("k", "tato");
  store.multi_set({{"a", "1"}, {"b", "2"}});
  EXPECT_THAT(store.multi_get({"k", "a", "b"}), ElementsAre("potato", "1", "2"));
  EXPECT_EQ(minimal->get("p/k"), "potato");
  EXPECT_THROW(store.list_keys(), DistUnsupportedError);
  EXPECT_THROW(store.queue_len("q"), DistUnsupportedError);
}

}  // namespace
}  // namespace distrun
