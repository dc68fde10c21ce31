// libFuzzer on the store's codec and service.  Whatever the bytes are:
//   * any segmentation decodes to the same requests and the same end;
//   * what was decoded, encoded again, decodes to the same;
//   * a decoder never holds more than its limits allow;
//   * every answer of our server is one that our client decodes to its last byte.
// Input: one byte that seeds the segmentation, one that picks the generation, then the connection.
#include "rendezvous/server/store_service.h"
#include "runtime/base/check.h"
#include "runtime/wire/tcpstore_reply_decoder.h"
#include "runtime/wire/tcpstore_request_decoder.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace distrun {
namespace {

using namespace wire::tcpstore;

// Small, so that the fuzzer finds them.
constexpr Limits kLimits{
    .key_bytes = 128, .value_bytes = 200, .keys_per_request = 16, .request_bytes = 1500};

struct Decoded {
  struct Item {
    Op op;
    std::vector<std::string> args;
    std::int64_t number;
    bool operator==(const Item&) const = default;
  };
  std::vector<Item> items;
  std::optional<Error> end;
  std::optional<Generation> generation;
  bool operator==(const Decoded&) const = default;
};

// One connection of the service for each run.
class Served {
 public:
  void handle(const Request& request) {
    rendezvous::Released released;
    wire::ByteBuffer out;
    const bool done = service_.handle(kMe, request, out, released).has_value();
    if (!done || request.op == Op::wait || request.op == Op::barrier) return;
    ReplyDecoder decoder(request);
    while (decoder.wanted() > 0) {
      DISTRUN_CHECK(decoder.wanted() <= out.size());
      const std::size_t n = decoder.wanted();
      DISTRUN_CHECK(decoder.feed(out.view().substr(0, n)).has_value());
      out.consume(n);
    }
    DISTRUN_CHECK(out.empty());
  }

 private:
  static constexpr rendezvous::ConnectionId kMe{1};
  rendezvous::MemoryBudget budget_{1 << 16};
  rendezvous::StoreService service_{budget_};
};

Decoded decode(std::string_view bytes, std::optional<Generation> expected, std::mt19937* segments,
               Served* served) {
  RequestDecoder decoder(kLimits, expected);
  Decoded out;
  while (!out.end) {
    std::size_t piece = bytes.size();
    if (segments) piece = std::min<std::size_t>(piece, 1 + (*segments)() % 40);
    decoder.feed(bytes.substr(0, piece));
    bytes.remove_prefix(piece);
    for (;;) {
      const auto request = decoder.next();
      // The buffer holds at most what was fed and, after doubling, as much again.
      DISTRUN_CHECK(decoder.memory() <=
                    8 * kLimits.request_bytes + 2 * (bytes.size() + piece) + 64);
      if (!request) {
        out.end = request.error();
        break;
      }
      if (!request->has_value()) break;
      const Request& got = **request;
      out.items.push_back({got.op, {got.args.begin(), got.args.end()}, got.number});
      DISTRUN_CHECK(check_limits(got, kLimits).has_value());
      if (served) served->handle(got);
    }
    if (bytes.empty()) break;
  }
  out.generation = decoder.generation();
  return out;
}

std::string encode(const Decoded& decoded) {
  std::string bytes = encode_hello(*decoded.generation);
  for (const auto& item : decoded.items) {
    const std::vector<std::string_view> args(item.args.begin(), item.args.end());
    bytes +=
        *encode_request(*decoded.generation, {.op = item.op, .args = args, .number = item.number});
  }
  return bytes;
}

// A client meets any server: an answer of arbitrary bytes ends in a reply, an error, or wants more.
void receive(Op op, std::string_view bytes) {
  const std::string_view keys[] = {"a", "b", "c"};
  ReplyDecoder decoder({.op = op, .args = keys}, {.blob_bytes = 200, .reply_bytes = 1500});
  while (decoder.wanted() > 0 && !bytes.empty()) {
    DISTRUN_CHECK(decoder.wanted() <= 200);
    const auto piece = bytes.substr(0, decoder.wanted());
    if (!decoder.feed(piece)) return;
    bytes.remove_prefix(piece.size());
  }
}

}  // namespace
}  // namespace distrun

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distrun;
  if (size < 2) return 0;
  std::mt19937 segments(data[0]);
  std::optional<Generation> expected;
  if (data[1] < kGenerationCount) expected = static_cast<Generation>(data[1]);
  const std::string_view bytes(reinterpret_cast<const char*>(data + 2), size - 2);

  Served served;
  const Decoded whole = decode(bytes, expected, nullptr, &served);
  DISTRUN_CHECK(decode(bytes, expected, &segments, nullptr) == whole);
  if (whole.generation) {
    Decoded again = decode(encode(whole), whole.generation, &segments, nullptr);
    DISTRUN_CHECK(again.items == whole.items);
    DISTRUN_CHECK(!again.end);
  }
  receive(static_cast<Op>(data[0] % kOpCount), bytes);
  return 0;
}
