// KvTable: the keys, values and queues of a store, and who waits for which of them.
//
// Pure: no sockets, no clock, no log; it never learns which protocol asked.  A connection is a
// number. A write says which connections' waits it ended, in the order in which they are to be
// told; the caller tells them.  A wait has no deadline here: whoever waits knows how long it wants
// to, and says cancel_wait.  Not thread-safe; one owner.
//
// Rules that a reader may not expect, kept because clients rely on them:
//  * A wait is for keys to be *written*, counted down: a key that was there, or came, is not looked
//  at
//    again, so deleting it does not undo it.
//  * compare_set on a missing key with a non-empty `expected` stores nothing and answers
//  `expected`.
//  * A key that a barrier counts in is an ordinary key.
// A connection has one wait: a new one, or a barrier, replaces it without an answer.  Clients of
// PyTorch 1.13 give a wait up without saying so and then wait for something else.
#pragma once

#include "rendezvous/core/memory_budget.h"
#include "runtime/base/result.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace distrun::rendezvous {

enum class ConnectionId : std::uint64_t {};

// Appended to by every write: connections whose wait is over.
using Released = std::vector<ConnectionId>;

class KvTable {
 public:
  // REQUIRES: `budget` outlives the table.
  explicit KvTable(MemoryBudget& budget, std::size_t value_bytes_max = 8UL * 1024 * 1024);
  ~KvTable();
  KvTable(const KvTable&) = delete;
  KvTable& operator=(const KvTable&) = delete;

  // Writes.  Every error leaves the table as it was and names the key.
  Result<void> set(std::string_view key, std::string_view value, Released& released);
  Result<void> append(std::string_view key, std::string_view value, Released& released);
  // The value now held, or `expected` (see above); good until the next write.
  Result<std::string_view> compare_set(std::string_view key, std::string_view expected,
                                       std::string_view desired, Released& released);
  // The sum.  Missing is 0; text is read as strtoll would, and wraps around; no number is an error.
  Result<std::int64_t> add(std::string_view key, std::int64_t delta, Released& released);
  // Whether there was such a key.
  bool erase(std::string_view key);

  // Reads.  A missing value is empty.
  std::string_view get(std::string_view key) const;
  // Whether each is a key or a queue that is not empty.
  bool check(std::span<const std::string_view> keys) const;
  std::size_t num_keys() const { return values_.size(); }
  template <class Visit>
  void for_each_key(Visit visit) const {
    for (const auto& [key, value] : values_) visit(std::string_view(key));
  }

  // True: all are there.  False: `connection` is released when the last missing one is written.
  Result<bool> wait(ConnectionId connection, std::span<const std::string_view> keys);
  // True: the caller is the last of `world_size` (or late); all who wait on the key are released.
  Result<bool> barrier(ConnectionId connection, std::string_view key, std::int64_t world_size,
                       Released& released);
  // Also for a connection that is gone.
  void cancel_wait(ConnectionId connection);

  // Queues have names of their own, beside the keys.  A push releases one connection.
  Result<void> push(std::string_view queue, std::string_view value, Released& released);
  std::optional<std::string> pop(std::string_view queue);
  std::size_t queue_size(std::string_view queue) const;

  // Empty, or the promise of this class to itself that is broken.  For tests; slow.
  std::string broken_invariant() const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  template <class T>
  using Named = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

  struct Wait;
  struct Entry {  // one key that one connection waits for; a key named twice has two
    Wait* wait;
    std::size_t index;  // in wait->registrations
  };
  using Waiters = std::list<Entry>;  // in order of registration; never empty
  struct Registration {
    Named<Waiters>::pointer waiters;  // null: the key was written
    Waiters::iterator entry;
  };
  struct Wait {
    ConnectionId connection;
    std::size_t missing = 0;
    std::size_t charged = 0;
    std::vector<Registration> registrations;
  };

  bool present(std::string_view key) const;
  Result<void> store(std::string_view key, std::string_view value);
  Result<std::int64_t> number_at(std::string_view key) const;
  Result<void> store_number(std::string_view key, std::int64_t number);
  Wait& begin_wait(ConnectionId connection, std::size_t cost);
  void enroll(Wait& waiting, std::string_view key);
  void end_wait(Wait& waiting);
  bool pay(const Entry& entry, Released& released);
  void pay_everyone(std::string_view key, Released& released);
  void pay_until_one_is_released(std::string_view key, Released& released);
  Error no_memory(std::string_view key, std::size_t bytes) const;

  MemoryBudget& budget_;
  std::size_t value_bytes_max_;
  std::size_t charged_ = 0;  // of the budget, waits included
  Named<std::string> values_;
  Named<std::deque<std::string>> queues_;  // none is empty
  Named<Waiters> waiters_;
  std::unordered_map<ConnectionId, Wait> waits_;
};

}  // namespace distrun::rendezvous
