// libFuzzer on the agent protocol.  Whatever the bytes are:
//   * any segmentation decodes to the same payloads and the same end;
//   * a decoder never holds more than its limit allows;
//   * what decodes as a message or a record, encoded again, decodes to the same.
// Input: one byte that seeds the segmentation, one that says whether a greeting is put in front,
// then the connection.
#include "rendezvous/protocol/frame.h"
#include "rendezvous/protocol/record_json.h"
#include "runtime/base/check.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::rendezvous {
namespace {

constexpr std::size_t kMaxPayload = 4096;  // small, so that the fuzzer finds it

struct Decoded {
  std::vector<std::string> payloads;
  std::optional<Error> end;
  bool operator==(const Decoded&) const = default;
};

Decoded decode(std::string_view bytes, std::mt19937* segments) {
  FrameDecoder decoder(kMaxPayload);
  Decoded out;
  while (!out.end) {
    std::size_t piece = bytes.size();
    if (segments != nullptr) piece = std::min<std::size_t>(piece, 1 + (*segments)() % 40);
    decoder.feed(bytes.substr(0, piece));
    bytes.remove_prefix(piece);
    for (;;) {
      const auto payload = decoder.next();
      DISTRUN_CHECK(decoder.memory() <= 4 * kMaxPayload + 2 * (bytes.size() + piece));
      if (!payload) {
        out.end = payload.error();
        break;
      }
      if (!payload->has_value()) break;
      out.payloads.emplace_back(**payload);
    }
    if (bytes.empty()) break;
  }
  return out;
}

std::string payload_of(const std::string& frame) {
  return frame.substr(kFrameHeaderBytes);
}

void check_messages(std::string_view payload) {
  if (const auto message = decode_agent_message(payload)) {
    const std::string frame = encode(*message);
    DISTRUN_CHECK(frame.size() <= kFrameHeaderBytes + kMaxAgentFrame);
    DISTRUN_CHECK(*decode_agent_message(payload_of(frame)) == *message);
  }
  if (const auto message = decode_coordinator_message(payload)) {
    const std::string frame = encode(*message);
    DISTRUN_CHECK(frame.size() <= kFrameHeaderBytes + kMaxCoordinatorFrame);
    DISTRUN_CHECK(*decode_coordinator_message(payload_of(frame)) == *message);
  }
  if (const auto record = record_from_json(payload))
    DISTRUN_CHECK(*record_from_json(record_to_json(*record)) == *record);
}

}  // namespace
}  // namespace distrun::rendezvous

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distrun::rendezvous;
  if (size < 2) return 0;
  std::mt19937 segments(data[0]);
  const std::string_view given(reinterpret_cast<const char*>(data + 2), size - 2);
  const std::string bytes = (data[1] % 2 == 0 ? std::string(greeting()) : "") + std::string(given);
  const Decoded whole = decode(bytes, nullptr);
  DISTRUN_CHECK(decode(bytes, &segments) == whole);
  for (const auto& payload : whole.payloads) check_messages(payload);
  check_messages(given);  // also without a length in front, which a fuzzer rarely gets right
  return 0;
}
