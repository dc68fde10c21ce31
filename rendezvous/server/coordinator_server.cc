#include "rendezvous/server/coordinator_server.h"

#include "rendezvous/server/agent_session.h"
#include "rendezvous/server/first_bytes.h"
#include "rendezvous/server/http_session.h"
#include "rendezvous/server/pages.h"
#include "rendezvous/server/store_session.h"
#include "runtime/base/log.h"

#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>

namespace distrun::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>,
                                         asio::io_context::executor_type>;

namespace {

// "::ffff:10.0.0.1", which a socket of both kinds says, is 10.0.0.1 to everybody else.
asio::ip::address plain(const asio::ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
}

}  // namespace

// Held by its handlers too, so that a server can be destroyed while one is on its way.
class CoordinatorServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, std::unique_ptr<Listener> listener, CoordinatorServerOptions options)
      : io_(io),
        timer_(io),
        listener_(std::move(listener)),
        options_(std::move(options)),
        coordinator_(options_.limits, options_.authority),
        store_(options_.max_total_bytes, options_.max_connection_bytes),
        endpoint_(listener_->endpoint()) {}

  void start();
  void go_on();
  void close();
  std::unique_ptr<Listener> give_up_socket();
  const tcp::endpoint& endpoint() const { return endpoint_; }
  const Coordinator& coordinator() const { return coordinator_; }

 private:
  // New connections.
  void admit(Socket socket, const tcp::endpoint& peer);
  void welcome(const std::shared_ptr<Connection>& connection, std::string_view bytes);
  void begin_agent(const std::shared_ptr<Connection>& connection, std::string_view first);
  void report_address(const Connection& connection);
  void hear(SessionId session, AgentMessage message);
  bool let_alone(SessionId session, const AgentMessage& message);
  HttpAnswer page(std::string_view target) const;

  // Between the core and the world.
  void feed(Event event);
  void run_inbox();
  bool may_act() const {
    return !overfull_ && (!options_.may_act || options_.may_act(Clock::now()));
  }
  bool may_tell() const { return !options_.may_tell || options_.may_tell(Clock::now()); }
  void carry_out(const Effect& effect);
  bool ping_at_once(const Effect& effect);
  void hold(const Effect& effect);
  void on_saved();
  void release();
  void apply(const Send& send);
  void apply(const Drop& drop);
  void apply(const Save& save);
  void apply(const Forget& forget) const;
  void apply(const Note& note) const;
  void rearm();

  asio::io_context& io_;
  Timer timer_;
  std::unique_ptr<Listener> listener_;
  CoordinatorServerOptions options_;
  Coordinator coordinator_;
  StoreSessions store_;
  tcp::endpoint endpoint_;

  std::uint64_t last_connection_ = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<Connection>> connections_;  // not the store's
  int last_session_ = 0;
  struct Agent {
    std::shared_ptr<AgentSession> session;
    std::optional<Fence> told;  // the last round that it heard of
  };
  std::unordered_map<int, Agent> agents_;
  std::deque<Event> inbox_;
  bool busy_ = false;
  // From a record that is not durable yet on: what follows it, with the time of its event.
  std::deque<std::pair<Effect, TimePoint>> held_;
  int saved_ = 0;  // so many of the records in held_ are durable
  bool overfull_ = false;
  std::optional<TimePoint> armed_for_;
  bool closed_ = false;
  bool reports_address_ = false;
  std::string reached_at_;  // where others reached this host; empty: not known, or of no interest
  bool said_full_ = false;
  TimePoint now_{};  // of the event in hand
};

void CoordinatorServer::Impl::start() {
  now_ = Clock::now();
  if (options_.on_start) options_.on_start(options_.records, now_);
  for (Record& record : options_.records) coordinator_.restore(std::move(record), now_);
  options_.records.clear();
  reports_address_ = endpoint_.address().is_unspecified();
  listener_->serve("rendezvous",
                   [weak = weak_from_this()](Socket socket, const tcp::endpoint& peer) {
                     if (const auto self = weak.lock()) self->admit(std::move(socket), peer);
                   });
  rearm();
}

