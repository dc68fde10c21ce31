#include "runtime/wire/tcpstore_request_decoder.h"

#include "tests/runtime/wire/golden.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace distrun::wire::tcpstore {
namespace {

std::string u64(std::uint64_t value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
std::string blob(std::string_view bytes) {
  return u64(bytes.size()) + std::string(bytes);
}
std::string number(int value) {
  return std::string(1, static_cast<char>(value));
}
const std::string kHello = encode_hello(Generation::g8);
const std::string kMagicBytes = kHello.substr(1);

// All that comes out: requests as text, then the error, if there is one.
std::vector<std::string> drain(RequestDecoder& decoder) {
  std::vector<std::string> out;
  for (;;) {
    auto request = decoder.next();
    if (!request) {
      out.push_back("error " + request.error().detail);
      return out;
    }
    if (!request->has_value()) return out;
    out.push_back(describe(**request));
  }
}

std::vector<std::string> decode(std::string_view bytes, Limits limits = {},
                                std::optional<Generation> expected = std::nullopt) {
  RequestDecoder decoder(limits, expected);
  decoder.feed(bytes);
  return drain(decoder);
}

using Texts = std::vector<std::string>;

TEST(Recognition, AHelloMeansTheNewestNumbers) {
  EXPECT_EQ(decode(kHello + "\x07"), Texts{"GETNUMKEYS"});
  EXPECT_EQ(decode(kHello + "\x12" + blob("b") + u64(3)), Texts{"BARRIER \"b\" 3"});
}

TEST(Recognition, AHelloInPiecesIsAccepted) {
  RequestDecoder decoder;
  for (const char byte : kHello) {
    EXPECT_EQ(decoder.generation(), std::nullopt);
    decoder.feed({&byte, 1});
    EXPECT_EQ(drain(decoder), Texts{});
  }
  EXPECT_EQ(decoder.generation(), Generation::g8);
}

TEST(Recognition, NoHelloMeansTheNumbersBeforeVersion2Point2) {
  EXPECT_EQ(decode("\x06"), Texts{"GETNUMKEYS"});
  EXPECT_EQ(decode(number(0) + blob("k") + blob("v")), Texts{"SET \"k\" \"v\""});
}

TEST(Recognition, ASetWhoseKeyLengthBeginsLikeTheHelloIsASet) {
  const std::string key(0xCE, 'k');
  EXPECT_EQ(decode(number(0) + blob(key) + blob("")), Texts{"SET \"k\"*206 \"\""});
}

TEST(Recognition, ABareMagicMeansItComesBeforeEveryRequest) {
  EXPECT_EQ(decode(kMagicBytes + "\x06" + kMagicBytes + "\x07" + blob("k")),
            (Texts{"GETNUMKEYS", "DELETE_KEY \"k\""}));
  EXPECT_EQ(decode(kMagicBytes + "\x06" + "\x06" + "12345"),
            (Texts{"GETNUMKEYS", "error a request without the magic number before it"}));
}

TEST(Recognition, AnUnvalidatedFirstRequestIsRefusedWhereTheGenerationIsGiven) {
  EXPECT_EQ(decode("\x07", {}, Generation::g5),
            Texts{"error the first request is not VALIDATE with the magic number"});
  EXPECT_EQ(decode(std::string("\0\xCE\xF7\x85\x3D", 5), {}, Generation::g5),
            Texts{"error the first request is not VALIDATE with the magic number"});
  EXPECT_EQ(decode(kHello + "\x07", {}, Generation::g5), Texts{"GETNUMKEYS"});
}

TEST(Recognition, ASecondHelloIsRefused) {
  EXPECT_EQ(decode(kHello + kHello), Texts{"error VALIDATE: only once, as the first request"});
}

TEST(Recognition, EveryGenerationCanBeGiven) {
  EXPECT_EQ(decode("\x09" + u64(1) + blob("k"), {}, Generation::g2), Texts{"MULTI_GET \"k\""});
  EXPECT_EQ(decode("\x09", {}, Generation::g0), Texts{"error unknown request type 9"});
}

TEST(Refusal, AnUnknownTypeIsNamed) {
  EXPECT_EQ(decode("\xC8"), Texts{"error unknown request type 200"});
  EXPECT_EQ(decode(kHello + "\x13"), Texts{"error unknown request type 19"});
}

TEST(Refusal, TextOfAnotherProtocolSaysSo) {
  EXPECT_EQ(decode("GET / HTTP/1.1\r\n"),
            Texts{"error unknown request type 71 ('G'): not a TCPStore client"});
}

TEST(Refusal, IsRepeatedAndNothingComesAfterIt) {
  RequestDecoder decoder;
  decoder.feed("\xC8\x06");
  EXPECT_EQ(drain(decoder), Texts{"error unknown request type 200"});
  decoder.feed("\x06");
  EXPECT_EQ(drain(decoder), Texts{"error unknown request type 200"});
}

TEST(Refusal, AKeyOfTheLimitPassesAndOneByteMoreDoesNot) {
  EXPECT_EQ(decode("\x02" + blob(std::string(8192, 'k'))), Texts{"GET \"k\"*8192"});
  EXPECT_EQ(decode("\x02" + u64(8193)), Texts{"error GET: key length 8193, at most 8192"});
}

TEST(Refusal, AValueOfTheLimitPassesAndOneByteMoreDoesNot) {
  const std::string set = number(0) + blob("k");
  EXPECT_EQ(decode(set + blob(std::string(8 << 20, 'v'))), Texts{"SET \"k\" \"v\"*8388608"});
  EXPECT_EQ(decode(set + u64((8 << 20) + 1)),
            Texts{"error SET: value length 8388609, at most 8388608"});
}

TEST(Refusal, AKeyCountOfTheLimitPassesAndOneMoreDoesNot) {
  std::string wait = "\x05" + u64(131'072);
  for (int i = 0; i < 131'072; ++i) wait += blob("");
  EXPECT_EQ(decode(wait).size(), 1u);
  EXPECT_EQ(decode("\x05" + u64(131'073)), Texts{"error WAIT: key count 131073, at most 131072"});
}

TEST(Refusal, AnAbsurdLengthOrCountIsRefusedBeforeItIsSent) {
  EXPECT_EQ(decode(number(0) + u64(1ull << 62)),
            Texts{"error SET: key length 4611686018427387904, at most 8192"});
  EXPECT_EQ(decode("\x05" + u64(~0ull)),
            Texts{"error WAIT: key count 18446744073709551615, at most 131072"});
}

TEST(Refusal, OneRequestAsAWholeHasALimit) {
  const Limits limits{.request_bytes = 1000};
  std::string multi_set = "\x0B" + u64(3);
  for (int i = 0; i < 3; ++i) multi_set += blob("key") + blob(std::string(300, 'v'));
  EXPECT_EQ(decode(kHello + multi_set, limits),
            Texts{"error MULTI_SET: request size 1158, at most 1000"});
}

TEST(Segmentation, ARequestComesOutWhenItsLastByteIsThereAndNotBefore) {
  const std::string bytes = "\x01" + blob("key") + blob("expected") + blob("desired");
  RequestDecoder decoder;
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
    decoder.feed(std::string_view(bytes).substr(i, 1));
    EXPECT_EQ(drain(decoder), Texts{}) << "after " << i + 1 << " bytes";
  }
  decoder.feed(std::string_view(bytes).substr(bytes.size() - 1));
  EXPECT_EQ(drain(decoder), Texts{"COMPARE_SET \"key\" \"expected\" \"desired\""});
  EXPECT_TRUE(decoder.idle());
}

TEST(Segmentation, ManyRequestsInOnePieceComeOutInOrder) {
  EXPECT_EQ(decode("\x06\x03" + blob("x") + u64(1) + "\x06" + "\x02"),
            (Texts{"GETNUMKEYS", "ADD \"x\" 1", "GETNUMKEYS"}));
}

TEST(Segmentation, ALargeListInSmallPiecesIsNotParsedAgainFromItsStart) {
  // 131,072 pairs in pieces of 16 bytes are 150,000 calls of next(): a decoder that starts over
  // each time would parse some 10^10 elements here, and the test would not end.
  std::string bytes = kHello + "\x0B" + u64(131'072);
  for (int i = 0; i < 131'072; ++i) bytes += blob("k") + blob("");
  RequestDecoder decoder;
  std::size_t requests = 0;
  for (std::string_view rest = bytes; !rest.empty();
       rest.remove_prefix(std::min<std::size_t>(16, rest.size()))) {
    decoder.feed(rest.substr(0, 16));
    const auto request = decoder.next();
    ASSERT_TRUE(request);
    if (request->has_value()) ++requests;
  }
  EXPECT_EQ(requests, 1u);
}

TEST(Memory, WhatIsOnlyAnnouncedCostsNothing) {
  RequestDecoder decoder;
  decoder.feed(number(0) + blob("k") + u64(8 << 20));
  EXPECT_EQ(drain(decoder), Texts{});
  EXPECT_LT(decoder.memory(), 1024u);
}

TEST(Memory, IsGivenBackWhenIdle) {
  RequestDecoder decoder;
  decoder.feed(number(0) + blob("k") + blob(std::string(1 << 20, 'v')));
  EXPECT_EQ(drain(decoder).size(), 1u);
  EXPECT_GT(decoder.memory(), 1u << 20);
  decoder.shrink(4096);
  EXPECT_LE(decoder.memory(), 4096u);
}

TEST(Memory, IsKeptWhileARequestIsUnfinished) {
  RequestDecoder decoder;
  const std::string bytes = number(0) + blob("k") + blob(std::string(1 << 20, 'v'));
  decoder.feed(bytes.substr(0, bytes.size() - 1));
  EXPECT_EQ(drain(decoder), Texts{});
  decoder.shrink(0);
  decoder.feed(bytes.substr(bytes.size() - 1));
  EXPECT_EQ(drain(decoder), Texts{"SET \"k\" \"v\"*1048576"});
}

TEST(Memory, AReaderIsGivenMoreRoomForALargeValueButNeverAllOfIt) {
  RequestDecoder decoder;
  EXPECT_LE(decoder.prepare().size(), 8192u);
  decoder.feed(number(0) + blob("k") + u64(8 << 20));
  EXPECT_EQ(drain(decoder), Texts{});
  EXPECT_GT(decoder.prepare().size(), 8192u);
  EXPECT_LE(decoder.prepare().size(), 256u * 1024);
}

}  // namespace
}  // namespace distrun::wire::tcpstore
