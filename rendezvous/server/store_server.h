// StoreServer: serves PyTorch's TCPStore protocol, every generation of it, on one address and port.
//
//   auto server = StoreServer::listen(io, {.address = "127.0.0.1", .port = 0});
//   if (!server) return server.error();
//   … (*server)->port() is what workers are told …
//   io.run();
//
// One thread, the io_context's.  No client can block another: not a slow one, a silent one, or one
// that sends half a request.  A client that breaks the protocol or a limit loses its connection, is
// logged once with its address, and harms nobody else.
#pragma once

#include "runtime/base/result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace boost::asio {
class io_context;
}

namespace distrun::rendezvous {

struct StoreServerOptions {
  std::string address = "127.0.0.1";  // IPv4 or IPv6; names are not looked up
  std::uint16_t port = 0;             // 0: any free one
  // Of one request while it comes in and, apart from that, of answers that are not read.
  std::size_t max_connection_bytes = 64UL * 1024 * 1024;
  // Of all keys, values, waits and buffers together.
  std::size_t max_total_bytes = 4UL * 1024 * 1024 * 1024;
  int max_connections = 65'536;
};

class StoreServer {
 public:
  // REQUIRES: `io` outlives the server.  The error names the address, the port and what to do.
  static Result<std::unique_ptr<StoreServer>> listen(boost::asio::io_context& io,
                                                     const StoreServerOptions& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::uint16_t port() const;
  std::string endpoint() const;  // "127.0.0.1:29400", "[::1]:29400"
  // Closes the port and every connection.  Idempotent.
  void close();

 private:
  class Port;
  explicit StoreServer(std::unique_ptr<Port> port);
  std::unique_ptr<Port> port_;
};

}  // namespace distrun::rendezvous
