// StoreService: what each request of the TCPStore protocol means to a KvTable, and its answer.
//
// The last place that knows the protocol and the first that knows the table; still no socket.
#pragma once

#include "rendezvous/core/kv_table.h"
#include "rendezvous/core/memory_budget.h"
#include "runtime/base/result.h"
#include "runtime/wire/byte_buffer.h"
#include "runtime/wire/tcpstore.h"

namespace distrun::rendezvous {

class StoreService {
 public:
  explicit StoreService(MemoryBudget& budget) : table_(budget) {}

  // Carries the request out, appends its answer to `out` and the connections that it released to
  // `released`; those are owed put_released().  After an error the connection is to be closed.
  Result<void> handle(ConnectionId connection, const wire::tcpstore::Request& request,
                      wire::ByteBuffer& out, Released& released);

  static void put_released(wire::ByteBuffer& out);

  void disconnected(ConnectionId connection) { table_.cancel_wait(connection); }

 private:
  Result<void> answer(ConnectionId connection, const wire::tcpstore::Request& request,
                      wire::ByteBuffer& out, Released& released);

  KvTable table_;
};

}  // namespace distrun::rendezvous
