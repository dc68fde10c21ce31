// TCPStore: PyTorch's calls in terms of requests.  A key "k" is "/k" on the wire.
#include "runtime/worker/deadline.h"
#include "runtime/worker/tcp_store_client.h"
#include <distrun/store.h>

#include <algorithm>
#include <mutex>

namespace distrun {
namespace {

using wire::tcpstore::Op;
using wire::tcpstore::Reply;
using wire::tcpstore::Request;

// The least time that a request which does not wait is given, however short the store's timeout.
constexpr Timeout kAnswerPatience = std::chrono::seconds(10);

std::vector<std::string_view> views_of(const std::vector<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

std::vector<std::string> wire_keys(const std::vector<std::string>& keys) {
  std::vector<std::string> result;
  result.reserve(keys.size());
  for (const std::string& key : keys) result.push_back("/" + key);
  return result;
}

}  // namespace

// The connection and its mutex: one request at a time.
class TCPStore::Client {
 public:
  explicit Client(const TCPStoreOptions& options)
      : connection(options.host, options.port, options.protocol,
                   deadline_after(options.timeout, "TCPStore")) {}

  std::mutex mutex;
  TcpStoreClient connection;

  Reply exchange(Timeout timeout, Op op, const std::vector<std::string_view>& args,
                 std::int64_t number = 0) {
    const std::lock_guard lock(mutex);
    return connection.exchange({.op = op, .args = args, .number = number}, limit(timeout));
  }
  static TimePoint limit(Timeout timeout) {
    return deadline_after(std::max(timeout, kAnswerPatience), "TCPStore");
  }

  // WAIT for the keys, with the mutex held.
  void wait(const std::vector<std::string_view>& keys, Timeout timeout, TimePoint deadline,
            const std::string& who) {
    if (connection.wait({.op = Op::wait, .args = keys, .number = 0}, deadline)) return;
    std::string names;
    for (const std::string_view key : keys) names.append(names.empty() ? "" : ", ").append(key);
    throw DistTimeoutError(who + ": wait timeout after " + to_string(timeout) + ", keys: " + names);
  }

