#include "rendezvous/etcd/gateway/link.h"

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <utility>

namespace distrun::rendezvous::etcd {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

// A part of what a try has: addresses from before are of use, too.
constexpr Duration kLookUp = std::chrono::milliseconds(200);

Link::Trouble broken(const error_code& failure) {
  Link::Trouble trouble;
  trouble.ended = failure == asio::error::eof;
  trouble.why = trouble.ended ? "the connection was closed"
                              : "the connection broke (" + failure.message() + ")";
  return trouble;
}

Link::Trouble trouble_of(const Error& error) {
  return {.why = error.detail, .ended = false, .hopeless = error.code == Errc::unsupported};
}

}  // namespace

Link::Link(asio::io_context& io, io::Resolver& resolver, std::shared_ptr<Target> to,
           std::shared_ptr<const Tls> tls)
    : io_(io), socket_(io), resolver_(resolver), to_(std::move(to)), tls_(std::move(tls)) {}

void Link::close() {
  ++turn_;
  open_ = false;
  connected_ = written_ = nullptr;
  read_ = nullptr;
  question_.reset();
  // The one that is being dialled has not answered.
  if (addresses_ > 0) to_->first = (to_->first + addresses_ - left_.size()) % addresses_;
  addresses_ = 0;
  error_code ignored;
  socket_.close(ignored);
}

void Link::fail(Trouble trouble) {
  const auto connected = std::move(connected_);
  const auto written = std::move(written_);
  const auto read = std::move(read_);
  const auto self = shared_from_this();  // whoever hears of it may let go
  close();
  if (connected) return connected(trouble);
  if (written) return written(trouble);
  if (read) read(trouble, {});
}

// ---- connecting --------------------------------------------------------------------------------

void Link::connect(Done done) {
  connected_ = std::move(done);
  question_ = resolver_.ask(to_->endpoint.host, kLookUp,
                            [self = shared_from_this(), turn = turn_](const auto& found) {
                              if (turn != self->turn_) return;
                              if (found) return self->dial(*found);
                              self->fail({.why = found.error().detail});
                            });
}

void Link::dial(io::Resolver::Addresses addresses) {
  addresses_ = addresses.size();
  const auto first = static_cast<std::ptrdiff_t>(to_->first % addresses_);
  std::rotate(addresses.begin(), addresses.begin() + first, addresses.end());
  std::reverse(addresses.begin(), addresses.end());
  left_ = std::move(addresses);
  dial_next({});
}

void Link::dial_next(const error_code& failure) {
  if (left_.empty()) return fail({.why = failure.message()});
  const tcp::endpoint to(left_.back(), to_->endpoint.port);
  left_.pop_back();
  error_code ignored;
  socket_.close(ignored);
  socket_.async_connect(to, [self = shared_from_this(), turn = turn_](const error_code& ec) {
    if (turn != self->turn_) return;
    if (ec) return self->dial_next(ec);
    self->on_connected();
  });
}

void Link::on_connected() {
  to_->first = (to_->first + addresses_ - left_.size() - 1) % addresses_;
  addresses_ = 0;
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  if (tls_) {
    session_ = tls_->begin(to_->endpoint.host);
    return shake_hands();
  }
  open_ = true;
  const auto done = std::exchange(connected_, nullptr);
  done(std::nullopt);
}

void Link::shake_hands() {
  const auto went = session_->advance();
  const bool refused = !went;
  // An alert that says why goes out also then, as far as the socket takes it at once.
  std::string bytes = session_->to_send();
  if (refused) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
    socket_.write_some(asio::buffer(bytes), ignored);
    return fail(trouble_of(went.error()));
  }
  const bool over = session_->is_open();
  send(std::move(bytes), [self = shared_from_this(), over](const std::optional<Trouble>&) {
    if (!over) return self->receive();
    self->open_ = true;
    const auto done = std::exchange(self->connected_, nullptr);
    done(std::nullopt);
  });
}

// ---- bytes -------------------------------------------------------------------------------------

void Link::write(std::string bytes, Done done) {
  if (session_) {
    session_->say(bytes);
    bytes = session_->to_send();
  }
  send(std::move(bytes), std::move(done));
}

void Link::send(std::string bytes, Done done) {
  sending_ = std::move(bytes);
  written_ = std::move(done);
  asio::async_write(socket_, asio::buffer(sending_),
                    [self = shared_from_this(), turn = turn_](const error_code& ec, std::size_t) {
                      if (turn != self->turn_) return;
                      if (ec) return self->fail(broken(ec));
                      const auto sent = std::exchange(self->written_, nullptr);
                      sent(std::nullopt);
                    });
}

void Link::read(Read read) {
  read_ = std::move(read);
  if (!session_) return receive();
  // What came with the handshake's last bytes, or with those before.
  asio::post(io_, [self = shared_from_this(), turn = turn_] {
    if (turn == self->turn_ && !self->deliver()) self->receive();
  });
}

void Link::receive() {
  socket_.async_read_some(asio::buffer(received_), [self = shared_from_this(), turn = turn_](
                                                       const error_code& ec, std::size_t size) {
    if (turn == self->turn_) self->on_received(ec, size);
  });
}

void Link::on_received(const error_code& failure, std::size_t size) {
  if (failure) {
    Trouble trouble = broken(failure);
    if (session_ && !open_) {  // so does an etcd that does not expect TLS
      trouble.why =
          "it closed the connection when TLS was to begin; if it speaks none, give etcd:// "
          "or, to an agent, --rdzv-conf protocol=http";
    }
    return fail(std::move(trouble));
  }
  const std::string_view bytes(received_.data(), size);
  if (!session_) {
    const auto read = std::exchange(read_, nullptr);
    return read(std::nullopt, bytes);
  }
  session_->take(bytes);
  if (!open_) return shake_hands();
  if (const auto went = session_->advance(); !went) return fail(trouble_of(went.error()));
  if (!deliver()) receive();
}

bool Link::deliver() {
  const std::string said = session_->said();
  if (said.empty() && session_->has_ended()) {
    fail(broken(asio::error::eof));
    return true;
  }
  if (said.empty()) return false;
  const auto read = std::exchange(read_, nullptr);
  read(std::nullopt, said);
  return true;
}

}  // namespace distrun::rendezvous::etcd
