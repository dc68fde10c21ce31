#include "rendezvous/server/listener.h"

#include "runtime/base/log.h"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/ip/v6_only.hpp>

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/socket.h>
#include <utility>

namespace distrun::rendezvous {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Acceptor = asio::basic_socket_acceptor<tcp, asio::io_context::executor_type>;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>,
                                         asio::io_context::executor_type>;

// All nodes of a job come at once; the kernel takes no more than net.core.somaxconn.
constexpr int kBacklog = 4096;
// Connections taken in one turn, before those that are there are served again.
constexpr int kAcceptsPerTurn = 64;
constexpr auto kPauseWithoutDescriptors = std::chrono::milliseconds(100);
// A peer whose host is gone sends nothing: ask after a minute, give up a minute later.
constexpr int kProbeAfterSeconds = 60;
constexpr int kProbeEverySeconds = 10;
constexpr int kProbes = 6;

Error cannot_listen(const tcp::endpoint& endpoint, const error_code& failure) {
  std::string detail = "cannot listen on " + endpoint_text(endpoint) + ": " + failure.message();
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

std::string endpoint_text(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  const std::string port = std::to_string(endpoint.port());
  return endpoint.address().is_v6() ? "[" + address + "]:" + port : address + ":" + port;
}

// Held by its handlers too, so that a listener can be destroyed while one is on its way.
class Listener::Loop : public std::enable_shared_from_this<Loop> {
 public:
  explicit Loop(asio::io_context& io) : io_(io), acceptor_(io), pause_(io) {}

  Result<void> listen(const tcp::endpoint& endpoint);
  void serve(std::string what, Admit admit);
  void stop_serving();
  void close();
  const tcp::endpoint& endpoint() const { return endpoint_; }

 private:
  void accept();
  void take_connections();
  void admit(int fd, const tcp::endpoint& peer);
  void pause();

  asio::io_context& io_;
  Acceptor acceptor_;
  Timer pause_;
  tcp::endpoint endpoint_;
  std::string what_;
  // Shared: it may be replaced while it runs.
  std::shared_ptr<const Admit> admit_;
  bool waiting_ = false;  // for a connection, or for the end of a pause
  bool said_no_descriptors_ = false;
};

Result<void> Listener::Loop::listen(const tcp::endpoint& endpoint) {
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
  step([&] { acceptor_.listen(kBacklog, failure); });
  step([&] { acceptor_.non_blocking(true, failure); });
  step([&] { endpoint_ = acceptor_.local_endpoint(failure); });
  if (failure) return cannot_listen(endpoint, failure);
  return {};
}

void Listener::Loop::serve(std::string what, Admit admit) {
  what_ = std::move(what);
  admit_ = std::make_shared<const Admit>(std::move(admit));
  if (!waiting_) accept();
}

void Listener::Loop::stop_serving() {
  admit_.reset();
}

void Listener::Loop::accept() {
  waiting_ = true;
  acceptor_.async_wait(Acceptor::wait_read, [self = shared_from_this()](const error_code& failure) {
    self->waiting_ = false;
    if (!failure) self->take_connections();
  });
}

// accept4 ourselves: one call per connection, close-on-exec from birth.
void Listener::Loop::take_connections() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    if (!admit_ || !acceptor_.is_open()) return;  // also: by the one just admitted
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
      const std::string reason = os_error("accept", errno).detail + "; raise `ulimit -n`";
      if (!std::exchange(said_no_descriptors_, true))
        log::warn("cannot take " + what_ + " connections; trying again", {{"reason", reason}});
      return pause();
    }
    // Else this one connection was given up by its peer while it waited.
  }
  if (admit_ && acceptor_.is_open() && !waiting_) accept();
}

void Listener::Loop::admit(int fd, const tcp::endpoint& peer) {
  Socket socket(io_);
  error_code failure;
  socket.assign(peer.protocol(), fd, failure);
  if (failure) {
    ::close(fd);
    return log::warn("closed a " + what_ + " connection",
                     {{"peer", endpoint_text(peer)}, {"reason", failure.message()}});
  }
  socket.non_blocking(true, failure);
  prepare_connection(fd);
  const auto admit = admit_;
  (*admit)(std::move(socket), peer);
}

void Listener::Loop::pause() {
  waiting_ = true;
  pause_.expires_after(kPauseWithoutDescriptors);
  pause_.async_wait([self = shared_from_this()](const error_code& failure) {
    self->waiting_ = false;
    if (!failure && self->acceptor_.is_open()) self->accept();
  });
}

void Listener::Loop::close() {
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  admit_.reset();
}

Result<std::unique_ptr<Listener>> Listener::open(asio::io_context& io, const std::string& address,
                                                 std::uint16_t port) {
  error_code failure;
  const auto ip = asio::ip::make_address(address, failure);
  if (failure)
    return Error{Errc::invalid_argument,
                 "not an IPv4 or IPv6 address: \"" + address + "\" (names are not looked up)"};
  auto loop = std::make_shared<Loop>(io);
  if (auto listening = loop->listen({ip, port}); !listening) return listening.error();
  return std::unique_ptr<Listener>(new Listener(std::move(loop)));
}

Listener::Listener(std::shared_ptr<Loop> loop) : loop_(std::move(loop)) {}

Listener::~Listener() {
  loop_->close();
}

void Listener::serve(std::string what, Admit admit) {
  loop_->serve(std::move(what), std::move(admit));
}

void Listener::stop_serving() {
  loop_->stop_serving();
}

void Listener::close() {
  loop_->close();
}

const tcp::endpoint& Listener::endpoint() const {
  return loop_->endpoint();
}

}  // namespace distrun::rendezvous
