// CoordinatorServer: a rendezvous Coordinator on one TCP port, for three kinds of client, told
// apart by their first bytes:
//
//   agents (protocol/frame.h)      join jobs
//   TCPStore clients               share one store, as with StoreServer: torchrun's own c10d
//                                  rendezvous, or a PyTorch program, may use it
//   HTTP                           GET /status (JSON), GET /metrics (Prometheus)
//
//   auto server = CoordinatorServer::listen(io, {.port = 29400});
//   if (!server) return server.error();
//   io.run();
//
// One thread, the io_context's.  A client that says nothing within ten seconds, breaks its protocol
// or does not read loses its connection, is logged with its address, and harms nobody else.
#pragma once

#include "rendezvous/core/coordinator.h"
#include "rendezvous/server/listener.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace distrun::rendezvous {

struct CoordinatorServerOptions {
  std::string address = "127.0.0.1";  // IPv4 or IPv6; names are not looked up
  std::uint16_t port = 0;             // 0: any free one
  CoordinatorLimits limits{};
  Authority authority{};
  std::vector<Record> records{};  // jobs to go on with: of a journal, or of a takeover
  // Jobs whose record cannot be read, and why.  They are let alone: who would join one is told
  // that, and who has workers in one may come again.
  std::map<std::string, std::string> unreadable{};

  int max_connections = 65'536;  // of all kinds together
  // Of the store, as in StoreServerOptions.
  std::size_t max_connection_bytes = 64UL * 1024 * 1024;
  std::size_t max_total_bytes = 4UL * 1024 * 1024 * 1024;
  // From the connection to its first byte.  Long, because an old PyTorch's store client says
  // nothing until it wants something; it costs a socket, and dead peers are noticed by the kernel.
  Duration first_byte_within = std::chrono::minutes(10);
  // From there to knowing who speaks, and from there to an agent's Join.
  Duration first_words_within = std::chrono::seconds(10);

  // All may be empty.  None may destroy the server.
  std::function<void(const Happening& happening, TimePoint now)> on_happening{};
  // Durable when it returns.  After an error, which is logged, the job goes on.
  std::function<Result<void>(const Record& record)> save{};
  std::function<Result<void>(const std::string& job)> forget{};
  // Instead of `save`, for what is durable only a while later: calls `saved` then, once, in the
  // order of the calls, and not from within.  What follows the record waits for it, but for
  // `forget`, which comes in its place among the calls, and for pings, which then name the last
  // round that is durable; the core hears on meanwhile.  Whoever keeps it for good without an
  // answer must close the server.
  std::function<void(const Record& record, std::function<void()> saved)> save_async{};
  // Of what so waits.  Past that, on_overfull is called once, not to close the server from within,
  // and nothing is heard or told any more: the server is of no use.
  std::size_t max_held = 500'000;  // a round of the largest job is 65,536
  std::function<void()> on_overfull{};
  // Asked before the core hears of an event and before what waited is carried out.  False: neither
  // happens, nor is made up for later; the server is about to be closed.
  std::function<bool(TimePoint now)> may_act{};
  // Asked before what was decided is carried out.  False: the core hears on, and what it decides is
  // held as if a record before it were not durable, until CoordinatorServer::go_on().
  std::function<bool(TimePoint now)> may_tell{};
  // What the core is told, just before: on_start once, then every event.
  std::function<void(const std::vector<Record>& records, TimePoint now)> on_start{};
  std::function<void(const Event& event, TimePoint now)> on_input{};
};

class CoordinatorServer {
 public:
  // REQUIRES: `io` outlives the server.  The error names the address, the port and what to do.
  static Result<std::unique_ptr<CoordinatorServer>> listen(boost::asio::io_context& io,
                                                           CoordinatorServerOptions options);
  // On a port that is open already; address and port of the options mean nothing.
  static std::unique_ptr<CoordinatorServer> adopt(boost::asio::io_context& io,
                                                  std::unique_ptr<Listener> listener,
                                                  CoordinatorServerOptions options);
  ~CoordinatorServer();
  CoordinatorServer(const CoordinatorServer&) = delete;
  CoordinatorServer& operator=(const CoordinatorServer&) = delete;

  std::uint16_t port() const;
  std::string endpoint() const;  // "127.0.0.1:29400", "[::1]:29400"
  const Coordinator& coordinator() const;

  // may_tell has become true.  Not from within a callback.
  void go_on();
  // Closes every connection, and the port.  Idempotent.
  void close();
  // Closes every connection, and hands the open port on.  Once.
  std::unique_ptr<Listener> give_up_socket();

 private:
  class Impl;
  explicit CoordinatorServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace distrun::rendezvous
