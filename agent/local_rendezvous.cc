#include "agent/local_rendezvous.h"

namespace distrun::agent {

LocalRendezvous::LocalRendezvous(boost::asio::io_context& io, const Spec& spec)
    : io_(io), spec_(spec) {}

void LocalRendezvous::join(const Join& join) {
  store_.reset();  // first: the port may be the same
  rendezvous::StoreServerOptions options;
  options.address = spec_.master_addr;
  options.port = spec_.master_port;
  auto store = rendezvous::StoreServer::listen(io_, options);
  if (!store) {
    return answer_(RoundFailed{RoundError::no_store, store.error().detail});
  }
  store_ = std::move(*store);
  Assignment assignment;
  assignment.generation = Generation(round_++);
  assignment.world_size = spec_.nproc;
  assignment.role_world_size = spec_.nproc;
  assignment.master_addr = spec_.master_addr;
  assignment.master_port = store_->port();
  assignment.restart_count = join.restarts;
  answer_(Welcome{assignment});
}

void LocalRendezvous::leave(const Leave&) {
  store_.reset();
}

}  // namespace distrun::agent
