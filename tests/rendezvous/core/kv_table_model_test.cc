// KvTable against a model that is too simple to be wrong: random operations of many connections,
// the same answers and the same releases in the same order, invariants after every step.
// DISTRUN_MODEL_SEED=n runs one seed.
#include "rendezvous/core/kv_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace distrun::rendezvous {
namespace {

// Waits are one list in order of arrival, looked through from its start at every write.
class Model {
 public:
  std::map<std::string, std::string> values;
  std::map<std::string, std::deque<std::string>> queues;
  Released released;

  void write(const std::string& key, const std::string& value) {
    values[key] = value;
    wake(key, false);
  }
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) {
    if (!values.contains(key) && !expected.empty()) return expected;
    if (values.contains(key) && values[key] != expected) return values[key];
    write(key, desired);
    return desired;
  }
  bool present(const std::string& key) const {
    return values.contains(key) || (queues.contains(key) && !queues.at(key).empty());
  }
  bool wait(ConnectionId connection, const std::vector<std::string>& keys) {
    cancel(connection);
    std::vector<std::string> missing;
    for (const auto& key : keys)
      if (!present(key)) missing.push_back(key);
    if (missing.empty()) return true;
    waits_.push_back({connection, missing});
    return false;
  }
  bool barrier(ConnectionId connection, const std::string& key, long world_size) {
    const long arrived = (values.contains(key) ? std::stol(values[key]) : 0) + 1;
    values[key] = std::to_string(arrived);
    cancel(connection);
    if (arrived >= world_size) {
      wake(key, false);
      return true;
    }
    waits_.push_back({connection, {key}});
    return false;
  }
  void push(const std::string& queue, const std::string& value) {
    queues[queue].push_back(value);
    wake(queue, true);
  }
  void cancel(ConnectionId connection) {
    std::erase_if(waits_, [&](const Wait& wait) { return wait.connection == connection; });
  }

 private:
  struct Wait {
    ConnectionId connection;
    std::vector<std::string> missing;
  };
  void wake(const std::string& key, bool only_one) {
    for (auto wait = waits_.begin(); wait != waits_.end();) {
      const bool concerned = std::erase(wait->missing, key) > 0;
      if (!concerned || !wait->missing.empty()) {
        ++wait;
        continue;
      }
      released.push_back(wait->connection);
      wait = waits_.erase(wait);
      if (only_one) return;
    }
  }
  std::vector<Wait> waits_;
};

class Walk {
 public:
  explicit Walk(unsigned seed) : random_(seed) {}

  void run(int steps) {
    for (step_ = 0; step_ < steps && !testing::Test::HasFailure(); ++step_) {
      SCOPED_TRACE("step " + std::to_string(step_));
      act();
      EXPECT_EQ(released_, model_.released);
      EXPECT_EQ(table_.num_keys(), model_.values.size());
      EXPECT_EQ(table_.broken_invariant(), "");
      released_.clear();
      model_.released.clear();
    }
    for (std::uint64_t i = 0; i < kConnections; ++i) table_.cancel_wait(ConnectionId{i});
    EXPECT_EQ(table_.broken_invariant(), "");
  }

 private:
  static constexpr std::uint64_t kConnections = 12;

  std::size_t below(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }
  std::string key() { return "key" + std::to_string(below(8)); }
  std::string number() { return std::to_string(static_cast<long>(below(9)) - 4); }
  ConnectionId connection() { return ConnectionId{below(kConnections)}; }

  void act() {
    const std::string k = key();
    switch (below(13)) {
      case 0: {
        const std::string value = number();
        ASSERT_TRUE(table_.set(k, value, released_));
        return model_.write(k, value);
      }
      case 1: {
        const auto delta = static_cast<long>(below(5)) - 2;
        const auto sum = table_.add(k, delta, released_);
        ASSERT_TRUE(sum);
        model_.write(k, std::to_string(
                            (model_.values.contains(k) ? std::stol(model_.values[k]) : 0) + delta));
        EXPECT_EQ(std::to_string(*sum), model_.values[k]);
        return;
      }
      case 2: {
        const std::string expected = below(2) == 0 ? "" : number();
        const std::string desired = number();
        const auto held = table_.compare_set(k, expected, desired, released_);
        ASSERT_TRUE(held);
        EXPECT_EQ(std::string(*held), model_.compare_set(k, expected, desired));
        return;
      }
      case 3:
        ASSERT_TRUE(table_.append(k, "1", released_));
        return model_.write(k, (model_.values.contains(k) ? model_.values[k] : "") + "1");
      case 4:
      case 5:
        EXPECT_EQ(table_.erase(k), model_.values.erase(k) > 0);
        return;
      case 6:
        EXPECT_EQ(table_.get(k), model_.values.contains(k) ? model_.values[k] : "");
        return;
      case 7:
      case 8:
        return wait();
      case 9: {
        const auto who = connection();
        table_.cancel_wait(who);
        return model_.cancel(who);
      }
      case 10: {
        const auto who = connection();
        const auto world_size = static_cast<long>(below(5));
        const auto last = table_.barrier(who, k, world_size, released_);
        ASSERT_TRUE(last);
        EXPECT_EQ(*last, model_.barrier(who, k, world_size));
        return;
      }
      case 11: {
        const std::string value = number();
        ASSERT_TRUE(table_.push(k, value, released_));
        return model_.push(k, value);
      }
      case 12: {
        auto& items = model_.queues[k];
        EXPECT_EQ(table_.queue_size(k), items.size());
        const auto item = table_.pop(k);
        ASSERT_EQ(item.has_value(), !items.empty());
        if (!item) return;
        EXPECT_EQ(*item, items.front());
        return items.pop_front();
      }
    }
  }

  void wait() {
    std::vector<std::string> keys(below(4));
    for (auto& each : keys) each = key();
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    const auto who = connection();
    const auto ready = table_.wait(who, views);
    ASSERT_TRUE(ready);
    EXPECT_EQ(*ready, model_.wait(who, keys));
  }

  std::mt19937_64 random_;
  MemoryBudget budget_{1 << 24};
  KvTable table_{budget_};
  Model model_;
  Released released_;
  int step_ = 0;
};

TEST(KvTableModel, RandomOperationsGiveTheSameAnswersAndReleases) {
  if (const char* seed = std::getenv("DISTRUN_MODEL_SEED")) {
    Walk(static_cast<unsigned>(std::stoul(seed))).run(2000);
    return;
  }
  for (unsigned seed = 0; seed < 50 && !HasFailure(); ++seed) {
    SCOPED_TRACE("DISTRUN_MODEL_SEED=" + std::to_string(seed));
    Walk(seed).run(2000);
  }
}

}  // namespace
}  // namespace distrun::rendezvous
