#include "runtime/wire/tcpstore.h"

#include "runtime/base/check.h"
#include "runtime/wire/tcpstore_layout.h"

#include <array>
#include <bit>
#include <cstring>

namespace distrun::wire::tcpstore {
namespace {

// Up to g3 there is no VALIDATE; g1 still has WATCH_KEY in the middle.
constexpr std::array kWithWatch{
    Op::set,       Op::compare_set, Op::get,         Op::add,        Op::check,
    Op::wait,      Op::num_keys,    Op::watch_key,   Op::delete_key, Op::append,
    Op::multi_get, Op::multi_set,   Op::cancel_wait,
};
constexpr std::array kWithoutWatch{
    Op::set,      Op::compare_set, Op::get,    Op::add,       Op::check,     Op::wait,
    Op::num_keys, Op::delete_key,  Op::append, Op::multi_get, Op::multi_set, Op::cancel_wait,
};
constexpr std::array kWithValidate{
    Op::validate,  Op::set,       Op::compare_set, Op::get,        Op::add,
    Op::check,     Op::wait,      Op::num_keys,    Op::delete_key, Op::append,
    Op::multi_get, Op::multi_set, Op::cancel_wait, Op::ping,       Op::queue_push,
    Op::queue_pop, Op::queue_len, Op::list_keys,   Op::barrier,
};

// Which array, and how much of it the generation knew.
struct Numbering {
  std::string_view name;
  std::span<const Op> operations;
};
constexpr std::array<Numbering, kGenerationCount> kNumberings{{
    {"g0", std::span(kWithWatch).first(9)},
    {"g1", kWithWatch},
    {"g2", kWithoutWatch},
    {"g3", kWithoutWatch},
    {"g4", std::span(kWithValidate).first(13)},
    {"g5", std::span(kWithValidate).first(14)},
    {"g6", std::span(kWithValidate).first(17)},
    {"g7", std::span(kWithValidate).first(18)},
    {"g8", kWithValidate},
}};

const Numbering& numbering(Generation generation) {
  return kNumberings[static_cast<std::size_t>(generation)];
}

template <class T>
void put(std::string& out, T value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
  out.append(bytes.data(), bytes.size());
}

void put(std::string& out, std::string_view blob) {
  put(out, static_cast<std::uint64_t>(blob.size()));
  out.append(blob);
}

template <class T>
void put(ByteBuffer& out, T value) {
  std::memcpy(out.prepare(sizeof value).data(), &value, sizeof value);
  out.commit(sizeof value);
}

Error too_big(Op op, std::string_view what, std::size_t size, std::size_t limit) {
  return Error{Errc::limit, std::string(name(op)) + ": " + std::string(what) + " of " +
                                std::to_string(size) + "; at most " + std::to_string(limit)};
}

}  // namespace

std::string_view name(Op op) {
  return layout(op).name;
}

std::string_view name(Generation generation) {
  return numbering(generation).name;
}

std::span<const Op> operations(Generation generation) {
  return numbering(generation).operations;
}

std::optional<std::uint8_t> number_of(Generation generation, Op op) {
  const auto all = operations(generation);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] == op) return static_cast<std::uint8_t>(i);
  return std::nullopt;
}

ReplyShape reply_shape(Op op) {
  return layout(op).reply;
}

std::string encode_hello(Generation generation) {
  std::string out;
  if (const auto number = number_of(generation, Op::validate)) {
    put(out, *number);
    put(out, kMagic);
  }
  return out;
}

Result<std::string> encode_request(Generation generation, const Request& request) {
  const auto number = number_of(generation, request.op);
  if (!number)
    return Error{Errc::unsupported, std::string(name(request.op)) + ": not in generation " +
                                        std::string(name(generation)) + " of the protocol"};
  std::string out;
  if (generation == Generation::g3) put(out, kMagic);
  put(out, *number);
  auto args = request.args;
  for (const Field field : layout(request.op).fields) {
    switch (field) {
      case Field::none:
        break;
      case Field::key:
      case Field::value:
        DISTRUN_CHECK(!args.empty());
        put(out, args.front());
        args = args.subspan(1);
        break;
      case Field::keys:
      case Field::pairs:
        DISTRUN_CHECK(field == Field::keys || args.size() % 2 == 0);
        put(out, static_cast<std::uint64_t>(field == Field::keys ? args.size() : args.size() / 2));
        for (const std::string_view arg : args) put(out, arg);
        args = {};
        break;
      case Field::number:
        put(out, request.number);
        break;
      case Field::nonce:
        put(out, static_cast<std::uint32_t>(request.number));
        break;
    }
  }
  DISTRUN_CHECK(args.empty());
  return out;
}

Result<void> check_limits(const Request& request, const Limits& limits) {
  const auto& fields = layout(request.op).fields;
  const bool list = fields[0] == Field::keys || fields[0] == Field::pairs;
  const std::size_t stride = fields[0] == Field::pairs ? 2 : 1;
  if (list && request.args.size() / stride > limits.keys_per_request)
    return too_big(request.op, "a key count", request.args.size() / stride,
                   limits.keys_per_request);
  std::size_t total = 0;
  for (std::size_t i = 0; i < request.args.size(); ++i) {
    const std::size_t size = request.args[i].size();
    const bool is_key = list ? i % stride == 0 : i == 0;
    const std::size_t limit = is_key ? limits.key_bytes : limits.value_bytes;
    if (size > limit) return too_big(request.op, is_key ? "a key" : "a value", size, limit);
    total += sizeof(std::uint64_t) + size + kHeldPerArgument;
  }
  if (total > limits.request_bytes)
    return too_big(request.op, "a request", total, limits.request_bytes);
  return {};
}

void put_byte(ByteBuffer& out, std::uint8_t value) {
  put(out, value);
}
void put_u32(ByteBuffer& out, std::uint32_t value) {
  put(out, value);
}
void put_i64(ByteBuffer& out, std::int64_t value) {
  put(out, value);
}
void put_blob(ByteBuffer& out, std::string_view bytes) {
  put(out, static_cast<std::uint64_t>(bytes.size()));
  out.append(bytes);
}

}  // namespace distrun::wire::tcpstore
