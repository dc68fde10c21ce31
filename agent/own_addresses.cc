#include "agent/own_addresses.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>

#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace distrun::agent {
namespace {

bool is(const sockaddr* of_interface, const boost::asio::ip::address& address) {
  if (of_interface == nullptr) return false;
  if (of_interface->sa_family == AF_INET && address.is_v4()) {
    const auto bytes = address.to_v4().to_bytes();
    const auto* in = reinterpret_cast<const sockaddr_in*>(of_interface);
    return std::memcmp(&in->sin_addr, bytes.data(), bytes.size()) == 0;
  }
  if (of_interface->sa_family == AF_INET6 && address.is_v6()) {
    const auto bytes = address.to_v6().to_bytes();
    const auto* in = reinterpret_cast<const sockaddr_in6*>(of_interface);
    return std::memcmp(&in->sin6_addr, bytes.data(), bytes.size()) == 0;
  }
  return false;
}

}  // namespace

bool is_own_address(const boost::asio::ip::address& address) {
  if (address.is_loopback()) return true;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return false;
  bool own = false;
  for (const ifaddrs* entry = all; entry != nullptr && !own; entry = entry->ifa_next) {
    own = is(entry->ifa_addr, address);
  }
  ::freeifaddrs(all);
  return own;
}

std::optional<boost::asio::ip::address> own_address_toward(const boost::asio::ip::address& address,
                                                           std::uint16_t port) {
  // A datagram socket is given its own address when it is connected, and sends nothing for that.
  const boost::asio::ip::udp::endpoint to(address, port);
  const int fd = ::socket(to.protocol().family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  boost::asio::ip::udp::endpoint own;
  auto size = static_cast<socklen_t>(own.capacity());
  const bool known = ::connect(fd, to.data(), static_cast<socklen_t>(to.size())) == 0 &&
                     ::getsockname(fd, own.data(), &size) == 0;
  ::close(fd);
  if (!known) return std::nullopt;
  own.resize(size);
  return own.address();
}

bool port_is_taken(const boost::asio::ip::address& address, std::uint16_t port) {
  const boost::asio::ip::tcp::endpoint endpoint(address, port);
  const int fd = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  // As a listener would: what lingers of closed connections does not count.
  const int yes = 1;
  (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const bool taken = ::bind(fd, endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 &&
                     errno == EADDRINUSE;
  ::close(fd);
  return taken;
}

}  // namespace distrun::agent
