// Stores: keys and values shared by the ranks of a job, the same ones that PyTorch has.
//
//   TCPStore     client of a store server: distrun's, or PyTorch's from 1.13 to the newest
//   FileStore    one file that every rank opens; same format and locking as PyTorch's
//   HashStore    inside one process, for threads and tests
//   PrefixStore  any of them, with "prefix/" before every key
//
//   distrun::TCPStore store({.host = "127.0.0.1", .port = 29500});
//   store.set("rank0/address", "10.0.0.1:4000");
//   std::string address = store.get("rank0/address");        // waits until it is there
//
// Values are bytes.  Every call that waits has a deadline and throws DistTimeoutError past it; a
// signal does not end a wait.  An object may be used by several threads, one call at a time: a
// thread that waits holds the others up, so give each its own clone().
#pragma once

#include <distrun/error.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distrun {

using Timeout = std::chrono::milliseconds;

// Zero means "do not wait"; this means "wait for ever".  A negative timeout is refused.
inline constexpr Timeout kNoTimeout = Timeout::max();
inline constexpr Timeout kDefaultStoreTimeout = std::chrono::minutes(5);

class Store {
 public:
  using KeyValues = std::vector<std::pair<std::string, std::string>>;

  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // "TCPStore 127.0.0.1:29500", as errors name it.
  virtual std::string description() const = 0;

  virtual void set(const std::string& key, std::string_view value) = 0;
  // Waits for the key, up to timeout().
  virtual std::string get(const std::string& key) = 0;
  // Adds to the decimal number stored there (none: 0) and returns the sum.
  virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;
  // True if all of them exist.  Never waits.
  virtual bool check(const std::vector<std::string>& keys) = 0;
  // Stores `desired` if the value is `expected`, or if there is none and `expected` is empty.
  // Returns what is stored then; for a missing key and a non-empty `expected`: `expected`.
  virtual std::string compare_set(const std::string& key, std::string_view expected,
                                  std::string_view desired) = 0;
  // True if it was there (FileStore: always true, as PyTorch's).
  virtual bool delete_key(const std::string& key) = 0;
  // Returns once all of them exist.
  virtual void wait(const std::vector<std::string>& keys, Timeout timeout) = 0;
  void wait(const std::vector<std::string>& keys) { wait(keys, timeout()); }
  // Also counts keys that the store keeps for itself (TCPStore: "init/"; FileStore: "refcount/").
  virtual std::int64_t num_keys() = 0;
  // Without the store's own keys.  In no particular order.
  virtual std::vector<std::string> list_keys();

  // True if the next three are one step each, and not made up from the calls above.
  virtual bool has_extended_api() const { return false; }
  virtual void append(const std::string& key, std::string_view value);
  virtual std::vector<std::string> multi_get(const std::vector<std::string>& keys);
  virtual void multi_set(const KeyValues& values);

  // First in, first out queues; their names are apart from the keys of values, except that check()
  // and wait() see a queue that holds something.  FileStore and old servers have none.
  virtual void queue_push(const std::string& key, std::string_view value);
  // Waits for an item, up to timeout().
  virtual std::string queue_pop(const std::string& key);
  // Throws QueueEmptyError instead of waiting.
  virtual std::string queue_try_pop(const std::string& key);
  virtual std::int64_t queue_len(const std::string& key);

  // Returns once `world_size` callers have arrived at `key`.  A key serves once.
  virtual void barrier(const std::string& key, int world_size, Timeout timeout);
  void barrier(const std::string& key, int world_size) { barrier(key, world_size, timeout()); }

  // Another object on the same data, with a connection of its own.
  virtual std::shared_ptr<Store> clone() = 0;

  virtual void set_timeout(Timeout timeout);
  virtual Timeout timeout() const { return Timeout(timeout_ms_.load()); }

 protected:
  explicit Store(Timeout timeout = kDefaultStoreTimeout);

 private:
  std::atomic<Timeout::rep> timeout_ms_;
};

// In one process.  Differs from PyTorch's in that add() wakes waiters, and in the meaning of a zero
// timeout.
class HashStore final : public Store {
 public:
  explicit HashStore(Timeout timeout = kDefaultStoreTimeout);
  ~HashStore() override;

  using Store::barrier;
  using Store::wait;
  std::string description() const override;
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  bool check(const std::vector<std::string>& keys) override;
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override;
  bool delete_key(const std::string& key) override;
  void wait(const std::vector<std::string>& keys, Timeout timeout) override;
  std::int64_t num_keys() override;
  std::vector<std::string> list_keys() override;
  bool has_extended_api() const override { return true; }
  void append(const std::string& key, std::string_view value) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys) override;
  void multi_set(const KeyValues& values) override;
  void queue_push(const std::string& key, std::string_view value) override;
  std::string queue_pop(const std::string& key) override;
  std::string queue_try_pop(const std::string& key) override;
  std::int64_t queue_len(const std::string& key) override;
  std::shared_ptr<Store> clone() override;

 private:
  struct Table;
  HashStore(std::shared_ptr<Table> table, Timeout timeout);
  std::shared_ptr<Table> table_;
};

