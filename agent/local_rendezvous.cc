#include "agent/local_rendezvous.h"

#include <boost/asio/ip/tcp.hpp>

namespace distrun::agent {
namespace {

using boost::asio::ip::tcp;

// An address as it is; a name as the first of its addresses, IPv4 before IPv6.
Result<std::string> to_address(boost::asio::io_context& io, const std::string& host) {
  boost::system::error_code ec;
  boost::asio::ip::make_address(host, ec);
  if (!ec) return host;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, "", ec);
  if (ec || found.empty()) {
    return Error{Errc::not_found, host + ": cannot be looked up (" + ec.message() +
                                      "); give an address of this machine to --master-addr"};
  }
  for (const auto& entry : found) {
    if (entry.endpoint().address().is_v4()) return entry.endpoint().address().to_string();
  }
  return found.begin()->endpoint().address().to_string();
}

}  // namespace

LocalRendezvous::LocalRendezvous(boost::asio::io_context& io, const Spec& spec)
    : io_(io), spec_(spec) {}

void LocalRendezvous::join(const Join& join) {
  store_.reset();  // first: the port may be the same
  const auto address = to_address(io_, spec_.master_addr);
  if (!address) return answer_(RoundFailed{RoundError::no_store, address.error().detail});
  rendezvous::StoreServerOptions options;
  options.address = *address;
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
  assignment.master_addr = *address;
  assignment.master_port = store_->port();
  assignment.restart_count = join.restarts;
  answer_(Welcome{assignment});
}

void LocalRendezvous::leave(const Leave&) {
  store_.reset();
}

}  // namespace distrun::agent
