#include "runtime/worker/deadline.h"
#include "runtime/worker/stored_number.h"
#include <distrun/store.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <unordered_map>

namespace distrun {

struct HashStore::Table {
  std::mutex mutex;
  std::condition_variable changed;
  std::unordered_map<std::string, std::string> values;
  std::unordered_map<std::string, std::deque<std::string>> queues;  // none is empty

  bool has(const std::string& key) const { return values.contains(key) || queues.contains(key); }
  bool has_all(const std::vector<std::string>& keys) const {
    return std::all_of(keys.begin(), keys.end(), [this](const auto& key) { return has(key); });
  }

  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, TimePoint deadline, Ready ready,
            const std::vector<std::string>& keys, Timeout timeout) {
    if (changed.wait_until(lock, deadline, ready)) return;
    std::string missing;
    for (const std::string& key : keys)
      if (!has(key)) missing += (missing.empty() ? "" : ", ") + key;
    throw DistTimeoutError("HashStore: wait timeout after " + to_string(timeout) +
                           ", keys: " + missing);
  }

  std::string pop(const std::string& key) {
    const auto queue = queues.find(key);
    std::string item = std::move(queue->second.front());
    queue->second.pop_front();
    if (queue->second.empty()) queues.erase(queue);
    return item;
  }
};

HashStore::HashStore(Timeout timeout) : HashStore(std::make_shared<Table>(), timeout) {}
HashStore::HashStore(std::shared_ptr<Table> table, Timeout timeout)
    : Store(timeout), table_(std::move(table)) {}
HashStore::~HashStore() = default;

std::string HashStore::description() const {
  return "HashStore";
}

void HashStore::set(const std::string& key, std::string_view value) {
  const std::lock_guard lock(table_->mutex);
  table_->values[key] = value;
  table_->changed.notify_all();
}

std::string HashStore::get(const std::string& key) {
  const Timeout limit = timeout();
  const TimePoint deadline = deadline_after(limit, "get");
  std::unique_lock lock(table_->mutex);
  table_->wait(
      lock, deadline, [&] { return table_->values.contains(key); }, {key}, limit);
  return table_->values[key];
}

std::int64_t HashStore::add(const std::string& key, std::int64_t delta) {
  const std::lock_guard lock(table_->mutex);
  const auto old = table_->values.find(key);
  const std::int64_t sum =
      add_to_stored(key, old == table_->values.end() ? "" : old->second, delta);
  table_->values[key] = std::to_string(sum);
  table_->changed.notify_all();
  return sum;
}

bool HashStore::check(const std::vector<std::string>& keys) {
  const std::lock_guard lock(table_->mutex);
  return table_->has_all(keys);
}

std::string HashStore::compare_set(const std::string& key, std::string_view expected,
                                   std::string_view desired) {
  const std::lock_guard lock(table_->mutex);
  const auto old = table_->values.find(key);
  if (old == table_->values.end() && !expected.empty()) return std::string(expected);
  if (old != table_->values.end() && old->second != expected) return old->second;
  table_->values[key] = desired;
  table_->changed.notify_all();
  return std::string(desired);
}

bool HashStore::delete_key(const std::string& key) {
  const std::lock_guard lock(table_->mutex);
  return table_->values.erase(key) > 0;
}

void HashStore::wait(const std::vector<std::string>& keys, Timeout timeout) {
  const TimePoint deadline = deadline_after(timeout, "wait");
  std::unique_lock lock(table_->mutex);
  table_->wait(
      lock, deadline, [&] { return table_->has_all(keys); }, keys, timeout);
}

std::int64_t HashStore::num_keys() {
  const std::lock_guard lock(table_->mutex);
  return static_cast<std::int64_t>(table_->values.size());
}

std::vector<std::string> HashStore::list_keys() {
  const std::lock_guard lock(table_->mutex);
  std::vector<std::string> keys;
  for (const auto& [key, value] : table_->values) keys.push_back(key);
  return keys;
}

void HashStore::append(const std::string& key, std::string_view value) {
  const std::lock_guard lock(table_->mutex);
  table_->values[key].append(value);
  table_->changed.notify_all();
}

std::vector<std::string> HashStore::multi_get(const std::vector<std::string>& keys) {
  const Timeout limit = timeout();
  const TimePoint deadline = deadline_after(limit, "multi_get");
  std::unique_lock lock(table_->mutex);
  const auto ready = [&] {
    return std::all_of(keys.begin(), keys.end(),
                       [this](const auto& key) { return table_->values.contains(key); });
  };
  table_->wait(lock, deadline, ready, keys, limit);
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) values.push_back(table_->values[key]);
  return values;
}

void HashStore::multi_set(const KeyValues& values) {
  const std::lock_guard lock(table_->mutex);
  for (const auto& [key, value] : values) table_->values[key] = value;
  table_->changed.notify_all();
}

void HashStore::queue_push(const std::string& key, std::string_view value) {
  const std::lock_guard lock(table_->mutex);
  table_->queues[key].emplace_back(value);
  table_->changed.notify_all();
}

std::string HashStore::queue_pop(const std::string& key) {
  const Timeout limit = timeout();
  const TimePoint deadline = deadline_after(limit, "queue_pop");
  std::unique_lock lock(table_->mutex);
  table_->wait(
      lock, deadline, [&] { return table_->queues.contains(key); }, {key}, limit);
  return table_->pop(key);
}

std::string HashStore::queue_try_pop(const std::string& key) {
  const std::lock_guard lock(table_->mutex);
  if (!table_->queues.contains(key))
    throw QueueEmptyError("queue_try_pop: HashStore: queue \"" + key + "\" is empty");
  return table_->pop(key);
}

std::int64_t HashStore::queue_len(const std::string& key) {
  const std::lock_guard lock(table_->mutex);
  const auto queue = table_->queues.find(key);
  return queue == table_->queues.end() ? 0 : static_cast<std::int64_t>(queue->second.size());
}

std::shared_ptr<Store> HashStore::clone() {
  return std::shared_ptr<Store>(new HashStore(table_, timeout()));
}

}  // namespace distrun
