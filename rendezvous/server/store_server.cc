#include "rendezvous/server/store_server.h"

#include "rendezvous/server/store_session.h"
#include "runtime/base/log.h"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

namespace distrun::rendezvous {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Acceptor = asio::basic_socket_acceptor<tcp, asio::io_context::executor_type>;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>,
                                         asio::io_context::executor_type>;

// Connections taken in one turn, before those that are there are served again.
constexpr int kAcceptsPerTurn = 64;
constexpr auto kPauseWithoutDescriptors = std::chrono::milliseconds(100);
// A peer whose host is gone sends nothing: ask after a minute, give up a minute later.
constexpr int kProbeAfterSeconds = 60;
constexpr int kProbeEverySeconds = 10;
constexpr int kProbes = 6;

std::string text(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  const std::string port = std::to_string(endpoint.port());
  return endpoint.address().is_v6() ? "[" + address + "]:" + port : address + ":" + port;
}

Error cannot_listen(const tcp::endpoint& endpoint, const error_code& failure) {
  std::string detail = "cannot listen on " + text(endpoint) + ": " + failure.message();
  if (failure == asio::error::address_in_use)
    detail += "; another process has the port: choose another, or 0 for any free one";
  if (failure == boost::system::errc::address_not_available)
    detail += "; give an address of this host (`ip addr` lists them)";
  if (failure == asio::error::access_denied) detail += "; ports below 1024 need privileges";
  return Error{Errc::io, std::move(detail)};
}

void set_option(int fd, int level, int name, int value) {
  // A connection without one of these still works.
  (void)::setsockopt(fd, level, name, &value, sizeof value);
}

void prepare_connection(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kProbeAfterSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbeEverySeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

bool out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

// Held by its handlers too, so that a server can be destroyed while one is on its way.
class StoreServer::Listener : public std::enable_shared_from_this<Listener> {
 public:
  Listener(asio::io_context& io, const StoreServerOptions& options)
      : io_(io), acceptor_(io), pause_(io), sessions_(options.max_total_bytes) {
    sessions_.connection_bytes = options.max_connection_bytes;
    max_connections_ = static_cast<std::size_t>(std::max(options.max_connections, 1));
  }

  Result<void> listen(const tcp::endpoint& endpoint);
  const tcp::endpoint& endpoint() const { return endpoint_; }
  void accept();
  void close();

 private:
  void take_connections();
  void admit(int fd, const tcp::endpoint& peer);
  void say_once(bool& said, std::string_view sentence, std::string detail);
  void pause();

  asio::io_context& io_;
  Acceptor acceptor_;
  Timer pause_;
  StoreSessions sessions_;
  std::size_t max_connections_;
  std::uint64_t last_id_ = 0;
  tcp::endpoint endpoint_;
  bool said_no_descriptors_ = false;
  bool said_full_ = false;
};

Result<void> StoreServer::Listener::listen(const tcp::endpoint& endpoint) {
  error_code failure;
  const auto step = [&failure](auto&& operation) {
    if (!failure) operation();
  };
  step([&] { acceptor_.open(endpoint.protocol(), failure); });
  // Workers are forked from this process and must not hold the port.
  step([&] { ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC); });
  step([&] { acceptor_.set_option(tcp::acceptor::reuse_address(true), failure); });
  step([&] {
    if (endpoint.address() == asio::ip::address_v6::any())
      acceptor_.set_option(asio::ip::v6_only(false), failure);
  });
  step([&] { acceptor_.bind(endpoint, failure); });
  step([&] { acceptor_.listen(tcp::acceptor::max_listen_connections, failure); });
  step([&] { acceptor_.non_blocking(true, failure); });
  step([&] { endpoint_ = acceptor_.local_endpoint(failure); });
  if (failure) return cannot_listen(endpoint, failure);
  return {};
}

void StoreServer::Listener::accept() {
  acceptor_.async_wait(Acceptor::wait_read, [self = shared_from_this()](const error_code& failure) {
    if (!failure && self->acceptor_.is_open()) self->take_connections();
  });
}

// accept4 ourselves: one call per connection, close-on-exec from birth.
void StoreServer::Listener::take_connections() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    tcp::endpoint peer;
    auto size = static_cast<socklen_t>(peer.capacity());
    const int fd =
        ::accept4(acceptor_.native_handle(), peer.data(), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      said_no_descriptors_ = false;
      peer.resize(size);
      admit(fd, peer);
    } else if (errno == EAGAIN) {
      break;
    } else if (out_of_descriptors(errno)) {
      say_once(said_no_descriptors_, "cannot take store connections; trying again",
               os_error("accept", errno).detail + "; raise `ulimit -n`");
      return pause();
    }
    // Else this one connection was given up by its peer while it waited.
  }
  accept();
}

void StoreServer::Listener::admit(int fd, const tcp::endpoint& peer) {
  StoreSocket socket(io_);
  error_code failure;
  socket.assign(peer.protocol(), fd, failure);
  if (failure) {
    ::close(fd);
    return log::warn("closed a store connection",
                     {{"peer", text(peer)}, {"reason", failure.message()}});
  }
  socket.non_blocking(true, failure);
  if (sessions_.open.size() >= max_connections_)
    return say_once(said_full_, "refused a store connection",
                    text(peer) + " is one more than " + std::to_string(max_connections_));
  said_full_ = false;
  prepare_connection(fd);
  const auto id = static_cast<ConnectionId>(++last_id_);
  const auto session = std::make_shared<StoreSession>(std::move(socket), text(peer), id, sessions_);
  sessions_.open.emplace(id, session);
  session->start();
}

void StoreServer::Listener::say_once(bool& said, std::string_view sentence, std::string detail) {
  if (!std::exchange(said, true)) log::warn(sentence, {{"reason", std::move(detail)}});
}

void StoreServer::Listener::pause() {
  pause_.expires_after(kPauseWithoutDescriptors);
  pause_.async_wait([self = shared_from_this()](const error_code& failure) {
    if (!failure && self->acceptor_.is_open()) self->accept();
  });
}

void StoreServer::Listener::close() {
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  std::vector<std::shared_ptr<StoreSession>> open;
  for (const auto& [id, session] : sessions_.open) open.push_back(session);
  for (const auto& session : open) session->close();
}

Result<std::unique_ptr<StoreServer>> StoreServer::listen(asio::io_context& io,
                                                         const StoreServerOptions& options) {
  error_code failure;
  const auto address = asio::ip::make_address(options.address, failure);
  if (failure)
    return Error{Errc::invalid_argument, "not an IPv4 or IPv6 address: \"" + options.address +
                                             "\" (names are not looked up)"};
  auto listener = std::make_shared<Listener>(io, options);
  if (auto listening = listener->listen({address, options.port}); !listening)
    return listening.error();
  listener->accept();
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(listener)));
}

StoreServer::StoreServer(std::shared_ptr<Listener> listener) : listener_(std::move(listener)) {}

StoreServer::~StoreServer() {
  close();
}

std::uint16_t StoreServer::port() const {
  return listener_->endpoint().port();
}

std::string StoreServer::endpoint() const {
  return text(listener_->endpoint());
}

void StoreServer::close() {
  listener_->close();
}

}  // namespace distrun::rendezvous
