// StoreSession: one connection to the store.  Bytes in, requests through the service, answers out.
//
//   reading --answers pile up--> draining --written--> reading
//      \------- peer gone, bad bytes, over a limit -------/---> closed
//
// All that one read brought is answered with one write, tried at once and only left to the event
// loop when the socket is full.  A peer that does not read its answers is not read from either, so
// that it holds up nobody and costs a bounded amount of memory.
#pragma once

#include "rendezvous/core/kv_table.h"
#include "rendezvous/core/memory_budget.h"
#include "rendezvous/server/listener.h"
#include "rendezvous/server/store_service.h"
#include "runtime/base/result.h"
#include "runtime/wire/byte_buffer.h"
#include "runtime/wire/tcpstore_request_decoder.h"

#include <boost/system/error_code.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace distrun::rendezvous {

class StoreSession;

// What the sessions of one server share.
struct StoreSessions {
  StoreSessions(std::size_t total_bytes, std::size_t connection_bytes_)
      : budget(total_bytes), service(budget), connection_bytes(connection_bytes_) {}
  // `first`: bytes that have been read from the socket already.
  void begin(Socket socket, std::string peer, std::string_view first = {});
  // Owed before this is destroyed.
  void close_all();

  MemoryBudget budget;
  StoreService service;
  std::size_t connection_bytes;  // limit of a request, and of the answers not yet sent
  std::uint64_t last_id = 0;
  std::unordered_map<ConnectionId, std::shared_ptr<StoreSession>> open;
  Released released;                                  // scratch: empty between requests
  std::vector<std::shared_ptr<StoreSession>> unsent;  // scratch: empty between turns
};

class StoreSession : public std::enable_shared_from_this<StoreSession> {
 public:
  // REQUIRES: `sessions` outlives the session's registration in sessions.open, and close() is
  // called before it is gone.
  StoreSession(Socket socket, std::string peer, ConnectionId id, StoreSessions& sessions);

  void start(std::string_view first);
  // Idempotent.  Waits are dropped, sessions.open forgets it.
  void close();

 private:
  void read();
  void on_read(const boost::system::error_code& failure, std::size_t n);
  void serve();
  Result<bool> answer_requests();
  Result<void> execute(const wire::tcpstore::Request& request);
  void release(ConnectionId connection);
  void flush();
  void flush_released();
  void on_writable(const boost::system::error_code& failure);
  bool account();
  void refuse(const Error& error);

  Socket socket_;
  std::string peer_;
  ConnectionId id_;
  StoreSessions& sessions_;
  wire::tcpstore::RequestDecoder decoder_;
  wire::ByteBuffer outbox_;
  std::size_t charged_ = 0;
  bool awaiting_writable_ = false;
  bool draining_ = false;  // not reading until the outbox is nearly empty
  bool in_unsent_ = false;
  bool closed_ = false;
};

}  // namespace distrun::rendezvous
