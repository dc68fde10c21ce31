// What lies where in the memory that ranks of one host share, and how data is cut to fit.  Pure
// arithmetic.
//
//   one segment for each rank, which alone writes to it; two buffers, used in turn
//
//   | Control | tables 0 | tables 1 | Post | data 0 … | Post | data 1 … |
//
// Segment sizes depend on the number of ranks only, so that each rank can make its own before it
// has met another.
#pragma once

#include <cstddef>
#include <cstdint>

namespace distrun::shm {

inline constexpr int kMaxRanks = 128;
inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kLine = 64;
// Data up to this size travels in the cache line that says that it is there.
inline constexpr std::size_t kInlineBytes = 16;
inline constexpr std::size_t kInlineAt = kLine - kInlineBytes;

struct Layout {
  int ranks = 1;
  std::size_t data_bytes = 0;   // in one buffer
  std::size_t table_bytes = 0;  // of one table: two counts for each rank
  std::size_t tables_at = 0;
  std::size_t buffers_at = 0;
  std::size_t buffer_bytes = 0;  // Post and data, in whole pages
  std::size_t segment_bytes = 0;

  std::size_t table_at(std::uint32_t round) const { return tables_at + round % 2 * table_bytes; }
  std::size_t buffer_at(std::uint32_t round) const { return buffers_at + round % 2 * buffer_bytes; }
  bool operator==(const Layout&) const = default;
};

// REQUIRES: 1 <= ranks <= kMaxRanks
Layout layout_for(int ranks);

struct Extent {
  std::uint64_t at = 0;
  std::uint64_t size = 0;
  bool operator==(const Extent&) const = default;
};

// The index-th of the pieces of at most `unit` that `total` is cut into; empty past the end.
Extent piece_of(std::uint64_t total, std::uint64_t unit, std::uint64_t index);
// How many there are.  REQUIRES: unit > 0
std::uint64_t pieces_in(std::uint64_t total, std::uint64_t unit);

// How a buffer is shared out, so that each rank finds its area: whole cache lines each.
std::size_t area_bytes(std::size_t data_bytes, int ranks);

// A chunk of `count` elements as nearly equal shares, one for each rank, each but the last ones of
// whole cache lines: the shares of some are empty if there are few elements.  No share is larger
// than area_bytes() if the chunk is not larger than `ranks` areas.
Extent share_of(std::uint64_t count, std::size_t width, int ranks, int rank);

}  // namespace distrun::shm
