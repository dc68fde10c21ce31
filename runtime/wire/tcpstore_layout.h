// What follows the request number, per operation, as data.  Shared by encoder and decoder, so that
// they cannot disagree; nobody else includes this.
#pragma once

#include "runtime/wire/tcpstore.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace distrun::wire::tcpstore {

enum class Field : std::uint8_t {
  none,
  key,     // blob
  value,   // blob
  keys,    // u64 count, then that many keys
  pairs,   // u64 count, then that many times key, value
  number,  // i64
  nonce,   // u32
};

// What holding one argument of an unfinished request costs beside its bytes: an empty one is not
// free, so that a list of them ends at a limit too.
inline constexpr std::size_t kHeldPerArgument = 2 * sizeof(std::string_view);

struct Layout {
  Op op;
  std::string_view name;
  std::array<Field, 3> fields;
  ReplyShape reply;
};

inline constexpr std::array<Layout, kOpCount> kLayouts{{
    {Op::validate, "VALIDATE", {Field::nonce}, ReplyShape::none},
    {Op::set, "SET", {Field::key, Field::value}, ReplyShape::none},
    {Op::compare_set, "COMPARE_SET", {Field::key, Field::value, Field::value}, ReplyShape::blob},
    {Op::get, "GET", {Field::key}, ReplyShape::blob},
    {Op::add, "ADD", {Field::key, Field::number}, ReplyShape::number},
    {Op::check, "CHECK", {Field::keys}, ReplyShape::byte},
    {Op::wait, "WAIT", {Field::keys}, ReplyShape::byte},
    {Op::num_keys, "GETNUMKEYS", {}, ReplyShape::number},
    {Op::watch_key, "WATCH_KEY", {Field::key}, ReplyShape::byte},
    {Op::delete_key, "DELETE_KEY", {Field::key}, ReplyShape::number},
    {Op::append, "APPEND", {Field::key, Field::value}, ReplyShape::none},
    {Op::multi_get, "MULTI_GET", {Field::keys}, ReplyShape::blob_per_key},
    {Op::multi_set, "MULTI_SET", {Field::pairs}, ReplyShape::none},
    {Op::cancel_wait, "CANCEL_WAIT", {}, ReplyShape::byte},
    {Op::ping, "PING", {Field::nonce}, ReplyShape::nonce},
    {Op::queue_push, "QUEUE_PUSH", {Field::key, Field::value}, ReplyShape::none},
    {Op::queue_pop, "QUEUE_POP", {Field::key}, ReplyShape::popped},
    {Op::queue_len, "QUEUE_LEN", {Field::key}, ReplyShape::number},
    {Op::list_keys, "LIST_KEYS", {}, ReplyShape::list},
    {Op::barrier, "BARRIER", {Field::key, Field::number}, ReplyShape::byte},
}};

constexpr const Layout& layout(Op op) {
  return kLayouts[static_cast<std::size_t>(op)];
}

// The table is indexed by the enum: a row out of place does not compile.
constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < kLayouts.size(); ++i)
    if (kLayouts[i].op != static_cast<Op>(i)) return false;
  return true;
}
static_assert(rows_are_in_order());

}  // namespace distrun::wire::tcpstore
