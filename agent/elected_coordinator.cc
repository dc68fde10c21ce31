#include "agent/elected_coordinator.h"

#include "agent/own_addresses.h"
#include "runtime/base/log.h"

#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>

#include <optional>
#include <utility>

namespace distrun::agent {
namespace {

namespace asio = boost::asio;
namespace etcd = rendezvous::etcd;

constexpr Duration kLookUp = std::chrono::seconds(5);
constexpr Duration kLookUpAgain = std::chrono::milliseconds(500);

std::optional<asio::ip::address> literal(const std::string& text) {
  boost::system::error_code not_one;
  const auto address = asio::ip::make_address(text, not_one);
  return not_one ? std::nullopt : std::optional(address);
}

// A name, and an address that is translated on the way here, are not this machine's to listen at.
std::string listening_for(const std::string& advertised) {
  const auto address = literal(advertised);
  if (address && is_own_address(*address)) return advertised;
  return address && address->is_v6() ? "::" : "0.0.0.0";
}

}  // namespace

ElectedCoordinator::ElectedCoordinator(asio::io_context& io, Options options)
    : io_(io), options_(std::move(options)), timer_(io) {
  timer_.expires_after(Duration::zero());
  timer_.async_wait([this](const boost::system::error_code& ec) {
    if (ec || gone_) return;
    if (options_.local_addr.empty()) return look_up();
    start(options_.local_addr);
  });
}

ElectedCoordinator::~ElectedCoordinator() {
  if (lookup_) lookup_->cancel();
  timer_.cancel();
}

// ---- the own address ---------------------------------------------------------------------------

void ElectedCoordinator::look_up() {
  const auto& endpoints = options_.cluster.endpoints;
  lookup_ = io::NameLookup::start(io_, endpoints[next_].host, kLookUp,
                                  [this](const auto& addresses) { on_addresses(addresses); });
}

void ElectedCoordinator::on_addresses(const Result<io::NameLookup::Addresses>& addresses) {
  lookup_.reset();
  const auto& endpoints = options_.cluster.endpoints;
  const etcd::Endpoint& endpoint = endpoints[next_];
  if (!addresses) {
    trouble_ = "no address of etcd is known: " + addresses.error().detail;
  } else {
    for (const asio::ip::address& address : *addresses) {
      const auto from = own_address_toward(address, endpoint.port);
      if (!from) continue;
      // Others cannot come by that; another member of etcd may know this machine by a better one.
      if (!from->is_loopback()) return start(from->to_string());
      if (loopback_.empty()) loopback_ = from->to_string();
    }
    if (loopback_.empty()) trouble_ = "there is no way to etcd at " + etcd::to_text(endpoint);
  }
  next_ = (next_ + 1) % endpoints.size();
  if (next_ != 0) return look_up();
  if (!loopback_.empty()) return start(loopback_);
  try_again();
}

void ElectedCoordinator::try_again() {
  timer_.expires_after(kLookUpAgain);
  timer_.async_wait([this](const boost::system::error_code& ec) {
    if (!ec && !gone_) look_up();
  });
}

// ---- the election ------------------------------------------------------------------------------

void ElectedCoordinator::start(const std::string& address) {
  etcd::ReplicaOptions replica;
  replica.cluster = options_.cluster;
  replica.self = "this node";
  replica.advertise = address;
  replica.server = options_.server;
  replica.server.address = listening_for(address);
  replica.server.port = 0;
  std::string reached = address;
  if (replica.server.address != address)
    reached = replica.server.address == "::" ? "::1" : "127.0.0.1";
  replica.on_leader = [this, reached] {
    if (std::exchange(known_, true)) return;
    const std::string& endpoint = replica_->endpoint();
    const auto port = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
    options_.on_known({reached, static_cast<std::uint16_t>(port)});
  };
  replica.on_refused = [this](const std::string& why) {
    if (!known_) options_.on_refused(why);
  };
  replica.on_failure = [this] {
    options_.on_refused("the job's record in etcd cannot be read; mend " +
                        etcd::Keys{options_.cluster.prefix}.job(options_.job) +
                        ", or delete it, with etcdctl");
  };
  auto started = etcd::Replica::start(io_, std::move(replica));
  if (!started) {
    gone_ = true;
    return options_.on_refused(started.error().detail);
  }
  replica_ = std::move(*started);
  log::debug("this node stands for election", {{"port", replica_->endpoint()}});
}

const rendezvous::CoordinatorServer* ElectedCoordinator::server() const {
  return replica_ ? replica_->server() : nullptr;
}

std::string ElectedCoordinator::trouble() const {
  return replica_ ? replica_->trouble() : trouble_;
}

// ---- the end -----------------------------------------------------------------------------------

void ElectedCoordinator::stand_down() {
  if (server() != nullptr) return;
  gone_ = true;
  if (lookup_) lookup_->cancel();
  timer_.cancel();
  if (replica_) replica_->close();
}

bool ElectedCoordinator::wind_up(bool forget) {
  if (!replica_) {
    stand_down();
    return true;
  }
  if (server() != nullptr) {
    if (forget && !std::exchange(forgotten_, true)) replica_->forget(options_.job);
    if (!replica_->all_kept()) return false;
  }
  gone_ = true;
  replica_->close();
  return replica_->closed();
}

}  // namespace distrun::agent
