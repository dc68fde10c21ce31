// TakeoverPort: a port that is open from the beginning, for the day on which this node may have to
// be the coordinator.  Until then it tells every agent, and every HTTP client, that asks where to
// go instead.
//
//   answering --give_up_socket()--> (a CoordinatorServer has it) --take_back()--> answering
#pragma once

#include "rendezvous/core/messages.h"
#include "rendezvous/server/listener.h"
#include "runtime/base/result.h"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace distrun::rendezvous {

class TakeoverPort {
 public:
  // Answers not_yet until it is told better.  REQUIRES: `io` outlives it.
  static Result<std::unique_ptr<TakeoverPort>> listen(boost::asio::io_context& io,
                                                      const std::string& address,
                                                      std::uint16_t port = 0);
  // On a port that is open already.
  static std::unique_ptr<TakeoverPort> adopt(boost::asio::io_context& io,
                                             std::unique_ptr<Listener> listener);
  ~TakeoverPort();
  TakeoverPort(const TakeoverPort&) = delete;
  TakeoverPort& operator=(const TakeoverPort&) = delete;

  std::uint16_t port() const;
  // What every Join is answered with from now on.
  void answer_with(Refused answer);

  // For CoordinatorServer::adopt.  Who is being answered still is.
  // REQUIRES: it has the socket.
  std::unique_ptr<Listener> give_up_socket();
  // From CoordinatorServer::give_up_socket.
  void take_back(std::unique_ptr<Listener> listener);

 private:
  class Impl;
  explicit TakeoverPort(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace distrun::rendezvous
