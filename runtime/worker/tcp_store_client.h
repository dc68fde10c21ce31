// One connection to a store server: agrees on the protocol, then one request at a time.
//
//   connecting  with pauses and new tries, until the deadline
//   agreed      exchange() sends a request and takes its answer
//   stale       an answer did not come in time and may come later: replaced at the next call
//   lost        the server is gone: every later call throws, with the first reason
//
// The protocol has no version field.  `automatic` says hello as the newest client does and falls
// back when the server hangs up: a ping (2.5 and later), VALIDATE alone (2.2 to 2.4), nothing
// (1.13). What came after 2.5 is found out when it is first needed, on a connection to throw away.
// Not thread-safe.
#pragma once

#include "runtime/base/result.h"
#include "runtime/base/time.h"
#include "runtime/wire/tcpstore.h"
#include "runtime/wire/tcpstore_reply_decoder.h"
#include "runtime/worker/tcp_connection.h"
#include <distrun/store.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace distrun {

class TcpStoreClient {
 public:
  // Throws DistNetworkError if no server was found by the deadline.
  TcpStoreClient(std::string host, std::uint16_t port, StoreProtocol protocol, TimePoint deadline);

  using Request = wire::tcpstore::Request;
  using Reply = wire::tcpstore::Reply;

  // Throws DistNetworkError (lost), DistTimeoutError, DistUnsupportedError, or DistArgumentError
  // (too big for any server; nothing was sent).
  Reply exchange(const Request& request, TimePoint deadline);

  // WAIT and BARRIER: false if the deadline passed; the connection can be used on.
  bool wait(const Request& request, TimePoint deadline);

  // Whether the server knows the operation; may ask it.
  bool server_has(wire::tcpstore::Op op, TimePoint deadline);

  StoreProtocol protocol() const;
  std::string local_address() const { return local_address_; }

 private:
  using Generation = wire::tcpstore::Generation;

  // The connections one try makes: closed means "this is not what the server speaks".
  Result<TcpConnection> open(TimePoint deadline);
  Result<TcpConnection> open_as(Generation generation, TimePoint deadline) const;
  void connect_until(TimePoint deadline);
  void send(const Request& request, TimePoint deadline);
  Reply receive(const Request& request, TimePoint deadline);
  [[noreturn]] void fail(const Error& error, wire::tcpstore::Op op);
  std::string where() const;

  const std::string host_;
  const std::uint16_t port_;
  const StoreProtocol wanted_;
  TcpConnection connection_;
  Generation generation_;     // the numbers we use
  bool generation_is_known_;  // false: later operations have to be asked for
  std::map<wire::tcpstore::Op, bool> asked_;
  std::optional<std::string> lost_;
  std::string local_address_;
};

}  // namespace distrun
