#include "rendezvous/core/kv_table.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace distrun::rendezvous {
namespace {

// What an entry costs beside its bytes: map node, two strings, allocator.  Estimates, on the high
// side: they exist so that many small things hit the limit as surely as one big one.
constexpr std::size_t kKeyCost = 128;
constexpr std::size_t kQueueCost = 768;  // a deque starts with a map and a block
constexpr std::size_t kItemCost = 64;
constexpr std::size_t kWaitCost = 160;

// A value that shrank keeps its memory up to this factor, then it is made anew.
constexpr std::size_t kSlack = 2;
constexpr std::size_t kSmall = 256;

// A key or value in a sentence: short, and with nothing in it that a terminal would obey.
std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 64;
  std::string out = "'";
  for (const char c : text.substr(0, kShown))
    out += static_cast<unsigned char>(c) >= 0x20 && c != 0x7F ? c : '?';
  return out += text.size() > kShown ? "…'" : "'";
}

// As strtoll reads it: leading space, a sign, digits, and whatever follows.
std::optional<std::int64_t> leading_number(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\n\v\f\r");
  if (start == std::string_view::npos) return std::nullopt;
  text.remove_prefix(start);
  if (text.front() == '+') {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc()) return std::nullopt;
  return number;
}

std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

}  // namespace

KvTable::KvTable(MemoryBudget& budget, std::size_t value_bytes_max)
    : budget_(budget), value_bytes_max_(value_bytes_max) {}

KvTable::~KvTable() {
  budget_.give_back(charged_);
}

bool KvTable::present(std::string_view key) const {
  return values_.contains(key) || queues_.contains(key);
}

Error KvTable::no_memory(std::string_view key, std::size_t bytes) const {
  return Error{Errc::limit, "no memory for " + std::to_string(bytes) + " bytes more under " +
                                quoted(key) + ": " + std::to_string(budget_.used()) + " of " +
                                std::to_string(budget_.limit()) + " are in use"};
}

Result<void> KvTable::store(std::string_view key, std::string_view value) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    const std::size_t cost = kKeyCost + key.size() + value.size();
    if (!budget_.take(cost)) return no_memory(key, cost);
    charged_ += cost;
    values_.emplace(key, value);
    return {};
  }
  std::string& held = found->second;
  if (value.size() > held.size()) {
    const std::size_t more = value.size() - held.size();
    if (!budget_.take(more)) return no_memory(key, more);
    charged_ += more;
  } else {
    budget_.give_back(held.size() - value.size());
    charged_ -= held.size() - value.size();
  }
  if (held.capacity() > kSmall && held.capacity() / kSlack > value.size()) {
    held = std::string(value);
  } else {
    held.assign(value);
  }
  return {};
}

Result<void> KvTable::set(std::string_view key, std::string_view value, Released& released) {
  if (auto stored = store(key, value); !stored) return stored.error();
  pay_everyone(key, released);
  return {};
}

Result<void> KvTable::append(std::string_view key, std::string_view value, Released& released) {
  const auto found = values_.find(key);
  if (found == values_.end()) return set(key, value, released);
  std::string& held = found->second;
  if (value.size() > value_bytes_max_ - std::min(held.size(), value_bytes_max_))
    return Error{Errc::limit, "the value of " + quoted(key) + " would grow to " +
                                  std::to_string(held.size() + value.size()) + " bytes; at most " +
                                  std::to_string(value_bytes_max_)};
  if (!budget_.take(value.size())) return no_memory(key, value.size());
  charged_ += value.size();
  held.append(value);
  pay_everyone(key, released);
  return {};
}

Result<std::string_view> KvTable::compare_set(std::string_view key, std::string_view expected,
                                              std::string_view desired, Released& released) {
  const auto found = values_.find(key);
  const bool missing = found == values_.end();
  if (missing && !expected.empty()) return expected;
  if (!missing && found->second != expected) return std::string_view(found->second);
  if (auto stored = set(key, desired, released); !stored) return stored.error();
  return get(key);
}

Result<std::int64_t> KvTable::number_at(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return 0;
  const auto number = leading_number(found->second);
  if (!number)
    return Error{Errc::invalid_argument,
                 "the value of " + quoted(key) +
                     " is not a 64-bit decimal number: " + quoted(found->second)};
  return *number;
}

Result<void> KvTable::store_number(std::string_view key, std::int64_t number) {
  std::array<char, 20> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), number);
  DISTRUN_CHECK(written.ec == std::errc());
  return store(key, {text.data(), static_cast<std::size_t>(written.ptr - text.data())});
}

Result<std::int64_t> KvTable::add(std::string_view key, std::int64_t delta, Released& released) {
  const auto held = number_at(key);
  if (!held) return held.error();
  const std::int64_t sum = wrapping_sum(*held, delta);
  if (auto stored = store_number(key, sum); !stored) return stored.error();
  pay_everyone(key, released);
  return sum;
}

bool KvTable::erase(std::string_view key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  const std::size_t cost = kKeyCost + key.size() + found->second.size();
  budget_.give_back(cost);
  charged_ -= cost;
  values_.erase(found);
  return true;
}

std::string_view KvTable::get(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? std::string_view() : std::string_view(found->second);
}

bool KvTable::check(std::span<const std::string_view> keys) const {
  return std::all_of(keys.begin(), keys.end(), [this](auto key) { return present(key); });
}

Result<bool> KvTable::wait(ConnectionId connection, std::span<const std::string_view> keys) {
  cancel_wait(connection);
  if (check(keys)) return true;
  std::size_t cost = 0;
  for (const std::string_view key : keys)
    if (!present(key)) cost += kWaitCost + key.size();
  if (!budget_.take(cost)) return no_memory(keys.front(), cost);
  Wait& waiting = begin_wait(connection, cost);
  for (const std::string_view key : keys)
    if (!present(key)) enroll(waiting, key);
  return false;
}

