// Link: bytes to and from one etcd member, over TCP, or TLS over TCP.
//
//   connect --> looking up, connecting, shaking hands --> open --close(), or trouble--> over
//
// A name may have addresses that do not answer: the next connection begins behind the one at which
// this one was closed.  No time limits: whoever waits has one, and closes.
#pragma once

#include "rendezvous/etcd/cluster.h"
#include "rendezvous/etcd/gateway/tls.h"
#include "runtime/io/resolver.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace distrun::rendezvous::etcd {

struct Target {  // of all connections to one member
  Endpoint endpoint;
  std::size_t first = 0;  // of its addresses, with which to begin
};

class Link : public std::enable_shared_from_this<Link> {
 public:
  struct Trouble {
    std::string why;
    bool ended = false;     // the member has closed it, in order
    bool hopeless = false;  // to ask it again gives the same
  };
  // Called once each, never from within, and not after close().  After a trouble it is closed.
  using Done = std::function<void(const std::optional<Trouble>& trouble)>;
  using Read = std::function<void(const std::optional<Trouble>& trouble, std::string_view bytes)>;

  // REQUIRES: `resolver` lives until close().  `tls`: null, for none.
  Link(boost::asio::io_context& io, io::Resolver& resolver, std::shared_ptr<Target> to,
       std::shared_ptr<const Tls> tls);

  void connect(Done done);
  void write(std::string bytes, Done done);
  void read(Read read);
  void close();
  bool is_open() const { return open_; }

 private:
  void dial(io::Resolver::Addresses addresses);
  void dial_next(const boost::system::error_code& failure);
  void on_connected();
  void shake_hands();
  void send(std::string bytes, Done done);
  void receive();
  void on_received(const boost::system::error_code& failure, std::size_t size);
  bool deliver();  // what was decrypted
  void fail(Trouble trouble);

  boost::asio::io_context& io_;
  boost::asio::ip::tcp::socket socket_;
  io::Resolver& resolver_;
  std::shared_ptr<io::Resolver::Question> question_;
  std::shared_ptr<Target> to_;
  io::Resolver::Addresses left_;  // to be dialled, the next one last
  std::size_t addresses_ = 0;     // in all; 0: none is being dialled
  std::shared_ptr<const Tls> tls_;
  std::unique_ptr<TlsSession> session_;
  bool open_ = false;
  int turn_ = 0;  // handlers from before close() do nothing
  std::string sending_;
  std::array<char, 16384> received_{};
  Done connected_;
  Done written_;
  Read read_;
};

}  // namespace distrun::rendezvous::etcd
