// Which addresses are this machine's, and whether a port of one is taken.
#pragma once

#include <boost/asio/ip/address.hpp>

#include <cstdint>
#include <optional>

namespace distrun::agent {

// Of an interface of this machine, or loopback.  Not asked by binding: with ip_nonlocal_bind set,
// as on load balancers, any address can be bound.
bool is_own_address(const boost::asio::ip::address& address);

// From which this machine would speak to that one; nullopt: there is no way.  Nothing is sent.
std::optional<boost::asio::ip::address> own_address_toward(const boost::asio::ip::address& address,
                                                           std::uint16_t port);

// Somebody listens there already.
bool port_is_taken(const boost::asio::ip::address& address, std::uint16_t port);

}  // namespace distrun::agent
