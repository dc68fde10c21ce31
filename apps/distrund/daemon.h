// Daemon: distrund's parts, put together.  A coordinator on a port, its journal or etcd, its
// events.
#pragma once

#include "apps/distrund/options.h"
#include "rendezvous/etcd/replica.h"
#include "rendezvous/server/coordinator_server.h"
#include "rendezvous/server/event_file.h"
#include "rendezvous/server/journal.h"
#include "runtime/base/result.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>

namespace distrun::daemon {

class Daemon {
 public:
  // Listens, with all jobs of the journal, or as one of several on an etcd.  REQUIRES: `io`
  // outlives it.  `on_failure`: it cannot go on, has logged why, and is closed.
  static Result<std::unique_ptr<Daemon>> start(boost::asio::io_context& io, const Options& options,
                                               std::function<void()> on_failure);

  std::string endpoint() const { return replica_ ? replica_->endpoint() : server_->endpoint(); }
  void close() { replica_ ? replica_->close() : server_->close(); }

 private:
  Daemon() = default;
  rendezvous::CoordinatorServerOptions server_options(const Options& options);

  std::unique_ptr<rendezvous::Journal> journal_;   // null: nothing is kept
  std::unique_ptr<rendezvous::EventFile> events_;  // null: nothing is written
  // One of the two; they use what is above.
  std::unique_ptr<rendezvous::CoordinatorServer> server_;
  std::unique_ptr<rendezvous::etcd::Replica> replica_;
};

}  // namespace distrun::daemon