void CoordinatorServer::Impl::close() {
  if (listener_) listener_->close();
  if (std::exchange(closed_, true)) return;
  timer_.cancel();
  inbox_.clear();
  held_.clear();
  auto agents = std::move(agents_);
  for (const auto& [id, agent] : agents) agent.session->close();
  auto connections = std::move(connections_);
  for (const auto& [id, connection] : connections) connection->close();
  store_.close_all();
}

std::unique_ptr<Listener> CoordinatorServer::Impl::give_up_socket() {
  auto listener = std::move(listener_);
  listener->stop_serving();
  close();
  return listener;
}

// ---- new connections ---------------------------------------------------------------------------

void CoordinatorServer::Impl::admit(Socket socket, const tcp::endpoint& peer) {
  const std::size_t open = connections_.size() + store_.open.size();
  if (open >= static_cast<std::size_t>(std::max(options_.max_connections, 1))) {
    if (!std::exchange(said_full_, true))
      log::warn("refused a connection",
                {{"reason", endpoint_text(peer) + " is one more than " + std::to_string(open)}});
    return;
  }
  said_full_ = false;
  const std::uint64_t id = ++last_connection_;
  const auto connection = std::make_shared<Connection>(io_, std::move(socket), endpoint_text(peer),
                                                       [weak = weak_from_this(), id] {
                                                         if (const auto self = weak.lock())
                                                           self->connections_.erase(id);
                                                       });
  connections_.emplace(id, connection);
  connection->set_callbacks({.received =
                                 [weak = weak_from_this(), id](std::string_view bytes) {
                                   const auto self = weak.lock();
                                   if (!self) return;
                                   const auto found = self->connections_.find(id);
                                   if (found != self->connections_.end())
                                     self->welcome(std::shared_ptr(found->second), bytes);
                                 },
                             .lost =
                                 [text = endpoint_text(peer)](const std::string& why) {
                                   log::debug("a connection ended before it said what it is",
                                              {{"peer", text}, {"reason", why}});
                                 }});
  connection->set_deadline(options_.first_byte_within,
                           "silent for " + duration_text(options_.first_byte_within));
  connection->start();
}

void CoordinatorServer::Impl::welcome(const std::shared_ptr<Connection>& connection,
                                      std::string_view bytes) {
  // A lone "D" waits for more in the connection's own callbacks, which then have it before the
  // rest.
  switch (speaker_of(bytes)) {
    case Speaker::unknown: {
      auto rest = [weak = weak_from_this(), held = std::weak_ptr(connection),
                   first = std::string(bytes)](std::string_view more) {
        const auto self = weak.lock();
        const auto known = held.lock();
        if (self && known) self->welcome(known, first + std::string(more));
      };
      connection->set_deadline(options_.first_words_within, "said only half of what it is");
      return connection->set_callbacks({.received = std::move(rest), .lost = {}});
    }
    case Speaker::agent:
      return begin_agent(connection, bytes);
    case Speaker::http:
      return serve_http(connection, bytes, [weak = weak_from_this()](std::string_view target) {
        const auto self = weak.lock();
        return self ? self->page(target) : HttpAnswer{.status = 503};
      });
    case Speaker::store: {
      const std::string peer = connection->peer();
      store_.begin(connection->release(), peer, bytes);
    }
  }
}

void CoordinatorServer::Impl::begin_agent(const std::shared_ptr<Connection>& connection,
                                          std::string_view first) {
  // Ids are never given twice: the core may still speak of an old one.
  if (last_session_ == std::numeric_limits<int>::max()) return connection->close();
  const int id = ++last_session_;
  const auto session = std::make_shared<AgentSession>(
      connection, options_.first_words_within,
      AgentSession::Callbacks{.received =
                                  [weak = weak_from_this(), id](AgentMessage message) {
                                    if (const auto self = weak.lock())
                                      self->hear(SessionId(id), std::move(message));
                                  },
                              .closed =
                                  [weak = weak_from_this(), id] {
                                    const auto self = weak.lock();
                                    if (!self) return;
                                    self->agents_.erase(id);
                                    self->feed(Closed{SessionId(id)});
                                  }});
  agents_.emplace(id, Agent{session, std::nullopt});
  report_address(*connection);
  session->start(first);
}