// A file that every rank can open and lock (flock), local or on a file system that has flock.
// Waiting polls every 10 ms.  The end of a file whose writer died in the middle of a record is
// ignored by readers and cut off by the next writer; a file of another kind is refused.
// The last of `world_size` objects to go removes the file; a negative world_size keeps it.
class FileStore final : public Store {
 public:
  explicit FileStore(std::string path, int world_size = -1, Timeout timeout = kDefaultStoreTimeout);
  ~FileStore() override;

  using Store::barrier;
  using Store::wait;
  std::string description() const override;
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  bool check(const std::vector<std::string>& keys) override;
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override;
  bool delete_key(const std::string& key) override;
  void wait(const std::vector<std::string>& keys, Timeout timeout) override;
  std::int64_t num_keys() override;
  std::vector<std::string> list_keys() override;
  void append(const std::string& key, std::string_view value) override;
  std::shared_ptr<Store> clone() override;
  const std::string& path() const;

 private:
  class File;
  FileStore(std::shared_ptr<File> file, Timeout timeout);
  std::shared_ptr<File> file_;  // clones share it
};

// PrefixStore("a", PrefixStore("b", s)) writes "b/a/key".  num_keys() and the timeout are the
// underlying store's.
class PrefixStore final : public Store {
 public:
  // A null store is refused.
  PrefixStore(std::string prefix, std::shared_ptr<Store> store);

  using Store::barrier;
  using Store::wait;
  std::string description() const override;
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  bool check(const std::vector<std::string>& keys) override;
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override;
  bool delete_key(const std::string& key) override;
  void wait(const std::vector<std::string>& keys, Timeout timeout) override;
  std::int64_t num_keys() override;
  std::vector<std::string> list_keys() override;
  bool has_extended_api() const override;
  void append(const std::string& key, std::string_view value) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys) override;
  void multi_set(const KeyValues& values) override;
  void queue_push(const std::string& key, std::string_view value) override;
  std::string queue_pop(const std::string& key) override;
  std::string queue_try_pop(const std::string& key) override;
  std::int64_t queue_len(const std::string& key) override;
  std::shared_ptr<Store> clone() override;
  void set_timeout(Timeout timeout) override;
  Timeout timeout() const override;

  const std::string& prefix() const { return prefix_; }
  std::shared_ptr<Store> underlying_store() const { return store_; }
  // Through all prefixes, to the store that holds the data.
  std::shared_ptr<Store> underlying_non_prefix_store() const;

 private:
  std::string prefixed(const std::string& key) const { return prefix_ + "/" + key; }
  std::vector<std::string> prefixed(const std::vector<std::string>& keys) const;

  const std::string prefix_;
  const std::shared_ptr<Store> store_;
};

// Which requests the server knows.  `automatic` finds out, at the cost of a connection or two on
// servers older than PyTorch 2.5.
enum class StoreProtocol {
  automatic,
  torch_1_13,  // no handshake; no append, multi_get, multi_set, queues, list_keys
  torch_2_4,   // handshake; append, multi_get, multi_set
  torch_2_5,   // + the server answers a ping
  torch_2_8,   // + queues
  newest,      // + list_keys, barrier
};

struct TCPStoreOptions {
  std::string host;  // an address, or a name (only then is anything resolved)
  std::uint16_t port = 0;
  Timeout timeout = kDefaultStoreTimeout;  // of connecting, and of calls that wait
  StoreProtocol protocol = StoreProtocol::automatic;
  // If set, this client is counted by a PyTorch server that waits for its workers.
  std::optional<int> world_size = std::nullopt;
};

// A server that is not there yet is tried again, with growing pauses, until the timeout.  A lost
// connection is not made again, since the data may be gone with the server: every later call
// throws DistNetworkError.  set, append, multi_set and queue_push are not confirmed by the
// protocol: a loss shows at the next call.
class TCPStore final : public Store {
 public:
  explicit TCPStore(const TCPStoreOptions& options);
  ~TCPStore() override;

  using Store::barrier;
  using Store::wait;
  std::string description() const override;
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  bool check(const std::vector<std::string>& keys) override;
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override;
  bool delete_key(const std::string& key) override;
  void wait(const std::vector<std::string>& keys, Timeout timeout) override;
  std::int64_t num_keys() override;
  std::vector<std::string> list_keys() override;
  bool has_extended_api() const override;
  void append(const std::string& key, std::string_view value) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys) override;
  void multi_set(const KeyValues& values) override;
  void queue_push(const std::string& key, std::string_view value) override;
  std::string queue_pop(const std::string& key) override;
  std::string queue_try_pop(const std::string& key) override;
  std::int64_t queue_len(const std::string& key) override;
  void barrier(const std::string& key, int world_size, Timeout timeout) override;
  std::shared_ptr<Store> clone() override;

  const std::string& host() const { return options_.host; }
  std::uint16_t port() const { return options_.port; }
  // What was agreed on: never `automatic`.
  StoreProtocol protocol() const;
  // The address of this machine from which the server was reached: the one to give to others.
  std::string local_address() const;

 private:
  class Client;
  const TCPStoreOptions options_;
  std::unique_ptr<Client> client_;
};

}  // namespace distrun
