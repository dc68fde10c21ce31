#include "runtime/wire/byte_buffer.h"

#include <gtest/gtest.h>

#include <string>

namespace distrun::wire {
namespace {

TEST(ByteBuffer, GivesBackWhatWasPutInInOrder) {
  ByteBuffer buffer;
  std::string taken;
  std::string put;
  for (int i = 0; i < 1000; ++i) {
    const std::string piece = std::to_string(i) + ",";
    put += piece;
    buffer.append(piece);
    const std::size_t n = std::min<std::size_t>(buffer.size(), static_cast<std::size_t>(i) % 7);
    taken += buffer.view().substr(0, n);
    buffer.consume(n);
  }
  taken += buffer.view();
  EXPECT_EQ(taken, put);
}

TEST(ByteBuffer, ConsumingLeavesTheBytesWhereTheyAre) {
  ByteBuffer buffer;
  buffer.append("abcdef");
  const std::string_view abc = buffer.view().substr(0, 3);
  buffer.consume(6);
  EXPECT_EQ(abc, "abc");
}

TEST(ByteBuffer, DoesNotGrowWhileItIsEmptiedAsFastAsItIsFilled) {
  ByteBuffer buffer;
  buffer.append(std::string(1000, 'x'));
  buffer.consume(500);
  const std::size_t capacity = buffer.capacity();
  for (int i = 0; i < 1000; ++i) {
    buffer.append(std::string(400, 'y'));
    buffer.consume(400);
  }
  EXPECT_LE(buffer.capacity(), 2 * capacity);
}

TEST(ByteBuffer, ShrinksOnlyWhenEmpty) {
  ByteBuffer buffer;
  buffer.append(std::string(1000, 'x'));
  buffer.shrink(10);
  EXPECT_EQ(buffer.size(), 1000u);
  buffer.consume(1000);
  buffer.shrink(10);
  EXPECT_EQ(buffer.capacity(), 0u);
}

}  // namespace
}  // namespace distrun::wire
