#include "rendezvous/server/connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>

#include <array>
#include <utility>

namespace distrun::rendezvous {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kReadBytes = 16UL * 1024;
constexpr std::size_t kIdleBytes = 4UL * 1024;

bool try_later(const error_code& failure) {
  return failure == asio::error::would_block || failure == asio::error::try_again;
}

}  // namespace

Connection::Connection(asio::io_context& io, Socket socket, std::string peer,
                       std::function<void()> ended)
    : socket_(std::move(socket)), timer_(io), peer_(std::move(peer)), ended_(std::move(ended)) {
  // Nothing here may wait, whoever opened it: a socket that Asio connected is in blocking mode.
  error_code ignored;  // of a socket that is gone already, which the first read finds
  socket_.non_blocking(true, ignored);
}

void Connection::set_callbacks(Callbacks callbacks) {
  callbacks_ = std::make_shared<const Callbacks>(std::move(callbacks));
}

void Connection::start() {
  read();
}

void Connection::set_deadline(Duration patience, std::string why) {
  timer_.expires_after(patience);
  timer_.async_wait([self = shared_from_this(), why = std::move(why)](const error_code& failure) {
    // A timer that had gone off when it was set anew is told by its time.
    if (!failure && self->timer_.expiry() <= Clock::now()) self->lose(why);
  });
}

void Connection::clear_deadline() {
  timer_.expires_at(TimePoint::max());
}

void Connection::read() {
  if (closed_ || awaiting_readable_) return;
  awaiting_readable_ = true;
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& failure) {
    self->awaiting_readable_ = false;
    if (!self->closed_) self->on_readable(failure);
  });
}

void Connection::on_readable(const error_code& failure) {
  if (failure) return lose(failure.message());
  std::array<char, kReadBytes> room;
  error_code broken;
  const std::size_t n = socket_.read_some(asio::buffer(room), broken);
  if (broken == asio::error::eof) {
    if (!finishing_ || outbox_.empty()) return lose("the other side closed it");
    peer_has_finished_ = true;  // but may read on
    return;
  }
  if (broken && !try_later(broken)) return lose(broken.message());
  if (!broken && !finishing_) {
    const auto callbacks = callbacks_;
    if (callbacks && callbacks->received) callbacks->received({room.data(), n});
  }
  read();
}

void Connection::send(std::string_view bytes, std::size_t max_unsent) {
  if (closed_ || finishing_) return;
  outbox_.append(bytes);
  flush();
  if (outbox_.size() > max_unsent)
    lose("does not read: " + std::to_string(outbox_.size()) + " bytes wait for it, at most " +
         std::to_string(max_unsent));
}

void Connection::flush() {
  while (!closed_ && !awaiting_writable_ && !outbox_.empty()) {
    error_code failure;
    const std::string_view bytes = outbox_.view();
    const std::size_t n = socket_.write_some(asio::buffer(bytes.data(), bytes.size()), failure);
    if (!failure) {
      outbox_.consume(n);
    } else if (try_later(failure)) {
      awaiting_writable_ = true;
      socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const error_code& waited) {
        self->awaiting_writable_ = false;
        if (!self->closed_) self->on_writable(waited);
      });
    } else {
      return lose(failure.message());
    }
  }
  outbox_.shrink(kIdleBytes);
}

void Connection::on_writable(const error_code& failure) {
  if (failure) return lose(failure.message());
  flush();
  if (finishing_ && outbox_.empty()) say_goodbye();
}

void Connection::finish(Duration patience) {
  if (closed_ || finishing_) return;
  finishing_ = true;
  callbacks_.reset();
  set_deadline(patience, "");
  flush();
  if (outbox_.empty()) say_goodbye();
}

// Closing at once could make the kernel answer what is still on its way here with a reset, which
// takes from the peer what it has not read yet.
void Connection::say_goodbye() {
  if (closed_) return;
  if (peer_has_finished_) return close();
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void Connection::lose(const std::string& why) {
  if (closed_) return;
  const auto callbacks = callbacks_;
  close();
  if (callbacks && callbacks->lost) callbacks->lost(why);
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  callbacks_.reset();
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
  const auto ended = std::exchange(ended_, nullptr);
  if (ended) ended();
}

Socket Connection::release() {
  Socket socket = std::move(socket_);
  close();
  return socket;
}

asio::ip::tcp::endpoint Connection::local_endpoint() const {
  error_code ignored;
  return socket_.local_endpoint(ignored);
}

asio::ip::tcp::endpoint Connection::remote_endpoint() const {
  error_code ignored;
  return socket_.remote_endpoint(ignored);
}

}  // namespace distrun::rendezvous
