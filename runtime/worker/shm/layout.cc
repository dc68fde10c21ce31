#include "runtime/worker/shm/layout.h"

#include <algorithm>

namespace distrun::shm {
namespace {

std::size_t whole(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Large enough that a round's work is long beside the waiting for it, small enough that what all
// ranks have in flight stays in the caches.
std::size_t data_bytes_for(int ranks) {
  constexpr std::size_t kKiB = 1024;
  return ranks <= 8 ? 512 * kKiB : 256 * kKiB;
}

}  // namespace

Layout layout_for(int ranks) {
  Layout layout;
  layout.ranks = ranks;
  layout.data_bytes = data_bytes_for(ranks);
  layout.table_bytes = whole(2 * sizeof(std::uint64_t) * static_cast<std::size_t>(ranks), kLine);
  layout.tables_at = kPage;
  layout.buffers_at = whole(layout.tables_at + 2 * layout.table_bytes, kPage);
  layout.buffer_bytes = whole(kLine + layout.data_bytes, kPage);
  layout.segment_bytes = layout.buffers_at + 2 * layout.buffer_bytes;
  return layout;
}

Extent piece_of(std::uint64_t total, std::uint64_t unit, std::uint64_t index) {
  if (index >= pieces_in(total, unit)) return {total, 0};
  const std::uint64_t at = unit * index;
  return {at, std::min(unit, total - at)};
}

std::uint64_t pieces_in(std::uint64_t total, std::uint64_t unit) {
  return total / unit + (total % unit == 0 ? 0 : 1);
}

std::size_t area_bytes(std::size_t data_bytes, int ranks) {
  return data_bytes / static_cast<std::size_t>(ranks) / kLine * kLine;
}

Extent share_of(std::uint64_t count, std::size_t width, int ranks, int rank) {
  const auto n = static_cast<std::uint64_t>(ranks);
  const auto line = static_cast<std::uint64_t>(kLine / width);
  const std::uint64_t share = pieces_in(pieces_in(count, n), line) * line;
  if (share == 0) return {0, 0};
  return piece_of(count, share, static_cast<std::uint64_t>(rank));
}

}  // namespace distrun::shm
