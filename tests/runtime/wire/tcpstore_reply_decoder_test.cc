#include "runtime/wire/tcpstore_reply_decoder.h"

#include <gtest/gtest.h>

#include <array>

namespace distrun::wire::tcpstore {
namespace {

std::string u64(std::uint64_t value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
std::string blob(std::string_view bytes) {
  return u64(bytes.size()) + std::string(bytes);
}

constexpr std::array<std::string_view, 2> kTwoKeys{"a", "b"};

// Feeds what is wanted, `piece` bytes at most at a time; the reply, or the error.
Result<Reply> receive(const Request& request, std::string_view bytes, std::size_t piece,
                      ReplyLimits limits = {}) {
  ReplyDecoder decoder(request, limits);
  while (decoder.wanted() > 0) {
    const auto part = bytes.substr(0, std::min(piece, decoder.wanted()));
    if (part.empty()) return Error{Errc::closed, "the bytes end"};
    if (auto fed = decoder.feed(part); !fed) return fed.error();
    bytes.remove_prefix(part.size());
  }
  EXPECT_EQ(bytes, "") << "bytes are left";
  return decoder.take();
}

struct Case {
  Request request;
  std::string bytes;
  std::int64_t number;
  std::vector<std::string> blobs;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {{Op::set, kTwoKeys}, "", 0, {}},
      {{Op::get, std::span(kTwoKeys).first(1)}, blob("value"), 0, {"value"}},
      {{Op::get, std::span(kTwoKeys).first(1)}, blob(""), 0, {""}},
      {{Op::compare_set, {}}, blob("held"), 0, {"held"}},
      {{Op::add, {}}, u64(~1ull), -2, {}},
      {{Op::check, kTwoKeys}, "\x01", kNotReady, {}},
      {{Op::wait, kTwoKeys}, std::string(1, '\0'), kStopWaiting, {}},
      {{Op::cancel_wait, {}}, "\x01", kWaitCanceled, {}},
      {{Op::barrier, {}}, std::string(1, '\0'), kStopWaiting, {}},
      {{Op::num_keys, {}}, u64(7), 7, {}},
      {{Op::delete_key, {}}, u64(1), 1, {}},
      {{Op::multi_get, kTwoKeys}, blob("x") + blob(""), 0, {"x", ""}},
      {{Op::multi_get, {}}, "", 0, {}},
      {{Op::ping, {}}, "\xFF\x01\x02\x83", 0x830201FFll, {}},
      {{Op::queue_pop, {}}, u64(0), 0, {}},
      {{Op::queue_pop, {}}, u64(3) + blob("item"), 3, {"item"}},
      {{Op::queue_len, {}}, u64(3), 3, {}},
      {{Op::list_keys, {}}, u64(0), 0, {}},
      {{Op::list_keys, {}}, u64(2) + blob("/a") + blob("init/"), 2, {"/a", "init/"}},
  };
  return all;
}

TEST(ReplyDecoder, KnowsEveryShapeInAnySegmentation) {
  for (const Case& each : cases()) {
    for (const std::size_t piece : {1, 3, 1000}) {
      const auto reply = receive(each.request, each.bytes, piece);
      ASSERT_TRUE(reply) << name(each.request.op) << ": " << reply.error().detail;
      EXPECT_EQ(reply->number, each.number) << name(each.request.op);
      EXPECT_EQ(reply->blobs, each.blobs) << name(each.request.op);
    }
  }
}

TEST(ReplyDecoder, AnAbsurdLengthIsAnErrorAndNotAnAllocation) {
  const auto reply = receive({Op::get, {}}, u64(1ull << 62), 8);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Errc::protocol);
  EXPECT_EQ(reply.error().detail,
            "the store's answer to GET has a length over the limit: 4611686018427387904");
}

TEST(ReplyDecoder, ANegativeCountIsAnError) {
  EXPECT_FALSE(receive({Op::list_keys, {}}, u64(~0ull), 8));
}

TEST(ReplyDecoder, AListOfEmptyKeysEndsAtTheLimitToo) {
  std::string bytes = u64(1'000'000);
  for (int i = 0; i < 100; ++i) bytes += blob("");
  const auto reply = receive({Op::list_keys, {}}, bytes, 1000, {.reply_bytes = 1000});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Errc::protocol);
}

}  // namespace
}  // namespace distrun::wire::tcpstore
