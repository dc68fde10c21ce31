// ElectedCoordinator: this node's part in a coordinator that the nodes of a job elect through etcd.
//
//   looking for an address --> standing by <--> coordinating --> winding up --> gone
//
// Every node opens a port at the address from which it reaches etcd, and stands for election there
// (rendezvous/etcd/replica.h).  Its own Member asks that port where the coordinator is: there, or
// at the node that leads.
#pragma once

#include "rendezvous/core/member.h"
#include "rendezvous/etcd/replica.h"
#include "runtime/base/time.h"
#include "runtime/io/name_lookup.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace distrun::agent {

class ElectedCoordinator {
 public:
  struct Options {
    rendezvous::etcd::Cluster cluster;
    std::string job;
    std::string local_addr;  // what other nodes are told; empty: from where etcd is reached
    rendezvous::CoordinatorServerOptions server;
    // Once: somebody leads.  `own` is where this node's port answers.
    std::function<void(const rendezvous::Contact& own)> on_known;
    // Nobody led so far, and nobody will, for etcd refuses this node; or, also later, the job's
    // record cannot be read.
    std::function<void(const std::string& why)> on_refused;
  };
  // Calls back later, from the loop.  REQUIRES: `io` outlives it.
  ElectedCoordinator(boost::asio::io_context& io, Options options);
  ~ElectedCoordinator();
  ElectedCoordinator(const ElectedCoordinator&) = delete;
  ElectedCoordinator& operator=(const ElectedCoordinator&) = delete;

  // Of the server, if this node coordinates; else null.
  const rendezvous::CoordinatorServer* server() const;
  // Why nobody leads, as far as known: "etcd does not answer (…)".
  std::string trouble() const;
  // Who does not coordinate is gone at once.
  void stand_down();
  // To be called until it says that nothing is left to do: `forget` takes the job's record away
  // (Replica::forget).
  bool wind_up(bool forget);

 private:
  void look_up();
  void on_addresses(const Result<io::NameLookup::Addresses>& addresses);
  void try_again();
  void start(const std::string& address);

  boost::asio::io_context& io_;
  Options options_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<io::NameLookup> lookup_;
  std::size_t next_ = 0;  // endpoint to look up
  std::string loopback_;  // from where an etcd on this machine is reached
  std::string trouble_;   // with finding an address
  std::unique_ptr<rendezvous::etcd::Replica> replica_;
  bool known_ = false;
  bool gone_ = false;
  bool forgotten_ = false;
};

}  // namespace distrun::agent
