#include "rendezvous/server/store_service.h"

#include <string>

namespace distrun::rendezvous {

using wire::ByteBuffer;
using wire::tcpstore::Op;
using wire::tcpstore::put_blob;
using wire::tcpstore::put_byte;
using wire::tcpstore::put_i64;
using wire::tcpstore::put_u32;
using wire::tcpstore::Request;

namespace {

std::int64_t as_i64(std::size_t size) {
  return static_cast<std::int64_t>(size);
}

}  // namespace

void StoreService::put_released(ByteBuffer& out) {
  put_byte(out, wire::tcpstore::kStopWaiting);
}

Result<void> StoreService::handle(ConnectionId connection, const Request& request, ByteBuffer& out,
                                  Released& released) {
  auto done = answer(connection, request, out, released);
  if (done) return done;
  return Error{done.error().code,
               std::string(name(request.op)) + ": " + std::move(done.error().detail)};
}

Result<void> StoreService::answer(ConnectionId connection, const Request& request, ByteBuffer& out,
                                  Released& released) {
  const auto args = request.args;
  switch (request.op) {
    case Op::set:
      return table_.set(args[0], args[1], released);
    case Op::append:
      return table_.append(args[0], args[1], released);
    case Op::queue_push:
      return table_.push(args[0], args[1], released);
    case Op::multi_set:
      for (std::size_t i = 0; i + 1 < args.size(); i += 2)
        if (auto done = table_.set(args[i], args[i + 1], released); !done) return done;
      return {};
    case Op::compare_set: {
      const auto held = table_.compare_set(args[0], args[1], args[2], released);
      if (!held) return held.error();
      put_blob(out, *held);
      return {};
    }
    case Op::get:
      put_blob(out, table_.get(args[0]));
      return {};
    case Op::multi_get:
      for (const auto key : args) put_blob(out, table_.get(key));
      return {};
    case Op::add: {
      const auto sum = table_.add(args[0], request.number, released);
      if (!sum) return sum.error();
      put_i64(out, *sum);
      return {};
    }
    case Op::check:
      put_byte(out, table_.check(args) ? wire::tcpstore::kReady : wire::tcpstore::kNotReady);
      return {};
    case Op::wait: {
      const auto ready = table_.wait(connection, args);
      if (!ready) return ready.error();
      if (*ready) put_released(out);
      return {};
    }
    case Op::barrier: {
      const auto last = table_.barrier(connection, args[0], request.number, released);
      if (!last) return last.error();
      if (*last) put_released(out);
      return {};
    }
    case Op::cancel_wait:
      table_.cancel_wait(connection);
      put_byte(out, wire::tcpstore::kWaitCanceled);
      return {};
    case Op::num_keys:
      put_i64(out, as_i64(table_.num_keys()));
      return {};
    case Op::delete_key:
      put_i64(out, table_.erase(args[0]) ? 1 : 0);
      return {};
    case Op::ping:
      put_u32(out, static_cast<std::uint32_t>(request.number));
      return {};
    case Op::queue_pop: {
      put_i64(out, as_i64(table_.queue_size(args[0])));
      if (const auto item = table_.pop(args[0])) put_blob(out, *item);
      return {};
    }
    case Op::queue_len:
      put_i64(out, as_i64(table_.queue_size(args[0])));
      return {};
    case Op::list_keys:
      put_i64(out, as_i64(table_.num_keys()));
      table_.for_each_key([&out](std::string_view key) { put_blob(out, key); });
      return {};
    case Op::watch_key:
      // Dropped from the protocol in 2023, never reachable from Python, and in PyTorch's own server
      // a watcher that is gone costs the next writer its connection.
      return Error{Errc::unsupported, "watching keys is not served"};
    case Op::validate:
      break;  // the decoder keeps it to itself
  }
  return Error{Errc::protocol, "not a request"};
}

}  // namespace distrun::rendezvous
