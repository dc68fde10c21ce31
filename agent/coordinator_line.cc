#include "agent/coordinator_line.h"

#include <boost/asio/error.hpp>

#include <algorithm>
#include <fcntl.h>
#include <utility>

namespace distrun::agent {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using rendezvous::member::NoAnswer;

// A coordinator that is there answers within this; then the next address is tried beside it.
constexpr Duration kStagger = std::chrono::milliseconds(250);
constexpr std::size_t kMaxUnsent = 4UL * 1024 * 1024;

// Plain IPv4 also for a connection of an IPv6 socket, and without the name of an interface, which
// means nothing on another machine.
std::string address_text(const asio::ip::address& address) {
  if (!address.is_v6()) return address.to_string();
  auto v6 = address.to_v6();
  if (v6.is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, v6).to_string();
  v6.scope_id(0);
  return v6.to_string();
}

// Only if all addresses refuse is there certainly no process.
NoAnswer weightier(std::optional<NoAnswer> a, NoAnswer b) {
  const auto weight = [](NoAnswer reason) {
    switch (reason) {
      case NoAnswer::refused:
        return 0;
      case NoAnswer::unknown:
        return 1;
      case NoAnswer::unreachable:
        return 2;
      case NoAnswer::alien:
        return 3;
    }
    return 0;
  };
  return a && weight(*a) > weight(b) ? *a : b;
}

}  // namespace

std::shared_ptr<CoordinatorLine> CoordinatorLine::dial(asio::io_context& io, io::Resolver& resolver,
                                                       const rendezvous::Contact& contact,
                                                       Duration timeout, Callbacks callbacks) {
  std::shared_ptr<CoordinatorLine> self(
      new CoordinatorLine(io, contact, timeout, std::move(callbacks)));
  self->deadline_.expires_after(timeout);
  self->deadline_.async_wait([weak = self->weak_from_this()](const error_code& failure) {
    const auto line = weak.lock();
    if (line && !failure) line->out_of_time();
  });
  // No more than half the time, so that a name that was found before can be dialled without a name
  // server, and the lookup's own words are heard.
  self->question_ =
      resolver.ask(contact.address, timeout / 2, [weak = self->weak_from_this()](auto addresses) {
        const auto line = weak.lock();
        if (line) line->on_addresses(std::move(addresses));
      });
  return self;
}

CoordinatorLine::CoordinatorLine(asio::io_context& io, const rendezvous::Contact& contact,
                                 Duration timeout, Callbacks callbacks)
    : io_(io),
      contact_(contact),
      timeout_(timeout),
      callbacks_(std::move(callbacks)),
      deadline_(io),
      stagger_(io) {}

void CoordinatorLine::on_addresses(Result<io::Resolver::Addresses> addresses) {
  if (over_) return;
  if (!addresses) {
    reason_ = NoAnswer::unknown;
    why_ = addresses.error().detail;
    return give_up();
  }
  left_ = std::move(*addresses);
  std::reverse(left_.begin(), left_.end());
  try_next();
}

void CoordinatorLine::try_next() {
  if (over_ || taken_) return;
  if (left_.empty()) {
    const bool waiting = std::any_of(attempts_.begin(), attempts_.end(),
                                     [](const AttemptPtr& attempt) { return !attempt->over; });
    if (!waiting) give_up();
    return;
  }
  const auto attempt = std::make_shared<Attempt>(io_, tcp::endpoint(left_.back(), contact_.port));
  left_.pop_back();
  attempts_.push_back(attempt);
  error_code failure;
  attempt->socket.open(attempt->endpoint.protocol(), failure);
  if (failure) return fail(attempt, NoAnswer::unreachable, failure.message());
  // Workers are forked from this process and must not hold the connection.
  ::fcntl(attempt->socket.native_handle(), F_SETFD, FD_CLOEXEC);
  attempt->socket.set_option(tcp::no_delay(true), failure);
  attempt->socket.async_connect(attempt->endpoint,
                                [weak = weak_from_this(), attempt](const error_code& connected) {
                                  const auto self = weak.lock();
                                  if (self) self->on_connected(attempt, connected);
                                });
  stagger_.expires_after(kStagger);
  stagger_.async_wait([weak = weak_from_this()](const error_code& waited) {
    const auto self = weak.lock();
    if (self && !waited && !self->left_.empty()) self->try_next();
  });
}

