// Listener: a TCP port and its accept loop, for whatever protocol is served there.
//
//   accepting --no descriptors--> pausing (100 ms) --> accepting
//
// Connections come to whoever serve()s; until somebody does, they wait in the kernel's queue.  So a
// port that is promised to others can be opened first and change hands later without ever refusing
// a connection.
#pragma once

#include "runtime/base/result.h"

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace distrun::rendezvous {

// The concrete executor: tcp::socket's type-erased one costs a virtual call per operation.
using Socket =
    boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::io_context::executor_type>;

std::string endpoint_text(const boost::asio::ip::tcp::endpoint& endpoint);  // "[::1]:29400"

class Listener {
 public:
  // Not blocking, close-on-exec, without delay for small writes, and watched for dead peers.
  using Admit = std::function<void(Socket socket, const boost::asio::ip::tcp::endpoint& peer)>;

  // `port` 0: any free one.  The error names the address, the port and what to do.
  // REQUIRES: `io` outlives the listener.
  static Result<std::unique_ptr<Listener>> open(boost::asio::io_context& io,
                                                const std::string& address, std::uint16_t port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // `what`, for the log: "store" in "cannot take store connections".  Replaces who served before.
  void serve(std::string what, Admit admit);
  void stop_serving();
  // Idempotent.  Nobody is admitted any more.
  void close();

  const boost::asio::ip::tcp::endpoint& endpoint() const;
  std::uint16_t port() const { return endpoint().port(); }

 private:
  class Loop;
  explicit Listener(std::shared_ptr<Loop> loop);
  std::shared_ptr<Loop> loop_;
};

}  // namespace distrun::rendezvous
