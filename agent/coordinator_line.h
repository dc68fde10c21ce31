// CoordinatorLine: one connection of an agent to a coordinator, from the name to the messages.
//
//   looking up --> connecting, and greeting --> connected --hang_up()--> finishing
//       \-------------- nobody answers ----> over <---- closed ----/
//
// All addresses of the name are tried, IPv4 and IPv6, each a moment after the one before; the first
// at which a coordinator greets is taken.  What answered at each is told if none does.
#pragma once

#include "rendezvous/core/member.h"
#include "rendezvous/protocol/frame.h"
#include "rendezvous/server/connection.h"
#include "runtime/base/time.h"
#include "runtime/io/resolver.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::agent {

class CoordinatorLine : public std::enable_shared_from_this<CoordinatorLine> {
 public:
  struct Callbacks {
    std::function<void(std::string local_address)> connected;
    std::function<void(rendezvous::member::NoAnswer reason, std::string why)> not_connected;
    std::function<void(rendezvous::CoordinatorMessage message)> received;
    std::function<void(std::string why)> closed;  // after connected; not after hang_up()
  };
  // Never calls back from within.
  static std::shared_ptr<CoordinatorLine> dial(boost::asio::io_context& io, io::Resolver& resolver,
                                               const rendezvous::Contact& contact, Duration timeout,
                                               Callbacks callbacks);

  void send(const rendezvous::AgentMessage& message);
  // Closes it once all that was sent is written.  No more callbacks.
  void hang_up();

 private:
  // One address.
  struct Attempt {
    explicit Attempt(boost::asio::io_context& io, boost::asio::ip::tcp::endpoint to)
        : endpoint(std::move(to)), socket(io) {}
    boost::asio::ip::tcp::endpoint endpoint;
    rendezvous::Socket socket;
    std::shared_ptr<rendezvous::Connection> connection;
    rendezvous::FrameDecoder decoder{rendezvous::kMaxCoordinatorFrame};
    bool over = false;
  };
  using AttemptPtr = std::shared_ptr<Attempt>;

  CoordinatorLine(boost::asio::io_context& io, const rendezvous::Contact& contact, Duration timeout,
                  Callbacks callbacks);
  void on_addresses(Result<io::Resolver::Addresses> addresses);
  void try_next();
  void on_connected(const AttemptPtr& attempt, const boost::system::error_code& failure);
  void on_bytes(const AttemptPtr& attempt, std::string_view bytes);
  void on_lost(const AttemptPtr& attempt, const std::string& why);
  void read_messages(const AttemptPtr& attempt);
  void take(const AttemptPtr& attempt);
  void fail(const AttemptPtr& attempt, rendezvous::member::NoAnswer reason,
            const std::string& what);
  void out_of_time();
  void give_up();
  void end(const std::string& why);
  void close_attempts(const Attempt* but);

  boost::asio::io_context& io_;
  rendezvous::Contact contact_;
  Duration timeout_;
  Callbacks callbacks_;
  std::shared_ptr<io::Resolver::Question> question_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer stagger_;
  io::Resolver::Addresses left_;  // the next one last
  std::vector<AttemptPtr> attempts_;
  AttemptPtr taken_;
  std::optional<rendezvous::member::NoAnswer> reason_;  // the one that weighs most
  std::string why_;
  bool over_ = false;
};

}  // namespace distrun::agent