  void require(Op op, Timeout timeout, const std::string& call, const std::string& who) {
    if (!connection.server_has(op, limit(timeout)))
      throw DistUnsupportedError(call + ": " + who + " is too old for it");
  }
};

TCPStore::TCPStore(const TCPStoreOptions& options)
    : Store(options.timeout), options_(options), client_(std::make_unique<Client>(options)) {
  if (!options_.world_size) return;
  if (*options_.world_size == 0) throw DistArgumentError("TCPStore: world size cannot be 0");
  const std::string_view init = "init/";  // the one key without a "/" in front
  client_->exchange(timeout(), Op::add, {init}, 1);
}

TCPStore::~TCPStore() = default;

std::string TCPStore::description() const {
  const bool v6 = options_.host.find(':') != std::string::npos;
  return "TCPStore " + (v6 ? "[" + options_.host + "]" : options_.host) + ":" +
         std::to_string(options_.port);
}

StoreProtocol TCPStore::protocol() const {
  const std::lock_guard lock(client_->mutex);
  return client_->connection.protocol();
}

std::string TCPStore::local_address() const {
  const std::lock_guard lock(client_->mutex);
  return client_->connection.local_address();
}

void TCPStore::set(const std::string& key, std::string_view value) {
  client_->exchange(timeout(), Op::set, {"/" + key, value});
}

std::string TCPStore::get(const std::string& key) {
  const Timeout limit = timeout();
  const TimePoint deadline = deadline_after(limit, "get");
  const std::string wire_key = "/" + key;
  const std::vector<std::string_view> keys{wire_key};
  const std::lock_guard lock(client_->mutex);
  client_->wait(keys, limit, deadline, description());
  return std::move(
      client_->connection.exchange({.op = Op::get, .args = keys, .number = 0}, Client::limit(limit))
          .blobs.front());
}

std::int64_t TCPStore::add(const std::string& key, std::int64_t delta) {
  return client_->exchange(timeout(), Op::add, {"/" + key}, delta).number;
}

bool TCPStore::check(const std::vector<std::string>& keys) {
  const std::vector<std::string> wire = wire_keys(keys);
  return client_->exchange(timeout(), Op::check, views_of(wire)).number == wire::tcpstore::kReady;
}

std::string TCPStore::compare_set(const std::string& key, std::string_view expected,
                                  std::string_view desired) {
  return std::move(
      client_->exchange(timeout(), Op::compare_set, {"/" + key, expected, desired}).blobs.front());
}

bool TCPStore::delete_key(const std::string& key) {
  return client_->exchange(timeout(), Op::delete_key, {"/" + key}).number == 1;
}

void TCPStore::wait(const std::vector<std::string>& keys, Timeout timeout) {
  const TimePoint deadline = deadline_after(timeout, "wait");
  const std::vector<std::string> wire = wire_keys(keys);
  const std::lock_guard lock(client_->mutex);
  client_->wait(views_of(wire), timeout, deadline, description());
}

std::int64_t TCPStore::num_keys() {
  return client_->exchange(timeout(), Op::num_keys, {}).number;
}

std::vector<std::string> TCPStore::list_keys() {
  const std::lock_guard lock(client_->mutex);
  client_->require(Op::list_keys, timeout(), "list_keys", description());
  Reply reply = client_->connection.exchange({.op = Op::list_keys, .args = {}, .number = 0},
                                             Client::limit(timeout()));
  std::vector<std::string> keys;
  for (std::string& key : reply.blobs)
    if (key.starts_with('/')) keys.push_back(key.substr(1));
  return keys;
}

bool TCPStore::has_extended_api() const {
  return protocol() != StoreProtocol::torch_1_13;
}

void TCPStore::append(const std::string& key, std::string_view value) {
  if (!has_extended_api()) return Store::append(key, value);
  client_->exchange(timeout(), Op::append, {"/" + key, value});
}

std::vector<std::string> TCPStore::multi_get(const std::vector<std::string>& keys) {
  if (!has_extended_api()) return Store::multi_get(keys);
  const Timeout limit = timeout();
  const TimePoint deadline = deadline_after(limit, "multi_get");
  const std::vector<std::string> wire = wire_keys(keys);
  const std::vector<std::string_view> views = views_of(wire);
  const std::lock_guard lock(client_->mutex);
  client_->wait(views, limit, deadline, description());
  return client_->connection
      .exchange({.op = Op::multi_get, .args = views, .number = 0}, Client::limit(limit))
      .blobs;
}

void TCPStore::multi_set(const KeyValues& values) {
  if (!has_extended_api()) return Store::multi_set(values);
  std::vector<std::string> wire;
  wire.reserve(values.size());
  for (const auto& [key, value] : values) wire.push_back("/" + key);
  std::vector<std::string_view> args;
  for (std::size_t i = 0; i < values.size(); ++i) {
    args.push_back(wire[i]);
    args.push_back(values[i].second);
  }
  client_->exchange(timeout(), Op::multi_set, args);
}

void TCPStore::queue_push(const std::string& key, std::string_view value) {
  const std::string wire_key = "/" + key;
  const std::vector<std::string_view> args{wire_key, value};
  const std::lock_guard lock(client_->mutex);
  client_->require(Op::queue_push, timeout(), "queue_push \"" + key + "\"", description());
  client_->connection.exchange({.op = Op::queue_push, .args = args, .number = 0},
                               Client::limit(timeout()));
}

std::string TCPStore::queue_pop(const std::string& key) {
  const Timeout limit = timeout();
  const TimePoint deadline = deadline_after(limit, "queue_pop");
  const std::string wire_key = "/" + key;
  const std::vector<std::string_view> args{wire_key};
  const std::lock_guard lock(client_->mutex);
  client_->require(Op::queue_pop, limit, "queue_pop \"" + key + "\"", description());
  // Another client may take the item between our wait and our pop; then we wait again.
  for (;;) {
    client_->wait(args, limit, deadline, description());
    Reply reply = client_->connection.exchange({.op = Op::queue_pop, .args = args, .number = 0},
                                               Client::limit(limit));
    if (!reply.blobs.empty()) return std::move(reply.blobs.front());
    if (Clock::now() >= deadline)
      throw DistTimeoutError(description() + ": wait timeout after " + to_string(limit) +
                             ", keys: " + wire_key);
  }
}

std::string TCPStore::queue_try_pop(const std::string& key) {
  const std::string wire_key = "/" + key;
  const std::vector<std::string_view> args{wire_key};
  const std::lock_guard lock(client_->mutex);
  client_->require(Op::queue_pop, timeout(), "queue_try_pop \"" + key + "\"", description());
  Reply reply = client_->connection.exchange({.op = Op::queue_pop, .args = args, .number = 0},
                                             Client::limit(timeout()));
  if (reply.blobs.empty())
    throw QueueEmptyError("queue_try_pop: " + description() + ": queue \"" + key + "\" is empty");
  return std::move(reply.blobs.front());
}

std::int64_t TCPStore::queue_len(const std::string& key) {
  const std::string wire_key = "/" + key;
  const std::vector<std::string_view> args{wire_key};
  const std::lock_guard lock(client_->mutex);
  client_->require(Op::queue_len, timeout(), "queue_len \"" + key + "\"", description());
  return client_->connection
      .exchange({.op = Op::queue_len, .args = args, .number = 0}, Client::limit(timeout()))
      .number;
}

void TCPStore::barrier(const std::string& key, int world_size, Timeout timeout) {
  const TimePoint deadline = deadline_after(timeout, "barrier");
  if (world_size < 1)
    throw DistArgumentError("barrier \"" + key +
                            "\": a world size below 1: " + std::to_string(world_size));
  {
    const std::string wire_key = "/" + key;
    const std::vector<std::string_view> args{wire_key};
    const std::lock_guard lock(client_->mutex);
    if (client_->connection.server_has(Op::barrier, Client::limit(this->timeout()))) {
      if (client_->connection.wait({.op = Op::barrier, .args = args, .number = world_size},
                                   deadline))
        return;
      throw DistTimeoutError(description() + ": barrier timeout after " + to_string(timeout) +
                             ", key: " + key);
    }
  }
  Store::barrier(key, world_size, timeout);
}

std::shared_ptr<Store> TCPStore::clone() {
  TCPStoreOptions options = options_;
  options.world_size.reset();
  options.timeout = timeout();
  // What an old server speaks need not be found out again.
  if (const StoreProtocol spoken = protocol(); spoken < StoreProtocol::torch_2_5)
    options.protocol = spoken;
  return std::make_shared<TCPStore>(options);
}

}  // namespace distrun
