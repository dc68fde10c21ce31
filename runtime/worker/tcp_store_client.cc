#include "runtime/worker/tcp_store_client.h"

#include "runtime/base/backoff.h"
#include "runtime/base/check.h"
#include "runtime/worker/deadline.h"

#include <array>
#include <random>
#include <thread>
#include <unistd.h>

namespace distrun {
namespace {

namespace tcpstore = wire::tcpstore;
using tcpstore::Generation;
using tcpstore::Op;

constexpr Backoff::Limits kRetryPauses{.first = std::chrono::milliseconds(20),
                                       .cap = std::chrono::seconds(1)};
// An answer to CANCEL_WAIT comes at once or never.
constexpr auto kCancelPatience = std::chrono::seconds(5);

Generation generation_of(StoreProtocol protocol) {
  switch (protocol) {
    case StoreProtocol::automatic:
      return Generation::g5;
    case StoreProtocol::torch_1_13:
      return Generation::g0;
    case StoreProtocol::torch_2_4:
      return Generation::g4;
    case StoreProtocol::torch_2_5:
      return Generation::g5;
    case StoreProtocol::torch_2_8:
      return Generation::g6;
    case StoreProtocol::newest:
      return Generation::g8;
  }
  return Generation::g5;
}

Result<tcpstore::Reply> receive_on(TcpConnection& connection, const tcpstore::Request& request,
                                   TimePoint deadline) {
  tcpstore::ReplyDecoder decoder(request);
  std::array<char, std::size_t{16} * 1024> part;
  while (decoder.wanted() > 0) {
    const auto got =
        connection.receive(part.data(), std::min(part.size(), decoder.wanted()), deadline);
    if (!got) return got.error();
    if (auto fed = decoder.feed({part.data(), *got}); !fed) return fed.error();
  }
  return decoder.take();
}

Result<tcpstore::Reply> exchange_on(TcpConnection& connection, Generation generation,
                                    const tcpstore::Request& request, TimePoint deadline) {
  const auto bytes = tcpstore::encode_request(generation, request);
  if (!bytes) return bytes.error();
  if (auto sent = connection.send(*bytes, deadline); !sent) return sent.error();
  return receive_on(connection, request, deadline);
}

// What a hello is followed by, to see whether the server took it.  A 1.13 server takes VALIDATE and
// the four bytes behind it for a SET and the length of its key.  It must refuse that length at
// once: were the highest byte 0, it would try to make room for gigabytes, and wait for them.
struct Question {
  tcpstore::Request request;
  int times = 1;
};

Question question_for(Generation generation, bool server_is_known) {
  if (generation < Generation::g4) return {{.op = Op::check, .args = {}, .number = 0}};  // READY
  if (generation == Generation::g4) return {{.op = Op::num_keys, .args = {}, .number = 0}, 4};
  constexpr int kAbsurdLength = 0x80'00'00;  // above every process id
  return {{.op = Op::ping,
           .args = {},
           .number = server_is_known ? ::getpid() : ::getpid() | kAbsurdLength}};
}

}  // namespace

TcpStoreClient::TcpStoreClient(std::string host, std::uint16_t port, StoreProtocol protocol,
                               TimePoint deadline)
    : host_(std::move(host)),
      port_(port),
      wanted_(protocol),
      generation_(generation_of(protocol)),
      generation_is_known_(protocol != StoreProtocol::automatic) {
  connect_until(deadline);
}

std::string TcpStoreClient::where() const {
  const bool v6 = host_.find(':') != std::string::npos;
  return "store at " + (v6 ? "[" + host_ + "]" : host_) + ":" + std::to_string(port_);
}

Result<TcpConnection> TcpStoreClient::open_as(Generation generation, TimePoint deadline) const {
  auto connection = TcpConnection::connect(host_, port_, deadline);
  if (!connection) return connection;
  // Alone in its write: some servers drop a VALIDATE that comes in pieces or in company.
  const std::string hello = tcpstore::encode_hello(generation);
  if (auto sent = connection->send(hello, deadline); !sent) return sent.error();
  const Question question = question_for(generation, wanted_ != StoreProtocol::automatic);
  const auto bytes = tcpstore::encode_request(generation, question.request);
  if (!bytes) return bytes.error();
  std::string all;
  for (int i = 0; i < question.times; ++i) all += *bytes;
  if (auto sent = connection->send(all, deadline); !sent) return sent.error();
  for (int i = 0; i < question.times; ++i) {
    const auto reply = receive_on(*connection, question.request, deadline);
    if (!reply) return reply.error();
    const bool fits =
        question.request.op == Op::num_keys || reply->number == question.request.number;
    if (!fits) return Error{Errc::protocol, "something else than a store answers there"};
  }
  return connection;
}

Result<TcpConnection> TcpStoreClient::open(TimePoint deadline) {
  auto connection = open_as(generation_, deadline);
  if (connection || wanted_ != StoreProtocol::automatic) return connection;
  for (const Generation older : {Generation::g4, Generation::g0}) {
    // Only a server that hung up on the hello may be an older one.
    if (connection.error().code != Errc::closed || older >= generation_) continue;
    auto retry = open_as(older, deadline);
    if (retry) {
      generation_ = older;
      generation_is_known_ = true;
      return retry;
    }
    connection = std::move(retry);
  }
  return connection;
}

void TcpStoreClient::connect_until(TimePoint deadline) {
  const TimePoint start = Clock::now();
  std::mt19937_64 random(static_cast<std::uint64_t>(::getpid()) ^
                         static_cast<std::uint64_t>(start.time_since_epoch().count()));
  Backoff backoff(kRetryPauses);
  for (int tries = 1;; ++tries) {
    auto connection = open(deadline);
    if (connection) {
      connection_ = std::move(*connection);
      local_address_ = connection_.local_address();
      return;
    }
    // Waiting makes a store out of nothing else.
    if (connection.error().code == Errc::protocol)
      throw DistNetworkError(where() + ": " + connection.error().detail);
    const Duration pause = backoff.next(random);
    if (Clock::now() + pause >= deadline) {
      const auto spent = std::chrono::duration_cast<Timeout>(Clock::now() - start);
      throw DistNetworkError(where() + ": the client socket has timed out after " +
                             to_string(spent) + " and " + std::to_string(tries) +
                             (tries == 1 ? " try" : " tries") +
                             " to connect: " + connection.error().detail);
    }
    std::this_thread::sleep_for(pause);
  }
}

void TcpStoreClient::fail(const Error& error, Op op) {
  const std::string what = where() + ": " + std::string(tcpstore::name(op)) + ": " + error.detail;
  connection_.close();
  // A late answer would be taken for the next request's: that connection is given up, not the
  // store.
  if (error.code == Errc::timeout) throw DistTimeoutError(what);
  lost_ = what;
  throw DistNetworkError(what + "; did the server end, or is it older than this request?");
}

void TcpStoreClient::send(const Request& request, TimePoint deadline) {
  if (lost_) throw DistNetworkError("no longer connected: " + *lost_);
  if (auto fits = tcpstore::check_limits(request, {}); !fits)
    throw DistArgumentError(where() + ": " + fits.error().detail);
  if (!connection_.is_open()) connect_until(deadline);
  const auto bytes = tcpstore::encode_request(generation_, request);
  if (!bytes) throw DistUnsupportedError(where() + ": " + bytes.error().detail);
  if (auto sent = connection_.send(*bytes, deadline); !sent) fail(sent.error(), request.op);
}

TcpStoreClient::Reply TcpStoreClient::receive(const Request& request, TimePoint deadline) {
  auto reply = receive_on(connection_, request, deadline);
  if (!reply) fail(reply.error(), request.op);
  return std::move(*reply);
}

TcpStoreClient::Reply TcpStoreClient::exchange(const Request& request, TimePoint deadline) {
  send(request, deadline);
  return receive(request, deadline);
}

bool TcpStoreClient::wait(const Request& request, TimePoint deadline) {
  // The sending has a patience of its own, so that a wait of no length still asks.
  send(request, std::max(deadline, Clock::now() + kCancelPatience));
  char answer = 0;
  // A wait of no length gives the server the time of a round trip.
  const TimePoint limit = std::max(deadline, Clock::now() + std::chrono::milliseconds(1));
  auto got = connection_.receive(&answer, 1, limit);
  if (got && answer == tcpstore::kStopWaiting) return true;
  if (got)
    fail({Errc::protocol, "an answer that it cannot have: " + std::to_string(answer)}, request.op);
  if (got.error().code != Errc::timeout) fail(got.error(), request.op);

  const Request cancel{.op = Op::cancel_wait, .args = {}, .number = 0};
  if (!tcpstore::number_of(generation_, cancel.op)) {
    connection_.close();  // 1.13: the only way to be rid of the answer
    return false;
  }
  const TimePoint patience = Clock::now() + kCancelPatience;
  send(cancel, patience);
  bool satisfied = false;  // the answer may have been under way
  do {
    got = connection_.receive(&answer, 1, patience);
    if (!got) fail(got.error(), cancel.op);
    if (answer == tcpstore::kStopWaiting) satisfied = true;
  } while (answer != tcpstore::kWaitCanceled);
  return satisfied;
}

bool TcpStoreClient::server_has(Op op, TimePoint deadline) {
  if (generation_is_known_) return tcpstore::number_of(generation_, op).has_value();
  if (tcpstore::number_of(Generation::g5, op)) return true;
  // All queue operations came at once.
  const bool queue = op == Op::queue_push || op == Op::queue_pop || op == Op::queue_len;
  const Op question = queue ? Op::queue_len : op;
  if (const auto known = asked_.find(question); known != asked_.end()) return known->second;

  // QUEUE_LEN and LIST_KEYS change nothing; BARRIER leaves a key, which is removed.
  const std::array<std::string_view, 1> key{"/distrun/probe"};
  Request request{.op = question, .args = key, .number = 1};
  if (question == Op::list_keys) request.args = {};
  auto connection = open_as(generation_, deadline);
  if (!connection)
    throw DistNetworkError(where() + ": asking for " + std::string(tcpstore::name(question)) +
                           ": " + connection.error().detail);
  const auto reply = exchange_on(*connection, Generation::g8, request, deadline);
  if (!reply && reply.error().code != Errc::closed)
    throw DistNetworkError(where() + ": asking for " + std::string(tcpstore::name(question)) +
                           ": " + reply.error().detail);
  if (reply && question == Op::barrier) {
    request.op = Op::delete_key;
    static_cast<void>(exchange_on(*connection, Generation::g8, request, deadline));
  }
  asked_[question] = reply.has_value();
  if (reply) generation_ = Generation::g8;  // the numbers of the older operations are the same
  return reply.has_value();
}

StoreProtocol TcpStoreClient::protocol() const {
  switch (generation_) {
    case Generation::g0:
    case Generation::g1:
    case Generation::g2:
    case Generation::g3:
      return StoreProtocol::torch_1_13;
    case Generation::g4:
      return StoreProtocol::torch_2_4;
    case Generation::g5:
      return StoreProtocol::torch_2_5;
    case Generation::g6:
    case Generation::g7:
      return StoreProtocol::torch_2_8;
    case Generation::g8:
      break;
  }
  const auto has = [this](Op op) {
    const auto known = asked_.find(op);
    return generation_is_known_ || (known != asked_.end() && known->second);
  };
  if (has(Op::barrier)) return StoreProtocol::newest;
  return StoreProtocol::torch_2_8;
}

}  // namespace distrun