void CoordinatorServer::Impl::report_address(const Connection& connection) {
  if (!reports_address_) return;
  const asio::ip::address here = plain(connection.local_endpoint().address());
  if (here.is_loopback() || here.is_unspecified()) return;
  reports_address_ = false;
  reached_at_ = here.to_string();
  feed(ReachedAt{reached_at_});
}

void CoordinatorServer::Impl::hear(SessionId session, AgentMessage message) {
  if (let_alone(session, message)) return;
  // A node on our own machine may know only loopback, which means another one to everybody else,
  // and come after a node that reached us.
  if (auto* join = std::get_if<Join>(&message); join != nullptr) {
    error_code not_an_address;
    const auto address = asio::ip::make_address(join->address, not_an_address);
    if (!not_an_address && address.is_loopback() && !reached_at_.empty())
      join->address = reached_at_;
  }
  feed(Received{session, std::move(message)});
}

// A job that cannot be gone on with may not begin anew either: its nodes may be at work.
bool CoordinatorServer::Impl::let_alone(SessionId session, const AgentMessage& message) {
  const auto* join = std::get_if<Join>(&message);
  if (join == nullptr || options_.unreadable.empty()) return false;
  const auto found = options_.unreadable.find(join->job);
  if (found == options_.unreadable.end()) return false;
  Refused refused;
  refused.code = join->held ? RefusalCode::not_yet : RefusalCode::limit;
  refused.why = found->second;
  apply(Send{session, refused});
  apply(Drop{session});
  return true;
}

HttpAnswer CoordinatorServer::Impl::page(std::string_view target) const {
  Figures figures;
  figures.agents = agents_.size();
  figures.store_connections = store_.open.size();
  figures.other_connections = connections_.size() - std::min(connections_.size(), agents_.size());
  figures.store_bytes = store_.budget.used();
  figures.store_bytes_limit = store_.budget.limit();
  return page_for(target, coordinator_, figures, Clock::now());
}

// ---- between the core and the world ------------------------------------------------------------

void CoordinatorServer::Impl::feed(Event event) {
  if (closed_) return;
  inbox_.push_back(std::move(event));
  if (!busy_) run_inbox();  // else an effect fed us: the loop will come to it
}

void CoordinatorServer::Impl::run_inbox() {
  const auto self = shared_from_this();
  busy_ = true;
  while (!inbox_.empty()) {
    if (!may_act()) inbox_.clear();
    if (inbox_.empty()) break;
    const Event next = std::move(inbox_.front());
    inbox_.pop_front();
    now_ = Clock::now();
    if (options_.on_input) options_.on_input(next, now_);
    for (const Effect& effect : coordinator_.handle(next, now_)) carry_out(effect);
  }
  busy_ = false;
  rearm();
}

void CoordinatorServer::Impl::carry_out(const Effect& effect) {
  const auto* save = std::get_if<Save>(&effect);
  const bool waits = save != nullptr && options_.save_async;
  // What is kept is kept in the order of its decisions: a Forget overtakes no Save, and no Save of
  // the job's next run overtakes it.  Nobody hears of one, so it waits for nothing.
  if (std::holds_alternative<Forget>(effect) || (held_.empty() && !waits && may_tell()))
    return std::visit([this](const auto& e) { apply(e); }, effect);
  if (ping_at_once(effect)) return;
  hold(effect);
  if (!waits) return;
  options_.save_async(*save->record, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->on_saved();
  });
}

// A member that is not pinged would be lost, whosever record takes so long.  But it may not hear of
// a round that is not durable.
bool CoordinatorServer::Impl::ping_at_once(const Effect& effect) {
  const auto* send = std::get_if<Send>(&effect);
  const Ping* ping = send == nullptr ? nullptr : std::get_if<Ping>(&send->message);
  if (ping == nullptr) return false;
  const auto found = agents_.find(send->session.value);
  if (found == agents_.end()) return true;
  if (!found->second.told) return false;  // it is new here
  Ping safe = *ping;
  safe.last = *found->second.told;
  apply(Send{send->session, safe});
  return true;
}

void CoordinatorServer::Impl::hold(const Effect& effect) {
  held_.emplace_back(effect, now_);
  if (held_.size() <= options_.max_held || std::exchange(overfull_, true)) return;
  if (options_.on_overfull) options_.on_overfull();
}

