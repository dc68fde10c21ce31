#include "rendezvous/server/store_session.h"

#include "runtime/base/log.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>

#include <utility>

namespace distrun::rendezvous {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// A connection that has nothing to say keeps this much.
constexpr std::size_t kIdleBytes = 16UL * 1024;
// More unsent answers than this, and their reader is served no further until it has read.
constexpr std::size_t kDrainAbove = 256UL * 1024;

wire::tcpstore::Limits limits_for(std::size_t connection_bytes) {
  wire::tcpstore::Limits limits;
  limits.request_bytes = connection_bytes;
  return limits;
}

}  // namespace

void StoreSessions::begin(Socket socket, std::string peer, std::string_view first) {
  const auto id = static_cast<ConnectionId>(++last_id);
  const auto session =
      std::make_shared<StoreSession>(std::move(socket), std::move(peer), id, *this);
  open.emplace(id, session);
  session->start(first);
}

void StoreSessions::close_all() {
  std::vector<std::shared_ptr<StoreSession>> closing;
  for (const auto& [id, session] : open) closing.push_back(session);
  for (const auto& session : closing) session->close();
}

StoreSession::StoreSession(Socket socket, std::string peer, ConnectionId id,
                           StoreSessions& sessions)
    : socket_(std::move(socket)),
      peer_(std::move(peer)),
      id_(id),
      sessions_(sessions),
      decoder_(limits_for(sessions.connection_bytes)) {}

void StoreSession::start(std::string_view first) {
  decoder_.feed(first);
  serve();
}

void StoreSession::read() {
  const auto room = decoder_.prepare();
  if (!account()) return;
  socket_.async_read_some(asio::buffer(room.data(), room.size()),
                          [self = shared_from_this()](const error_code& failure, std::size_t n) {
                            self->on_read(failure, n);
                          });
}

void StoreSession::on_read(const error_code& failure, std::size_t n) {
  if (closed_) return;
  if (failure) {
    // A peer that only closed its sending side is gone as well: no client of the protocol does
    // that.
    if (failure != asio::error::eof || !decoder_.idle())
      log::debug("a store connection broke off",
                 {{"peer", peer_},
                  {"reason", decoder_.idle() ? failure.message() : "in the middle of a request"}});
    return close();
  }
  decoder_.commit(n);
  serve();
}

// Answers every whole request that is here, with one write unless the answers are large.
void StoreSession::serve() {
  for (bool all = false; !all;) {
    const Result<bool> answered = answer_requests();
    if (!answered) return refuse(answered.error());
    all = *answered;
    flush_released();
    flush();
    if (closed_) return;
    draining_ = outbox_.size() > kDrainAbove;
    if (draining_) {
      account();
      return;
    }
  }
  decoder_.shrink(kIdleBytes);
  outbox_.shrink(kIdleBytes);
  read();
}

// True: all that are here.  False: the answers are to be written before there are more.
Result<bool> StoreSession::answer_requests() {
  while (outbox_.size() <= kDrainAbove) {
    auto request = decoder_.next();
    if (!request) return request.error();
    if (!request->has_value()) return true;
    if (auto done = execute(**request); !done) return done.error();
  }
  return false;
}

Result<void> StoreSession::execute(const wire::tcpstore::Request& request) {
  Released& released = sessions_.released;
  auto done = sessions_.service.handle(id_, request, outbox_, released);
  // Also after an error: a MULTI_SET may have written some of its keys.
  for (const ConnectionId connection : released) release(connection);
  released.clear();
  if (!done) return done;
  if (outbox_.size() > kDrainAbove + sessions_.connection_bytes)
    return Error{Errc::limit, "answers of " + std::to_string(outbox_.size()) +
                                  " bytes are not read; at most " +
                                  std::to_string(sessions_.connection_bytes)};
  return {};
}

void StoreSession::release(ConnectionId connection) {
  const auto found = sessions_.open.find(connection);
  if (found == sessions_.open.end()) return;
  StoreSession& other = *found->second;
  StoreService::put_released(other.outbox_);
  if (&other == this || other.in_unsent_) return;
  other.in_unsent_ = true;
  sessions_.unsent.push_back(found->second);
}

void StoreSession::flush_released() {
  auto& unsent = sessions_.unsent;
  for (const auto& session : unsent) {
    session->in_unsent_ = false;
    session->flush();  // it is charged for its byte when it is next served
  }
  unsent.clear();
}

void StoreSession::flush() {
  while (!closed_ && !awaiting_writable_ && !outbox_.empty()) {
    error_code failure;
    const std::string_view bytes = outbox_.view();
    const std::size_t n = socket_.write_some(asio::buffer(bytes.data(), bytes.size()), failure);
    if (!failure) {
      outbox_.consume(n);
    } else if (failure == asio::error::would_block || failure == asio::error::try_again) {
      awaiting_writable_ = true;
      socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const error_code& waited) {
        self->on_writable(waited);
      });
    } else {
      close();
    }
  }
}

void StoreSession::on_writable(const error_code& failure) {
  if (closed_) return;
  if (failure) return close();
  awaiting_writable_ = false;
  flush();
  if (closed_) return;
  if (draining_ && outbox_.size() <= kDrainAbove) {
    draining_ = false;
    serve();
  } else {
    account();
  }
}

// Charges what the buffers hold now; false: over the total, and closed.
bool StoreSession::account() {
  if (closed_) return false;
  const std::size_t held = decoder_.memory() + outbox_.capacity();
  if (held <= charged_) {
    sessions_.budget.give_back(charged_ - held);
  } else if (!sessions_.budget.take(held - charged_)) {
    refuse(Error{Errc::limit, "no memory for " + std::to_string(held) + " bytes of buffers: " +
                                  std::to_string(sessions_.budget.used()) + " of " +
                                  std::to_string(sessions_.budget.limit()) + " are in use"});
    return false;
  }
  charged_ = held;
  return true;
}

void StoreSession::refuse(const Error& error) {
  log::warn("closed a store connection", {{"peer", peer_}, {"reason", error.detail}});
  flush_released();
  flush();  // answers to what was in order before
  close();
}

void StoreSession::close() {
  if (closed_) return;
  closed_ = true;
  sessions_.service.disconnected(id_);
  sessions_.budget.give_back(charged_);
  charged_ = 0;
  error_code ignored;
  socket_.close(ignored);
  sessions_.open.erase(id_);
}

}  // namespace distrun::rendezvous
