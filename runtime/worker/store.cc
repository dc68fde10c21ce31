// What all stores share: timeouts, and the operations that can be made up from others.
#include "runtime/worker/deadline.h"
#include "runtime/worker/stored_number.h"
#include <distrun/store.h>

#include <cerrno>
#include <cstdlib>

namespace distrun {

void require_not_negative(Timeout timeout, const char* what) {
  if (timeout < Timeout::zero())
    throw DistArgumentError(std::string(what) +
                            ": a negative timeout: " + std::to_string(timeout.count()) + " ms");
}

TimePoint deadline_after(Timeout timeout, const char* what) {
  require_not_negative(timeout, what);
  const TimePoint now = Clock::now();
  if (timeout >= std::chrono::duration_cast<Timeout>(TimePoint::max() - now))
    return TimePoint::max();
  return now + timeout;
}

std::string to_string(Timeout timeout) {
  return timeout == kNoTimeout ? "ever" : std::to_string(timeout.count()) + " ms";
}

std::optional<std::int64_t> stored_number(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || errno == ERANGE) return std::nullopt;
  return value;
}

std::int64_t add_to_stored(const std::string& key, const std::string& text, std::int64_t delta) {
  const auto old = text.empty() ? std::optional<std::int64_t>(0) : stored_number(text);
  if (!old)
    throw DistStoreError("add: the value of key \"" + key + "\" is not a number: \"" +
                         text.substr(0, 40) + "\"");
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(*old) +
                                   static_cast<std::uint64_t>(delta));
}

Store::Store(Timeout timeout) {
  require_not_negative(timeout, "store");
  timeout_ms_ = timeout.count();
}

void Store::set_timeout(Timeout timeout) {
  require_not_negative(timeout, "set_timeout");
  timeout_ms_ = timeout.count();
}

std::vector<std::string> Store::list_keys() {
  throw DistUnsupportedError("list_keys: " + description() + " cannot list its keys");
}

// With only compare_set to go by, two appends of the same bytes to the same value at the same
// moment look like one; stores that can do better override this.
void Store::append(const std::string& key, std::string_view value) {
  const TimePoint deadline = deadline_after(timeout(), "append");
  std::string expected = check({key}) ? get(key) : "";
  for (;;) {
    const std::string desired = expected + std::string(value);
    std::string now = compare_set(key, expected, desired);
    if (now == desired) return;
    if (Clock::now() >= deadline)
      throw DistTimeoutError("append: " + description() + ": key \"" + key +
                             "\" kept changing for " + to_string(timeout()));
    // The expected value came back: the key was deleted meanwhile.
    expected = now == expected ? "" : std::move(now);
  }
}

std::vector<std::string> Store::multi_get(const std::vector<std::string>& keys) {
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) values.push_back(get(key));
  return values;
}

void Store::multi_set(const KeyValues& values) {
  for (const auto& [key, value] : values) set(key, value);
}

void Store::queue_push(const std::string& key, std::string_view) {
  throw DistUnsupportedError("queue_push \"" + key + "\": " + description() + " has no queues");
}
std::string Store::queue_pop(const std::string& key) {
  throw DistUnsupportedError("queue_pop \"" + key + "\": " + description() + " has no queues");
}
std::string Store::queue_try_pop(const std::string& key) {
  throw DistUnsupportedError("queue_try_pop \"" + key + "\": " + description() + " has no queues");
}
std::int64_t Store::queue_len(const std::string& key) {
  throw DistUnsupportedError("queue_len \"" + key + "\": " + description() + " has no queues");
}

// The two keys that PyTorch's stores use, so that its ranks and ours can meet.
void Store::barrier(const std::string& key, int world_size, Timeout timeout) {
  if (world_size < 1)
    throw DistArgumentError("barrier \"" + key +
                            "\": a world size below 1: " + std::to_string(world_size));
  const std::string last = key + "/last_member";
  const std::int64_t arrived = add(key + "/num_members", 1);
  if (arrived == world_size) set(last, "1");
  try {
    wait({last}, timeout);
  } catch (const DistTimeoutError&) {
    throw DistTimeoutError("barrier timeout after " + to_string(timeout) + ", key: " + key + " (" +
                           std::to_string(add(key + "/num_members", 0)) + " of " +
                           std::to_string(world_size) + " arrived at " + description() + ")");
  }
}

}  // namespace distrun
