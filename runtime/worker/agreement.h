// What each rank says of its call before any data moves, and whether all said the same.
//
// Notice, as it travels (integers in the machine's order: all ranks run one build, or `magic` does
// not fit):
//
//   magic u32 · op, reduce, dtype, flags u8 · sequence, count, in_each, out_each u64 · root, rank
//   i32 · data bytes u64 · layout i32 · unused i32 · uneven ins: p x u64 · uneven outs: p x u64 ·
//   data, if small
//
// Parts that are all alike are one number.
#pragma once

#include "runtime/worker/call.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace distrun {

class Notice {
 public:
  static Notice of(const Call& from, int rank);
  // nullopt: not a notice of a group of that size.
  static std::optional<Notice> read(std::span<const std::byte> message, int size);
  // With that behind it.
  void write(std::vector<std::byte>& message, std::span<const std::byte> with) const;
  static std::size_t max_bytes(int size, std::size_t max_data);

  int rank = 0;
  Call call;  // its sizes only
  std::uint64_t in_each = 0, out_each = 0;
  std::vector<std::uint64_t> ins, outs;  // empty: all are in_each, out_each
  bool has_data = false;
  std::span<const std::byte> data;  // into the message

  std::uint64_t in_of(int peer) const;
  std::uint64_t out_of(int peer) const;
  // Elements that this rank puts in, and that it gets out of others.
  std::uint64_t total_in(int size) const;
  std::uint64_t total_out(int size) const;
};

struct Difference {
  int a = 0, b = 0;
  std::string text;
};

// REQUIRES: notices[r] is rank r's.
std::optional<Difference> find_difference(std::span<const Notice> notices);

}  // namespace distrun