void CoordinatorServer::Impl::on_saved() {
  ++saved_;
  go_on();
}

void CoordinatorServer::Impl::go_on() {
  if (closed_) return;
  const auto self = shared_from_this();
  busy_ = true;
  if (may_act()) release();
  busy_ = false;
  if (!closed_) run_inbox();
}

void CoordinatorServer::Impl::release() {
  while (!held_.empty()) {
    const bool is_record = std::holds_alternative<Save>(held_.front().first);
    if ((is_record && saved_ == 0) || !may_tell()) return;
    const auto [effect, at] = std::move(held_.front());
    held_.pop_front();
    now_ = at;
    if (is_record) {
      --saved_;
    } else {
      std::visit([this](const auto& e) { apply(e); }, effect);
    }
  }
}

void CoordinatorServer::Impl::apply(const Send& send) {
  const auto found = agents_.find(send.session.value);
  if (found == agents_.end()) return;  // gone: the core will hear of it
  if (const auto* ping = std::get_if<Ping>(&send.message)) found->second.told = ping->last;
  if (const auto* welcome = std::get_if<Welcome>(&send.message))
    found->second.told = welcome->round;
  const auto session = found->second.session;
  session->send(send.message);
}

void CoordinatorServer::Impl::apply(const Drop& drop) {
  const auto found = agents_.find(drop.session.value);
  if (found == agents_.end()) return;
  const auto session = found->second.session;
  agents_.erase(found);
  session->drop();
}

void CoordinatorServer::Impl::apply(const Save& save) {
  if (!options_.save) return;
  if (const auto saved = options_.save(*save.record); !saved)
    log::error("cannot keep what is to outlive this process; the job goes on without it",
               {{"job", save.record->job}, {"reason", saved.error().detail}});
}

void CoordinatorServer::Impl::apply(const Forget& forget) const {
  if (!options_.forget) return;
  if (const auto forgotten = options_.forget(forget.job); !forgotten)
    log::warn("cannot forget an ended job",
              {{"job", forget.job}, {"reason", forgotten.error().detail}});
}

void CoordinatorServer::Impl::apply(const Note& note) const {
  if (options_.on_happening) options_.on_happening(note.happening, now_);
}

// One timer, pulled from the core: none can be forgotten.
void CoordinatorServer::Impl::rearm() {
  if (closed_) return;
  const auto deadline = coordinator_.next_deadline();
  if (deadline == armed_for_) return;
  armed_for_ = deadline;
  timer_.cancel();
  if (!deadline) return;
  timer_.expires_at(*deadline);
  timer_.async_wait([weak = weak_from_this()](const error_code& failure) {
    const auto self = weak.lock();
    if (failure || !self) return;
    self->armed_for_.reset();
    self->feed(Tick{});
  });
}

Result<std::unique_ptr<CoordinatorServer>> CoordinatorServer::listen(
    asio::io_context& io, CoordinatorServerOptions options) {
  auto listener = Listener::open(io, options.address, options.port);
  if (!listener) return listener.error();
  return adopt(io, std::move(*listener), std::move(options));
}

std::unique_ptr<CoordinatorServer> CoordinatorServer::adopt(asio::io_context& io,
                                                            std::unique_ptr<Listener> listener,
                                                            CoordinatorServerOptions options) {
  auto impl = std::make_shared<Impl>(io, std::move(listener), std::move(options));
  impl->start();
  return std::unique_ptr<CoordinatorServer>(new CoordinatorServer(std::move(impl)));
}

CoordinatorServer::CoordinatorServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

CoordinatorServer::~CoordinatorServer() {
  close();
}

std::uint16_t CoordinatorServer::port() const {
  return impl_->endpoint().port();
}

std::string CoordinatorServer::endpoint() const {
  return endpoint_text(impl_->endpoint());
}

const Coordinator& CoordinatorServer::coordinator() const {
  return impl_->coordinator();
}

void CoordinatorServer::go_on() {
  impl_->go_on();
}

void CoordinatorServer::close() {
  impl_->close();
}

std::unique_ptr<Listener> CoordinatorServer::give_up_socket() {
  return impl_->give_up_socket();
}

}  // namespace distrun::rendezvous
