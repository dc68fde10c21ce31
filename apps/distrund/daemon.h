// Daemon: distrund's parts, put together.  A coordinator on a port, its journal, its events.
#pragma once

#include "apps/distrund/options.h"
#include "rendezvous/server/coordinator_server.h"
#include "rendezvous/server/event_file.h"
#include "rendezvous/server/journal.h"
#include "runtime/base/result.h"

#include <boost/asio/io_context.hpp>

#include <memory>

namespace distrun::daemon {

class Daemon {
 public:
  // Listens, with all jobs of the journal.  REQUIRES: `io` outlives it.
  static Result<std::unique_ptr<Daemon>> start(boost::asio::io_context& io, const Options& options);

  std::string endpoint() const { return server_->endpoint(); }
  void close() { server_->close(); }

 private:
  Daemon() = default;
  rendezvous::CoordinatorServerOptions server_options(const Options& options);

  std::unique_ptr<rendezvous::Journal> journal_;           // null: nothing is kept
  std::unique_ptr<rendezvous::EventFile> events_;          // null: nothing is written
  std::unique_ptr<rendezvous::CoordinatorServer> server_;  // uses both
};

}  // namespace distrun::daemon
