#include "rendezvous/server/connection.h"

#include "rendezvous/server/listener.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace distrun::rendezvous {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using testing::HasSubstr;

// Asio leaves a socket that it connects in blocking mode.  If it stayed so, one peer that takes
// nothing, or one that was said to be readable and is not, would hold up the whole loop for good.
TEST(Connection, APeerThatDoesNotReadIsGivenUpAndHoldsUpNobody) {
  asio::io_context io;
  tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  Socket near(io);
  near.connect(acceptor.local_endpoint());
  Socket far(io);
  acceptor.accept(far);
  ASSERT_FALSE(near.non_blocking());

  std::string lost;
  const auto connection = std::make_shared<Connection>(io, std::move(near), "far", nullptr);
  connection->set_callbacks({.received = {}, .lost = [&](const std::string& why) { lost = why; }});
  connection->start();
  // More than what the kernel holds of both sides.
  const std::string much(64UL * 1024 * 1024, 'x');
  connection->send(much, 1024);
  EXPECT_THAT(lost, HasSubstr("does not read"));
}

}  // namespace
}  // namespace distrun::rendezvous