Result<bool> KvTable::barrier(ConnectionId connection, std::string_view key,
                              std::int64_t world_size, Released& released) {
  const auto held = number_at(key);
  if (!held) return held.error();
  const std::int64_t arrived = wrapping_sum(*held, 1);
  const bool last = arrived >= world_size;
  // Taken before the count is stored: an arrival is counted and waits, or neither.
  const std::size_t cost = last ? 0 : kWaitCost + key.size();
  if (!budget_.take(cost)) return no_memory(key, cost);
  if (auto stored = store_number(key, arrived); !stored) {
    budget_.give_back(cost);
    return stored.error();
  }
  cancel_wait(connection);
  if (last) {
    pay_everyone(key, released);
  } else {
    enroll(begin_wait(connection, cost), key);
  }
  return last;
}

// REQUIRES: `cost` has been taken from the budget; the connection does not wait.
KvTable::Wait& KvTable::begin_wait(ConnectionId connection, std::size_t cost) {
  charged_ += cost;
  Wait& waiting = waits_[connection];
  waiting.connection = connection;
  waiting.charged = cost;
  return waiting;
}

void KvTable::enroll(Wait& waiting, std::string_view key) {
  auto found = waiters_.find(key);
  if (found == waiters_.end()) found = waiters_.emplace(key, Waiters{}).first;
  Waiters& waiters = found->second;
  waiters.push_back({&waiting, waiting.registrations.size()});
  waiting.registrations.push_back({&*found, std::prev(waiters.end())});
  ++waiting.missing;
}

void KvTable::cancel_wait(ConnectionId connection) {
  const auto found = waits_.find(connection);
  if (found != waits_.end()) end_wait(found->second);
}

void KvTable::end_wait(Wait& waiting) {
  for (const Registration& registration : waiting.registrations) {
    if (registration.waiters == nullptr) continue;
    Waiters& waiters = registration.waiters->second;
    waiters.erase(registration.entry);
    if (waiters.empty()) waiters_.erase(waiters_.find(registration.waiters->first));
  }
  budget_.give_back(waiting.charged);
  charged_ -= waiting.charged;
  const ConnectionId connection = waiting.connection;
  waits_.erase(connection);
}

// One key of a wait was written; the caller takes the entry off its list.
bool KvTable::pay(const Entry& entry, Released& released) {
  Wait& waiting = *entry.wait;
  waiting.registrations[entry.index].waiters = nullptr;
  if (--waiting.missing > 0) return false;
  released.push_back(waiting.connection);
  end_wait(waiting);
  return true;
}

void KvTable::pay_everyone(std::string_view key, Released& released) {
  if (waiters_.empty()) return;
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  const Waiters waiters = std::move(found->second);
  waiters_.erase(found);
  for (const Entry& entry : waiters) pay(entry, released);
}

// One item is for one connection.  Those passed on the way wait for other keys too; for them the
// queue counts as seen.
void KvTable::pay_until_one_is_released(std::string_view key, Released& released) {
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  Waiters& waiters = found->second;
  for (bool done = false; !done && !waiters.empty();) {
    const Entry entry = waiters.front();
    waiters.pop_front();
    done = pay(entry, released);
  }
  if (waiters.empty()) waiters_.erase(found);
}

Result<void> KvTable::push(std::string_view queue, std::string_view value, Released& released) {
  const auto found = queues_.find(queue);
  const bool fresh = found == queues_.end();
  const std::size_t cost = kItemCost + value.size() + (fresh ? kQueueCost + queue.size() : 0);
  if (!budget_.take(cost)) return no_memory(queue, cost);
  charged_ += cost;
  auto& items = fresh ? queues_.try_emplace(std::string(queue)).first->second : found->second;
  items.emplace_back(value);
  pay_until_one_is_released(queue, released);
  return {};
}

std::optional<std::string> KvTable::pop(std::string_view queue) {
  const auto found = queues_.find(queue);
  if (found == queues_.end()) return std::nullopt;
  std::string item = std::move(found->second.front());
  found->second.pop_front();
  std::size_t cost = kItemCost + item.size();
  if (found->second.empty()) {
    cost += kQueueCost + queue.size();
    queues_.erase(found);
  }
  budget_.give_back(cost);
  charged_ -= cost;
  return item;
}

std::size_t KvTable::queue_size(std::string_view queue) const {
  const auto found = queues_.find(queue);
  return found == queues_.end() ? 0 : found->second.size();
}

std::string KvTable::broken_invariant() const {
  std::size_t cost = 0;
  for (const auto& [key, value] : values_) cost += kKeyCost + key.size() + value.size();
  for (const auto& [queue, items] : queues_) {
    if (items.empty()) return "no queue is empty";
    cost += kQueueCost + queue.size();
    for (const auto& item : items) cost += kItemCost + item.size();
  }
  std::size_t entries = 0;
  for (const auto& [key, waiters] : waiters_) {
    if (waiters.empty()) return "no list of waiters is empty";
    entries += waiters.size();
    for (const Entry& entry : waiters)
      if (&entry.wait->registrations.at(entry.index).waiters->second != &waiters)
        return "an entry and its registration name the same list";
  }
  std::size_t missing = 0;
  for (const auto& [connection, waiting] : waits_) {
    if (waiting.connection != connection) return "a wait knows whose it is";
    if (waiting.missing == 0) return "a wait for nothing is over";
    missing += waiting.missing;
    cost += waiting.charged;
  }
  if (entries != missing) return "a key that is missed has an entry, and no other has";
  if (cost != charged_) return "every byte is charged once";
  return {};
}

}  // namespace distrun::rendezvous
