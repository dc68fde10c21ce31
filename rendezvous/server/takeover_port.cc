#include "rendezvous/server/takeover_port.h"

#include "rendezvous/server/agent_session.h"
#include "rendezvous/server/connection.h"
#include "rendezvous/server/first_bytes.h"
#include "rendezvous/server/http_session.h"
#include "runtime/base/check.h"

#include <unordered_map>
#include <utility>

namespace distrun::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

// Each of a job's nodes asks with one connection at a time.
constexpr std::size_t kMaxAsking = 65'536;
constexpr Duration kJoinWithin = std::chrono::seconds(10);

}  // namespace

class TakeoverPort::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(asio::io_context& io) : io_(io) {
    answer_.code = RefusalCode::not_yet;
    answer_.why = "this node does not coordinate the job";
  }

  void take(std::unique_ptr<Listener> listener) {
    listener_ = std::move(listener);
    port_ = listener_->port();
    listener_->serve("takeover",
                     [weak = weak_from_this()](Socket socket, const tcp::endpoint& peer) {
                       if (const auto self = weak.lock()) self->admit(std::move(socket), peer);
                     });
  }
  std::unique_ptr<Listener> give_up() {
    DISTRUN_CHECK(listener_ != nullptr);
    listener_->stop_serving();
    return std::move(listener_);
  }
  void close() {
    listener_.reset();
    auto asking = std::move(asking_);
    for (const auto& [id, session] : asking) session->close();
    auto connections = std::move(connections_);
    for (const auto& [id, connection] : connections) connection->close();
  }
  void answer_with(Refused answer) { answer_ = std::move(answer); }
  std::uint16_t port() const { return port_; }

 private:
  void admit(Socket socket, const tcp::endpoint& peer) {
    if (connections_.size() >= kMaxAsking) return;
    const std::uint64_t id = ++last_id_;
    const auto connection = std::make_shared<Connection>(
        io_, std::move(socket), endpoint_text(peer), [weak = weak_from_this(), id] {
          if (const auto self = weak.lock()) self->connections_.erase(id);
        });
    connections_.emplace(id, connection);
    connection->set_callbacks({.received =
                                   [weak = weak_from_this(), id](std::string_view bytes) {
                                     if (const auto self = weak.lock()) self->hear(id, bytes);
                                   },
                               .lost = {}});
    connection->set_deadline(kJoinWithin, "it said nothing");
    connection->start();
  }

  void hear(std::uint64_t id, std::string_view bytes) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    const auto connection = found->second;
    if (speaker_of(bytes) == Speaker::http) {
      return serve_http(connection, bytes, [weak = weak_from_this()](std::string_view target) {
        const auto self = weak.lock();
        return self ? self->page(target) : HttpAnswer{.status = 503};
      });
    }
    const auto session = std::make_shared<AgentSession>(
        connection, kJoinWithin,
        AgentSession::Callbacks{.received =
                                    [weak = weak_from_this(), id](const AgentMessage&) {
                                      if (const auto self = weak.lock()) self->answer(id);
                                    },
                                .closed =
                                    [weak = weak_from_this(), id] {
                                      if (const auto self = weak.lock()) self->asking_.erase(id);
                                    }});
    asking_.emplace(id, session);
    session->start(bytes);
  }

  HttpAnswer page(std::string_view target) const {
    HttpAnswer page;
    page.body = answer_.why + "\n";
    if (answer_.port == 0 || answer_.address.empty()) {
      page.status = 503;
      return page;
    }
    const bool v6 = answer_.address.find(':') != std::string::npos;
    page.status = 307;
    page.location = "http://" + (v6 ? "[" + answer_.address + "]" : answer_.address) + ":" +
                    std::to_string(answer_.port) + std::string(target);
    return page;
  }

  void answer(std::uint64_t id) {
    const auto found = asking_.find(id);
    if (found == asking_.end()) return;
    const auto session = found->second;
    session->send(answer_);
    session->drop();
    asking_.erase(id);
  }

  asio::io_context& io_;
  std::unique_ptr<Listener> listener_;
  std::uint16_t port_ = 0;
  Refused answer_;
  std::uint64_t last_id_ = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<Connection>> connections_;
  std::unordered_map<std::uint64_t, std::shared_ptr<AgentSession>> asking_;
};

Result<std::unique_ptr<TakeoverPort>> TakeoverPort::listen(asio::io_context& io,
                                                           const std::string& address,
                                                           std::uint16_t port) {
  auto listener = Listener::open(io, address, port);
  if (!listener) return listener.error();
  return adopt(io, std::move(*listener));
}

std::unique_ptr<TakeoverPort> TakeoverPort::adopt(asio::io_context& io,
                                                  std::unique_ptr<Listener> listener) {
  auto impl = std::make_shared<Impl>(io);
  impl->take(std::move(listener));
  return std::unique_ptr<TakeoverPort>(new TakeoverPort(std::move(impl)));
}

TakeoverPort::TakeoverPort(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

TakeoverPort::~TakeoverPort() {
  impl_->close();
}

std::uint16_t TakeoverPort::port() const {
  return impl_->port();
}

void TakeoverPort::answer_with(Refused answer) {
  impl_->answer_with(std::move(answer));
}

std::unique_ptr<Listener> TakeoverPort::give_up_socket() {
  return impl_->give_up();
}

void TakeoverPort::take_back(std::unique_ptr<Listener> listener) {
  impl_->take(std::move(listener));
}

}  // namespace distrun::rendezvous
