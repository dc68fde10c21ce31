// LocalRendezvous: the rendezvous of a job on one node.  Every round is complete at once and gets a
// fresh store on a fresh port (or on the port that was asked for), so that no key of an older round
// can be read.  Workers are told the address that the store listens on: a name that the user gave
// is looked up here, once a round, and nowhere else.
#pragma once

#include "agent/core/spec.h"
#include "agent/rendezvous_client.h"
#include "rendezvous/server/store_server.h"

#include <boost/asio/io_context.hpp>

#include <memory>

namespace distrun::agent {

class LocalRendezvous : public RendezvousClient {
 public:
  LocalRendezvous(boost::asio::io_context& io, const Spec& spec);

  void on_answer(Answer answer) override { answer_ = std::move(answer); }
  void join(const Join& join) override;
  void leave(const Leave& leave) override;

 private:
  boost::asio::io_context& io_;
  const Spec& spec_;
  Answer answer_;
  int round_ = 0;
  std::unique_ptr<rendezvous::StoreServer> store_;
};

}  // namespace distrun::agent
