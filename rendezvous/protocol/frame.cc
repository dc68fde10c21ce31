#include "rendezvous/protocol/frame.h"

#include "rendezvous/protocol/fields.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>
#include <variant>

namespace distrun::rendezvous {
namespace {

constexpr char kVersionByte = '0' + kProtocolVersion;
constexpr std::array<char, kGreetingBytes> kGreeting{'D', 'R', 'U', 'N', kVersionByte, '\n'};
constexpr std::size_t kNameBytes = 4;  // of the greeting: before the version
constexpr std::size_t kReadBytes = 4096;

// Adds alternative `index` of a variant to the reader's result.
template <class Message, std::size_t I = 0>
Message read_alternative(FieldReader& reader, std::size_t index) {
  if constexpr (I + 1 < std::variant_size_v<Message>) {
    if (index > I) return read_alternative<Message, I + 1>(reader, index);
  }
  std::variant_alternative_t<I, Message> message;
  fields(reader, message);
  return message;
}

template <class Message>
Result<Message> decode(std::string_view payload, std::span<const std::string_view> types) {
  FieldReader reader(payload);
  const std::size_t type = reader.index("type", types);
  if (reader.error()) return *reader.error();
  Message message = read_alternative<Message>(reader, type);
  if (reader.error())
    return Error{reader.error()->code, std::string(types[type]) + ": " + reader.error()->detail};
  return message;
}

std::string frame(std::string_view payload) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  std::string bytes;
  bytes.reserve(kFrameHeaderBytes + payload.size());
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes.push_back(static_cast<char>((size >> static_cast<unsigned>(shift)) & 0xFFU));
  bytes += payload;
  return bytes;
}

template <class Message>
std::string encode_any(const Message& message, std::span<const std::string_view> types) {
  FieldWriter writer;
  const std::string_view type = types[message.index()];
  writer.text("type", type, type.size(), Text::name);
  std::visit([&writer](const auto& held) { fields(writer, held); }, message);
  return frame(writer.finish());
}

std::size_t payload_bytes(std::string_view header) {
  std::size_t size = 0;
  for (const char byte : header.substr(0, kFrameHeaderBytes))
    size = size << 8U | static_cast<unsigned char>(byte);
  return size;
}

}  // namespace

static_assert(std::variant_size_v<AgentMessage> == kAgentTypes.size());
static_assert(std::variant_size_v<CoordinatorMessage> == kCoordinatorTypes.size());

std::string_view greeting() {
  return {kGreeting.data(), kGreeting.size()};
}

bool greets_as_agent(std::string_view bytes) {
  const std::size_t n = std::min(bytes.size(), kNameBytes);
  return bytes.substr(0, n) == greeting().substr(0, n);
}

std::string encode(const AgentMessage& message) {
  return encode_any(message, kAgentTypes);
}

std::string encode(const CoordinatorMessage& message) {
  return encode_any(message, kCoordinatorTypes);
}

Result<AgentMessage> decode_agent_message(std::string_view payload) {
  return decode<AgentMessage>(payload, kAgentTypes);
}

Result<CoordinatorMessage> decode_coordinator_message(std::string_view payload) {
  return decode<CoordinatorMessage>(payload, kCoordinatorTypes);
}

std::span<char> FrameDecoder::prepare() {
  buffer_.consume(std::exchange(handed_out_, 0));
  return buffer_.prepare(kReadBytes);
}

Result<void> FrameDecoder::take_greeting() {
  const std::string_view bytes = buffer_.view();
  if (!greets_as_agent(bytes)) return Error{Errc::protocol, "not the agent protocol: no greeting"};
  if (bytes.size() < kGreetingBytes) return {};
  if (bytes[kNameBytes] != kVersionByte || bytes[kNameBytes + 1] != '\n')
    return Error{Errc::unsupported, "another version of the agent protocol than " +
                                        std::to_string(kProtocolVersion) +
                                        "; the same version of distrun has to run on all nodes"};
  buffer_.consume(kGreetingBytes);
  greeted_ = true;
  return {};
}

Result<std::optional<std::string_view>> FrameDecoder::next() {
  if (error_) return *error_;
  buffer_.consume(std::exchange(handed_out_, 0));
  if (!greeted_) {
    if (auto greeting = take_greeting(); !greeting) {
      error_ = greeting.error();
      return *error_;
    }
  }
  const std::string_view bytes = buffer_.view();
  if (!greeted_ || bytes.size() < kFrameHeaderBytes) return std::optional<std::string_view>();
  const std::size_t size = payload_bytes(bytes);
  if (size > max_payload_) {
    error_ = Error{Errc::limit, "a message of " + std::to_string(size) + " bytes, at most " +
                                    std::to_string(max_payload_)};
    return *error_;
  }
  if (bytes.size() - kFrameHeaderBytes < size) return std::optional<std::string_view>();
  handed_out_ = kFrameHeaderBytes + size;
  return std::optional(bytes.substr(kFrameHeaderBytes, size));
}

}  // namespace distrun::rendezvous
