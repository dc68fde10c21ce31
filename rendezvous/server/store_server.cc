#include "rendezvous/server/store_server.h"

#include "rendezvous/server/listener.h"
#include "rendezvous/server/store_session.h"
#include "runtime/base/log.h"

#include <algorithm>
#include <utility>

namespace distrun::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;

class StoreServer::Port {
 public:
  Port(std::unique_ptr<Listener> listener, const StoreServerOptions& options)
      : listener_(std::move(listener)),
        sessions_(options.max_total_bytes, options.max_connection_bytes),
        max_connections_(static_cast<std::size_t>(std::max(options.max_connections, 1))) {
    listener_->serve("store", [this](Socket socket, const tcp::endpoint& peer) {
      admit(std::move(socket), peer);
    });
  }

  const tcp::endpoint& endpoint() const { return listener_->endpoint(); }
  void close() {
    listener_->close();
    sessions_.close_all();
  }

 private:
  void admit(Socket socket, const tcp::endpoint& peer);

  std::unique_ptr<Listener> listener_;
  StoreSessions sessions_;
  std::size_t max_connections_;
  bool said_full_ = false;
};

void StoreServer::Port::admit(Socket socket, const tcp::endpoint& peer) {
  if (sessions_.open.size() >= max_connections_) {
    if (!std::exchange(said_full_, true))
      log::warn("refused a store connection",
                {{"reason",
                  endpoint_text(peer) + " is one more than " + std::to_string(max_connections_)}});
    return;
  }
  said_full_ = false;
  sessions_.begin(std::move(socket), endpoint_text(peer));
}

Result<std::unique_ptr<StoreServer>> StoreServer::listen(asio::io_context& io,
                                                         const StoreServerOptions& options) {
  auto listener = Listener::open(io, options.address, options.port);
  if (!listener) return listener.error();
  auto port = std::make_unique<Port>(std::move(*listener), options);
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(port)));
}

StoreServer::StoreServer(std::unique_ptr<Port> port) : port_(std::move(port)) {}

StoreServer::~StoreServer() {
  close();
}

std::uint16_t StoreServer::port() const {
  return port_->endpoint().port();
}

std::string StoreServer::endpoint() const {
  return endpoint_text(port_->endpoint());
}

void StoreServer::close() {
  port_->close();
}

}  // namespace distrun::rendezvous
