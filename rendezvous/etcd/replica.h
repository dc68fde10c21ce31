// Replica: one of several distrunds, or agents, that share an etcd.  One leads: it coordinates, and
// keeps each decision in etcd before anybody hears of it.  The others stand by and send agents to
// it.
//
//   EtcdLeader          decides: stand for election, lead, stop
//   EtcdStore           what the leader keeps, as transactions
//   Client              asks etcd for both
//   TakeoverPort        answers on the port while this replica does not lead
//   CoordinatorServer   answers there while it does
//
// One thread, the io_context's.
#pragma once

#include "rendezvous/etcd/cluster.h"
#include "rendezvous/etcd/core/leader.h"
#include "rendezvous/etcd/core/store.h"
#include "rendezvous/etcd/gateway/client.h"
#include "rendezvous/server/coordinator_server.h"
#include "rendezvous/server/takeover_port.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace distrun::rendezvous::etcd {

// Without the names of all hosts, which no leader reads, and which of a large job are more than
// etcd takes as one value.
std::string record_for_etcd(Record record);

struct ReplicaOptions {
  Cluster cluster;
  std::string self = "this distrund";  // in what is said
  // Where agents reach this replica, with or without a port; empty: where it listens.
  std::string advertise;
  // records, unreadable, save, save_async, on_overfull, forget, may_act and may_tell are the
  // replica's own.
  CoordinatorServerOptions server;
  // The record of the only job (server.limits.only_job) cannot be read: it was logged, and this
  // replica has closed itself.  Of many jobs, such a one is let alone.
  std::function<void()> on_failure{};
  // Somebody leads, this one or another.  Never from within start().
  std::function<void()> on_leader{};
  // etcd does not let this one in, and says why; it was logged, and is tried again.
  std::function<void(const std::string& why)> on_refused{};
};

class Replica {
 public:
  // Listens, and stands for election.  REQUIRES: `io` outlives it.  The error says what to do.
  static Result<std::unique_ptr<Replica>> start(boost::asio::io_context& io,
                                                ReplicaOptions options);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  const std::string& endpoint() const { return endpoint_; }  // where it listens
  bool leads() const { return server_ != nullptr; }
  const CoordinatorServer* server() const { return server_.get(); }  // null: it does not lead
  // The last trouble with etcd, until somebody leads; empty: none.
  const std::string& trouble() const { return trouble_; }

  // Of a job in which nobody is any more: takes its record away.  If it is over, only ten minutes
  // later, by a lease of the record's own: a node that is out of sight now may come back, and is to
  // hear how the job ended instead of beginning it again.
  void forget(const std::string& job);
  // Nothing waits to be written.
  bool all_kept() const { return !store_ || (!retiring_ && store_->idle()); }
  // Closes the port, and gives leadership up: nothing of it is left in the io_context within half a
  // second.  Idempotent.
  void close();
  bool closed() const { return resigned_; }  // and nothing is

 private:
  struct Saving {
    EtcdStore::Ticket ticket = 0;
    std::function<void()> saved;
  };
  Replica(boost::asio::io_context& io, ReplicaOptions options, std::unique_ptr<Client> client);

  void feed(const leader::Event& event);
  void apply(const leader::Ask& effect);
  void apply(const leader::Watch& effect);
  void apply(const leader::Unwatch& effect);
  void apply(const leader::Lead& effect);
  void apply(const leader::GoOn& effect);
  void apply(const leader::Halt& effect);
  void apply(const leader::Follow& effect);
  void apply(const leader::Resigned& effect);
  void apply(const leader::Say& effect);
  void rearm();
  void later(std::function<void()> what);
  CoordinatorServerOptions server_options();

  void save(const Record& record, std::function<void()> saved);
  void retire(const Record& record);
  void take_away(const std::string& job);
  void pump();
  void ask_to_keep(const Transaction& transaction);
  void on_kept(const Answer& answer);

  boost::asio::io_context& io_;
  ReplicaOptions options_;
  Keys keys_;
  std::string endpoint_;
  std::unique_ptr<Client> client_;
  std::optional<EtcdLeader> leader_;
  boost::asio::steady_timer timer_;
  std::optional<TimePoint> armed_for_;
  std::unique_ptr<TakeoverPort> port_;         // has the socket while server_ is null
  std::unique_ptr<CoordinatorServer> server_;  // set: this replica leads
  std::optional<EtcdStore> store_;             // of this time of leading
  std::deque<Saving> saving_;
  bool retiring_ = false;  // a lease for the record of an ended job is asked for
  int tenure_ = 0;         // how often it has led: answers to former ones mean nothing
  std::string said_;       // the last trouble with keeping
  std::string trouble_;
  bool closed_ = false;
  bool resigned_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>();  // handlers from before do nothing
};

}  // namespace distrun::rendezvous::etcd
