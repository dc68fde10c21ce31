// RemoteRendezvous: this node's part in the rendezvous of a job on many nodes.
//
//   rendezvous::Member      decides: whom to dial, what to say, whether to take over
//   CoordinatorLine         carries its messages
//   CoordinatorServer       answers, if this node hosts: the endpoint's address is its own and the
//                           port is free, or it has taken over (then at its TakeoverPort)
//   ElectedCoordinator      the same through etcd: whoever is elected answers, and nobody takes
//   over StoreServer             the workers' store, one for each round: opened before each Join,
//   closed
//                           when the round begins unless this node is rank 0 of it
//
// Nothing here blocks the loop, and every wait has a deadline.  What is waited for is logged at
// each change and every few seconds.
#pragma once

#include "agent/coordinator_line.h"
#include "agent/core/spec.h"
#include "agent/elected_coordinator.h"
#include "agent/rendezvous_client.h"
#include "rendezvous/core/member.h"
#include "rendezvous/server/coordinator_server.h"
#include "rendezvous/server/event_file.h"
#include "rendezvous/server/store_server.h"
#include "rendezvous/server/takeover_port.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"
#include "runtime/io/resolver.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace distrun::agent {

struct RemoteRendezvousOptions {
  rendezvous::Contact endpoint;  // --rdzv-endpoint
  // Instead: the nodes elect the coordinator there.  Then is_host and takeover mean nothing.
  std::optional<rendezvous::etcd::Cluster> etcd;
  std::string job;  // --rdzv-id
  std::string token;
  rendezvous::Terms terms;
  std::string host_name;  // for people
  std::optional<NodeRank> node_rank;
  // What the other nodes are told of this one; empty: this end of the connection to the
  // coordinator.
  std::string local_addr;
  std::optional<bool> is_host;  // nullopt: by owning the endpoint's address
  rendezvous::TakeoverRule takeover = rendezvous::TakeoverRule::majority;
  Duration start_timeout = std::chrono::seconds(900);
  Duration patience = std::chrono::seconds(600);
  Duration takeover_patience = std::chrono::seconds(30);
  std::string events_file;  // while this node hosts: what happens is written there; empty: nowhere
};

class RemoteRendezvous : public RendezvousClient {
 public:
  // Of `spec`: nproc, role, and master_port of the workers' store.
  // REQUIRES: both references outlive it.
  RemoteRendezvous(boost::asio::io_context& io, const Spec& spec, RemoteRendezvousOptions options);
  ~RemoteRendezvous() override;
  RemoteRendezvous(const RemoteRendezvous&) = delete;
  RemoteRendezvous& operator=(const RemoteRendezvous&) = delete;

  void on_answer(Answer answer) override { answer_ = std::move(answer); }
  void join(const Join& join, std::string report) override;
  void report(const Report& report) override;
  void leave(const Leave& leave) override;

  // For a status line: "2 of 3 nodes (host-a, host-b); …"; empty: nothing is waited for.
  std::string waiting_for() const;
  // Nobody is owed a word: what was said has been written and, if this node hosts, the others have
  // heard how the job ended.  Not before, the process is to exit; but within a few seconds anyway.
  bool idle();  // and takes what steps are left to that end
  // Closes all ports, so that the next job finds nobody here.  After the last verb and idle().
  void close();

  bool hosting() const { return server() != nullptr; }
  // Where this node's coordinator answers, if it hosts.
  std::string coordinator_endpoint() const;

 private:
  struct Line {
    std::shared_ptr<CoordinatorLine> connection;
    std::string local_address;
  };

  void begin();
  void stand_for_election();
  void wait_for_etcd(TimePoint until);
  void look_up_endpoint();
  void on_endpoint(Result<io::Resolver::Addresses> addresses);
  Result<bool> host_endpoint(const io::Resolver::Addresses& addresses);
  void begin_member(bool hosts);
  rendezvous::Authority authority(int successor) const;
  rendezvous::CoordinatorServerOptions server_options(rendezvous::Authority authority);
  bool open_event_file();

  void feed(rendezvous::member::Event event);
  void run_inbox();
  void rearm();
  void apply(const rendezvous::member::Dial& effect);
  void apply(const rendezvous::member::Send& effect);
  void apply(const rendezvous::member::HangUp& effect);
  void apply(const rendezvous::member::Host& effect);
  void apply(const rendezvous::member::StopHosting& effect);
  void apply(const rendezvous::member::Direct& effect);
  void apply(const rendezvous::member::Placed& effect);
  void apply(const rendezvous::member::Disbanded& effect);
  void apply(const rendezvous::member::JobOver& effect);
  void apply(const rendezvous::member::NoRound& effect);
  void apply(const rendezvous::member::Say& effect);
  void apply(const rendezvous::member::Progress& effect);

  void complete(rendezvous::Join& join, const Line& line);
  std::string listen_address(const std::string& advertised, const Line& line) const;
  void open_store(const std::string& address);
  void open_takeover_port(const std::string& address);
  void no_round(RoundError error, std::string why);
  const rendezvous::CoordinatorServer* server() const;
  const rendezvous::Rendezvous* hosted_job() const;
  bool others_need_this_node() const;

  boost::asio::io_context& io_;
  const Spec& spec_;
  RemoteRendezvousOptions options_;
  rendezvous::NodeId node_;
  Answer answer_;

  io::Resolver resolver_;
  std::shared_ptr<io::Resolver::Question> question_;  // where the endpoint is, at first
  TimePoint look_up_until_{};
  int lookups_ = 0;  // that failed
  std::optional<rendezvous::Member> member_;
  std::deque<rendezvous::member::Event> inbox_;
  bool busy_ = false;
  bool over_ = false;
  std::optional<TimePoint> farewell_until_;  // idle() not before, while this node hosts
  bool left_ = false;
  boost::asio::steady_timer timer_;
  std::optional<TimePoint> armed_for_;
  std::map<int, Line> lines_;

  std::unique_ptr<rendezvous::EventFile> events_;  // outlives the servers
  std::unique_ptr<ElectedCoordinator> elected_;
  std::unique_ptr<rendezvous::CoordinatorServer> server_;
  bool at_endpoint_ = false;  // the server, or who answers there in its place
  std::optional<rendezvous::Contact> own_endpoint_;  // what reaches it from here
  std::string endpoint_listens_;                     // its address
  std::unique_ptr<rendezvous::TakeoverPort> takeover_port_;
  std::string takeover_listens_;
  std::unique_ptr<rendezvous::TakeoverPort> former_endpoint_;
  std::optional<rendezvous::Refused> direction_;

  std::unique_ptr<rendezvous::StoreServer> store_;       // of the round
  std::unique_ptr<rendezvous::StoreServer> next_store_;  // of the next one
  std::string next_store_listens_;
  std::string store_problem_;
  std::optional<rendezvous::Failure> own_failure_;

  std::optional<rendezvous::Waiting> waiting_;
  TimePoint logged_{};
};

}  // namespace distrun::agent
