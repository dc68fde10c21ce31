// The bytes of PyTorch's TCPStore, as a vocabulary that both directions share: which operations
// exist, which number each has in which generation of the protocol, what follows the number and
// what the answer looks like.  No I/O here; docs/tcpstore.md has the grammar.
//
//   client   encode_hello + encode_request  --bytes-->  ReplyDecoder     (tcpstore_reply_decoder.h)
//   server   RequestDecoder (tcpstore_request_decoder.h)  --Request-->  put_*  --bytes-->
//
// The protocol has no version field and its numbers moved twice, hence one table per generation.
#pragma once

#include "runtime/base/result.h"
#include "runtime/wire/byte_buffer.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace distrun::wire::tcpstore {

// Integers travel in the sender's byte order, never swapped; every machine we build for is little
// endian, and so are the tables and golden files.
static_assert(std::endian::native == std::endian::little);

enum class Op : std::uint8_t {
  validate,
  set,
  compare_set,
  get,
  add,
  check,
  wait,
  num_keys,
  watch_key,
  delete_key,
  append,
  multi_get,
  multi_set,
  cancel_wait,
  ping,
  queue_push,
  queue_pop,
  queue_len,
  list_keys,
  barrier,
};
inline constexpr std::size_t kOpCount = 20;

// Oldest first.  From g4 on numbers are only added, so a g8 server serves g4 to g8 alike.
enum class Generation : std::uint8_t {
  g0,  // 1.13: no handshake
  g1,  // + APPEND, MULTI_GET, MULTI_SET, CANCEL_WAIT
  g2,  // WATCH_KEY gone, what followed it moved down
  g3,  // as g2, with a magic number before every request
  g4,  // 2.2 to 2.4: VALIDATE is 0 and comes first, once
  g5,  // + PING
  g6,  // + queues
  g7,  // + LIST_KEYS
  g8,  // + BARRIER
};
inline constexpr std::size_t kGenerationCount = 9;

enum class ReplyShape : std::uint8_t {
  none,
  byte,    // CHECK: kReady or kNotReady.  WAIT, BARRIER, CANCEL_WAIT: kStopWaiting or kWaitCanceled
  number,  // i64
  nonce,   // u32
  blob,
  blob_per_key,  // one for each key of the request, no count
  popped,        // i64 length of the queue before the pop; a blob follows if it is over 0
  list,          // i64 count, then that many blobs
};

inline constexpr std::uint8_t kReady = 0;
inline constexpr std::uint8_t kNotReady = 1;
inline constexpr std::uint8_t kStopWaiting = 0;
inline constexpr std::uint8_t kWaitCanceled = 1;
inline constexpr std::uint32_t kMagic = 0x3C85F7CE;

// A request, either way.  The views belong to whoever made it.
struct Request {
  Op op = Op::num_keys;
  // set, append, queue_push: key, value.  compare_set: key, expected, desired.  check, wait,
  // multi_get: the keys.  multi_set: key, value, key, value…  Others: the key, if they have one.
  std::span<const std::string_view> args;
  std::int64_t number = 0;  // add: delta.  barrier: world size.  ping: nonce.
};

struct Limits {
  std::size_t key_bytes = 8UL * 1024;
  std::size_t value_bytes = 8UL * 1024 * 1024;
  std::size_t keys_per_request = 131'072;
  std::size_t request_bytes =
      64UL * 1024 * 1024;  // one whole request, with what it costs to hold it
};

// "COMPARE_SET", as the protocol's users write it.
std::string_view name(Op op);
std::string_view name(Generation generation);  // "g4"

// The operations of a generation; the index is the number on the wire.
std::span<const Op> operations(Generation generation);
std::optional<std::uint8_t> number_of(Generation generation, Op op);

ReplyShape reply_shape(Op op);

// What a client sends first: VALIDATE from g4 on, else nothing.  One write: some servers drop a
// connection whose VALIDATE arrives in two pieces.
std::string encode_hello(Generation generation);

// REQUIRES: the arguments that `op` takes (see Request).  Error: this generation has no such
// operation.  VALIDATE is encode_hello's.
Result<std::string> encode_request(Generation generation, const Request& request);

// Whether a server with these limits would take the request: servers only close the connection, so
// a client had better ask first.  The error names the operation, the size and the limit.
Result<void> check_limits(const Request& request, const Limits& limits);

// The parts that answers are made of.
void put_byte(ByteBuffer& out, std::uint8_t value);
void put_u32(ByteBuffer& out, std::uint32_t value);
void put_i64(ByteBuffer& out, std::int64_t value);
void put_blob(ByteBuffer& out, std::string_view bytes);

}  // namespace distrun::wire::tcpstore