void CoordinatorLine::on_connected(const AttemptPtr& attempt, const error_code& failure) {
  if (over_ || taken_ || attempt->over) return;
  if (failure == asio::error::connection_refused) {
    return fail(attempt, NoAnswer::refused, "connection refused");
  }
  if (failure) return fail(attempt, NoAnswer::unreachable, failure.message());
  attempt->connection = std::make_shared<rendezvous::Connection>(
      io_, std::move(attempt->socket), rendezvous::endpoint_text(attempt->endpoint), nullptr);
  const std::weak_ptr<Attempt> weak_attempt = attempt;
  attempt->connection->set_callbacks(
      {[weak = weak_from_this(), weak_attempt](std::string_view bytes) {
         const auto self = weak.lock();
         const auto here = weak_attempt.lock();
         if (self && here) self->on_bytes(here, bytes);
       },
       [weak = weak_from_this(), weak_attempt](const std::string& why) {
         const auto self = weak.lock();
         const auto here = weak_attempt.lock();
         if (self && here) self->on_lost(here, why);
       }});
  attempt->connection->start();
  attempt->connection->send(rendezvous::greeting(), kMaxUnsent);
}

void CoordinatorLine::on_bytes(const AttemptPtr& attempt, std::string_view bytes) {
  if (over_ || attempt->over) return;
  attempt->decoder.feed(bytes);
  read_messages(attempt);
}

void CoordinatorLine::read_messages(const AttemptPtr& attempt) {
  while (!over_ && !attempt->over) {
    const auto payload = attempt->decoder.next();
    if (!payload) {
      if (attempt == taken_) return end("it broke the protocol: " + payload.error().detail);
      return fail(attempt, NoAnswer::alien,
                  payload.error().code == Errc::unsupported
                      ? payload.error().detail
                      : "something answers that is no coordinator of distrun");
    }
    if (!taken_ && attempt->decoder.greeted()) take(attempt);
    if (over_ || !*payload) return;
    auto message = rendezvous::decode_coordinator_message(**payload);
    if (!message) return end("it broke the protocol: " + message.error().detail);
    const auto received = callbacks_.received;
    if (received) received(std::move(*message));
  }
}

void CoordinatorLine::take(const AttemptPtr& attempt) {
  taken_ = attempt;
  deadline_.cancel();
  stagger_.cancel();
  close_attempts(attempt.get());
  const auto connected = callbacks_.connected;
  if (connected) connected(address_text(attempt->connection->local_endpoint().address()));
}

void CoordinatorLine::on_lost(const AttemptPtr& attempt, const std::string& why) {
  if (over_) return;
  if (attempt == taken_) return end(why);
  if (!attempt->over) fail(attempt, NoAnswer::alien, "took the connection, then: " + why);
}

void CoordinatorLine::fail(const AttemptPtr& attempt, NoAnswer reason, const std::string& what) {
  attempt->over = true;
  if (attempt->connection) attempt->connection->close();
  error_code ignored;
  attempt->socket.close(ignored);
  reason_ = weightier(reason_, reason);
  why_ += (why_.empty() ? "" : ", ") + rendezvous::endpoint_text(attempt->endpoint) + ": " + what;
  try_next();
}

void CoordinatorLine::out_of_time() {
  if (over_ || taken_) return;
  left_.clear();
  const std::string time = duration_text(timeout_);
  for (const AttemptPtr& attempt : std::vector<AttemptPtr>(attempts_)) {
    if (attempt->over || over_) continue;
    fail(attempt, NoAnswer::unreachable,
         attempt->connection ? "took the connection and said nothing for " + time
                             : "no answer within " + time);
  }
  if (over_) return;
  reason_ = weightier(reason_, NoAnswer::unknown);
  if (why_.empty()) why_ = contact_.address + ": no answer within " + time;
  give_up();
}

void CoordinatorLine::give_up() {
  if (over_) return;
  const auto told = callbacks_.not_connected;
  const NoAnswer reason = reason_.value_or(NoAnswer::unreachable);
  const std::string why = why_;
  hang_up();
  if (told) told(reason, why);
}

void CoordinatorLine::end(const std::string& why) {
  const auto told = callbacks_.closed;
  hang_up();
  if (told) told(why);
}

void CoordinatorLine::send(const rendezvous::AgentMessage& message) {
  if (over_ || !taken_) return;
  taken_->connection->send(rendezvous::encode(message), kMaxUnsent);
}

void CoordinatorLine::hang_up() {
  if (over_) return;
  over_ = true;
  callbacks_ = {};
  question_.reset();
  deadline_.cancel();
  stagger_.cancel();
  close_attempts(taken_.get());
  if (taken_) taken_->connection->finish();
}

void CoordinatorLine::close_attempts(const Attempt* but) {
  for (const AttemptPtr& attempt : attempts_) {
    if (attempt.get() == but) continue;
    attempt->over = true;
    if (attempt->connection) attempt->connection->close();
    error_code ignored;
    attempt->socket.close(ignored);
  }
}

}  // namespace distrun::agent
