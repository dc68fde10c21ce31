#include "runtime/wire/tcpstore.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace distrun::wire::tcpstore {
namespace {

std::string bytes(std::initializer_list<int> values) {
  std::string out;
  for (const int value : values) out += static_cast<char>(value);
  return out;
}

TEST(TcpStoreNumbers, AreThoseOfEachGeneration) {
  struct Row {
    Op op;
    std::array<int, kGenerationCount> numbers;  // g0 … g8; -1: none
  };
  constexpr int x = -1;
  const std::vector<Row> rows{
      {Op::validate, {x, x, x, x, 0, 0, 0, 0, 0}},
      {Op::set, {0, 0, 0, 0, 1, 1, 1, 1, 1}},
      {Op::compare_set, {1, 1, 1, 1, 2, 2, 2, 2, 2}},
      {Op::get, {2, 2, 2, 2, 3, 3, 3, 3, 3}},
      {Op::add, {3, 3, 3, 3, 4, 4, 4, 4, 4}},
      {Op::check, {4, 4, 4, 4, 5, 5, 5, 5, 5}},
      {Op::wait, {5, 5, 5, 5, 6, 6, 6, 6, 6}},
      {Op::num_keys, {6, 6, 6, 6, 7, 7, 7, 7, 7}},
      {Op::watch_key, {7, 7, x, x, x, x, x, x, x}},
      {Op::delete_key, {8, 8, 7, 7, 8, 8, 8, 8, 8}},
      {Op::append, {x, 9, 8, 8, 9, 9, 9, 9, 9}},
      {Op::multi_get, {x, 10, 9, 9, 10, 10, 10, 10, 10}},
      {Op::multi_set, {x, 11, 10, 10, 11, 11, 11, 11, 11}},
      {Op::cancel_wait, {x, 12, 11, 11, 12, 12, 12, 12, 12}},
      {Op::ping, {x, x, x, x, x, 13, 13, 13, 13}},
      {Op::queue_push, {x, x, x, x, x, x, 14, 14, 14}},
      {Op::queue_pop, {x, x, x, x, x, x, 15, 15, 15}},
      {Op::queue_len, {x, x, x, x, x, x, 16, 16, 16}},
      {Op::list_keys, {x, x, x, x, x, x, x, 17, 17}},
      {Op::barrier, {x, x, x, x, x, x, x, x, 18}},
  };
  ASSERT_EQ(rows.size(), kOpCount);
  for (const Row& row : rows) {
    for (std::size_t g = 0; g < kGenerationCount; ++g) {
      const auto number = number_of(static_cast<Generation>(g), row.op);
      EXPECT_EQ(number ? *number : x, row.numbers[g]) << name(row.op) << " in g" << g;
    }
  }
}

TEST(TcpStoreNumbers, FromG4OnNoNumberEverChangesItsMeaning) {
  const auto newest = operations(Generation::g8);
  for (const auto generation : {Generation::g4, Generation::g5, Generation::g6, Generation::g7}) {
    const auto older = operations(generation);
    for (std::size_t i = 0; i < older.size(); ++i) EXPECT_EQ(older[i], newest[i]);
  }
}

TEST(TcpStoreEncode, HelloIsValidateWithTheMagicFromG4On) {
  EXPECT_EQ(encode_hello(Generation::g0), "");
  EXPECT_EQ(encode_hello(Generation::g3), "");
  EXPECT_EQ(encode_hello(Generation::g4), bytes({0x00, 0xCE, 0xF7, 0x85, 0x3C}));
  EXPECT_EQ(encode_hello(Generation::g8), bytes({0x00, 0xCE, 0xF7, 0x85, 0x3C}));
}

TEST(TcpStoreEncode, G3PutsTheMagicBeforeEveryRequest) {
  const auto encoded = encode_request(Generation::g3, {.op = Op::num_keys, .args = {}});
  ASSERT_TRUE(encoded);
  EXPECT_EQ(*encoded, bytes({0xCE, 0xF7, 0x85, 0x3C, 0x06}));
}

TEST(TcpStoreEncode, EveryRequestOfTheNewestGenerationHasItsDocumentedLayout) {
  const auto u64 = [](int value) { return bytes({value, 0, 0, 0, 0, 0, 0, 0}); };
  const std::string k = u64(1) + "k";
  const std::string v = u64(2) + "vv";
  const std::array<std::string_view, 4> args{"k", "vv", "k", "vv"};
  const std::span<const std::string_view> all(args);
  struct Row {
    Request request;
    std::string encoded;
  };
  const std::vector<Row> rows{
      {{Op::set, all.first(2)}, "\x01" + k + v},
      {{Op::compare_set, all.first(3)}, "\x02" + k + v + k},
      {{Op::get, all.first(1)}, "\x03" + k},
      {{Op::add, all.first(1), -1}, "\x04" + k + std::string(8, '\xFF')},
      {{Op::check, all.first(2)}, "\x05" + u64(2) + k + v},
      {{Op::wait, {}}, "\x06" + u64(0)},
      {{Op::num_keys, {}}, "\x07"},
      {{Op::delete_key, all.first(1)}, "\x08" + k},
      {{Op::append, all.first(2)}, "\x09" + k + v},
      {{Op::multi_get, all.first(1)}, "\x0A" + u64(1) + k},
      {{Op::multi_set, all}, "\x0B" + u64(2) + k + v + k + v},
      {{Op::cancel_wait, {}}, "\x0C"},
      {{Op::ping, {}, 0x01020304}, "\x0D\x04\x03\x02\x01"},
      {{Op::queue_push, all.first(2)}, "\x0E" + k + v},
      {{Op::queue_pop, all.first(1)}, "\x0F" + k},
      {{Op::queue_len, all.first(1)}, "\x10" + k},
      {{Op::list_keys, {}}, "\x11"},
      {{Op::barrier, all.first(1), 4}, "\x12" + k + u64(4)},
  };
  for (const Row& row : rows) {
    const auto encoded = encode_request(Generation::g8, row.request);
    ASSERT_TRUE(encoded) << encoded.error().detail;
    EXPECT_EQ(*encoded, row.encoded) << name(row.request.op);
  }
  EXPECT_EQ(rows.size() + 1, operations(Generation::g8).size());  // VALIDATE is the hello
}

TEST(TcpStoreEncode, AnOperationThatTheGenerationLacksIsRefusedByName) {
  const auto encoded = encode_request(Generation::g0, {.op = Op::ping, .args = {}});
  ASSERT_FALSE(encoded);
  EXPECT_EQ(encoded.error(),
            (Error{Errc::unsupported, "PING: not in generation g0 of the protocol"}));
}

TEST(TcpStoreLimits, ARequestAtTheLimitPassesAndOneByteMoreIsNamed) {
  const Limits limits{.key_bytes = 4, .value_bytes = 6, .keys_per_request = 2};
  const auto check = [&](Op op, std::vector<std::string_view> args) {
    const auto checked = check_limits({op, args}, limits);
    return checked ? "" : checked.error().detail;
  };
  EXPECT_EQ(check(Op::set, {"1234", "123456"}), "");
  EXPECT_EQ(check(Op::set, {"12345", ""}), "SET: a key of 5; at most 4");
  EXPECT_EQ(check(Op::set, {"", "1234567"}), "SET: a value of 7; at most 6");
  EXPECT_EQ(check(Op::multi_set, {"1234", "123456", "1", "2"}), "");
  EXPECT_EQ(check(Op::multi_set, {"", "", "12345", ""}), "MULTI_SET: a key of 5; at most 4");
  EXPECT_EQ(check(Op::wait, {"", "", ""}), "WAIT: a key count of 3; at most 2");
}

TEST(TcpStoreLimits, CheckLimitsRefusesWhatTheDecoderWouldRefuse) {
  const Limits limits{.request_bytes = 200};
  const std::string big(100, 'v');
  const std::array<std::string_view, 2> small_enough{"k", big};
  EXPECT_TRUE(check_limits({Op::set, small_enough}, limits));
  const std::array<std::string_view, 3> too_big{"k", big, big};
  EXPECT_FALSE(check_limits({Op::compare_set, too_big}, limits));
}

}  // namespace
}  // namespace distrun::wire::tcpstore
