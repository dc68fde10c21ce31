// The agent protocol's bytes: a greeting, then frames, each one message as JSON.
//
//   connection  = greeting *frame                  both ways
//   greeting    = "DRUN" version LF                version: one byte, "1"
//   frame       = length payload                   length: 4 bytes, big-endian, of the payload
//   payload     = a JSON object in UTF-8           {"type":"pong","number":7}
//
// Whoever dialed greets first, and the other answers with its own greeting before anything else: a
// dialer knows by it that a coordinator answers, and not something else.  No other protocol of this
// port begins so: TCPStore's first byte is a small number, HTTP's a method.
//
// Nothing here throws, whatever the bytes are.  rendezvous/README.md has the fields.
#pragma once

#include "rendezvous/core/messages.h"
#include "runtime/base/result.h"
#include "runtime/wire/byte_buffer.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace distrun::rendezvous {

inline constexpr std::size_t kGreetingBytes = 6;
inline constexpr std::size_t kFrameHeaderBytes = 4;

// Of a payload.  An agent's longest message is Ended with a report, whose JSON may need six bytes
// for one.
inline constexpr std::size_t kMaxAgentFrame = 64UL * 1024 + 6 * kMaxReport;
inline constexpr std::size_t kMaxCoordinatorFrame = 1024UL * 1024;

// Of texts in messages, in bytes.  What is longer is refused, but free text (why, status, report,
// command) is cut by its sender.
inline constexpr std::size_t kMaxName = 256;  // job, token, node, host, role, address
inline constexpr std::size_t kMaxStatus = 1024;
inline constexpr std::size_t kMaxCommand = 8UL * 1024;
inline constexpr std::size_t kMaxWhy = 32UL * 1024;

std::string_view greeting();

// Whether a connection that began with `bytes` may still be, or is, an agent's.
bool greets_as_agent(std::string_view bytes);

// A whole frame, header included.  Bytes that are not UTF-8 become U+FFFD.
std::string encode(const AgentMessage& message);
std::string encode(const CoordinatorMessage& message);

// From a payload.  Fields that this version does not know are ignored; a type or an enumerator that
// it does not know, a missing field, and a value out of its range are errors that name them.
Result<AgentMessage> decode_agent_message(std::string_view payload);
Result<CoordinatorMessage> decode_coordinator_message(std::string_view payload);

// One direction of one connection: bytes in, in any pieces; payloads out.
//
//   greeting --"DRUN1\n"--> frames --over the limit--> failed
//       \------ anything else ----------------------/
//
// A frame that is only partly there costs what has arrived, not what its length announces.
class FrameDecoder {
 public:
  // `max_payload`: kMaxAgentFrame in a coordinator, kMaxCoordinatorFrame in an agent.
  explicit FrameDecoder(std::size_t max_payload) : max_payload_(max_payload) {}

  // Room to read into, and how much of it was filled.  Ends the life of the last payload.
  std::span<char> prepare();
  void commit(std::size_t n) { buffer_.commit(n); }
  void feed(std::string_view bytes) { buffer_.append(bytes); }

  // The next whole payload; nullopt: more bytes are needed.  Lives until the next call of any
  // function but the const ones.  After an error the decoder only repeats it: code `unsupported`
  // for another version of this protocol, else `protocol` or `limit`.
  Result<std::optional<std::string_view>> next();

  // The other side's greeting has come (next() looks for it).
  bool greeted() const { return greeted_; }
  // Nothing of an unfinished frame is held.
  bool idle() const { return buffer_.size() == handed_out_; }
  std::size_t memory() const { return buffer_.capacity(); }

 private:
  Result<void> take_greeting();

  std::size_t max_payload_;
  wire::ByteBuffer buffer_;
  std::size_t handed_out_ = 0;  // at the front of the buffer: the last payload with its header
  bool greeted_ = false;
  std::optional<Error> error_;
};

}  // namespace distrun::rendezvous
