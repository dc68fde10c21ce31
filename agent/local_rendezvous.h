// LocalRendezvous: the rendezvous of a job on one node, inside its agent.  Rendezvous decides, as
// it does for many nodes; no message leaves the process.
//
// Every round gets a fresh store on a fresh port (or on the port that was asked for), so that no
// key of an older round can be read.  Workers are told the address that the store listens on: a
// name that the user gave is looked up here, once a round, and nowhere else.
#pragma once

#include "agent/core/spec.h"
#include "agent/rendezvous_client.h"
#include "rendezvous/core/rendezvous.h"
#include "rendezvous/server/store_server.h"
#include "runtime/io/name_lookup.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <memory>
#include <string>

namespace distrun::agent {

class LocalRendezvous : public RendezvousClient {
 public:
  LocalRendezvous(boost::asio::io_context& io, const Spec& spec);
  ~LocalRendezvous() override;

  void on_answer(Answer answer) override { answer_ = std::move(answer); }
  void join(const Join& join, std::string report) override;
  void report(const Report& report) override;
  void leave(const Leave& leave) override;

 private:
  void say(rendezvous::AgentMessage message);  // as the only member
  void tell(const rendezvous::Event& event);
  void on(const rendezvous::Welcome& welcome);
  void on(const rendezvous::Over& over);
  void on(const rendezvous::Refused& refused);
  void on(const rendezvous::Disband& disband);
  void on(const rendezvous::Ping& ping);
  void on(const rendezvous::Waiting&) {}
  void await_answer();
  void open_store(const rendezvous::Welcome& welcome, const std::string& address);

  boost::asio::io_context& io_;
  const Spec& spec_;
  Answer answer_;
  rendezvous::Rendezvous decisions_;
  rendezvous::Fence round_;   // the last one
  bool answer_owed_ = false;  // to join()
  boost::asio::steady_timer timer_;
  std::shared_ptr<io::NameLookup> lookup_;  // of --master-addr
  std::unique_ptr<rendezvous::StoreServer> store_;
};

}  // namespace distrun::agent
