#include "runtime/worker/shm/layout.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace distrun::shm {
namespace {

TEST(ShmLayout, PartsFollowEachOtherAndNothingOverlaps) {
  for (int ranks = 1; ranks <= kMaxRanks; ++ranks) {
    const Layout layout = layout_for(ranks);
    EXPECT_EQ(layout.ranks, ranks);
    EXPECT_GE(layout.tables_at, kPage);
    EXPECT_GE(layout.table_bytes, 16U * static_cast<unsigned>(ranks));
    EXPECT_EQ(layout.table_at(1), layout.table_at(0) + layout.table_bytes);
    EXPECT_GE(layout.buffer_at(0), layout.table_at(1) + layout.table_bytes);
    EXPECT_GE(layout.buffer_at(1), layout.buffer_at(0) + kLine + layout.data_bytes);
    EXPECT_GE(layout.segment_bytes, layout.buffer_at(1) + kLine + layout.data_bytes);
    EXPECT_EQ(layout.buffer_at(0) % kPage, 0U);
    EXPECT_EQ(layout.buffer_at(1) % kPage, 0U);
    EXPECT_EQ(layout.segment_bytes % kPage, 0U);
  }
}

TEST(ShmLayout, BuffersAlternateAlsoWhereRoundsWrapAround) {
  const Layout layout = layout_for(2);
  EXPECT_EQ(layout.buffer_at(7), layout.buffer_at(1));
  EXPECT_NE(layout.buffer_at(0xFFFFFFFF), layout.buffer_at(0));
}

TEST(ShmLayout, PiecesCoverTheWholeOnce) {
  for (const std::uint64_t total : {0U, 1U, 63U, 64U, 65U, 127U, 128U, 129U, 1000U}) {
    std::uint64_t next = 0;
    for (std::uint64_t i = 0; i < pieces_in(total, 64); ++i) {
      const Extent piece = piece_of(total, 64, i);
      EXPECT_EQ(piece.at, next);
      EXPECT_GT(piece.size, 0U);
      next += piece.size;
    }
    EXPECT_EQ(next, total);
    EXPECT_EQ(piece_of(total, 64, pieces_in(total, 64)), (Extent{total, 0}));
    EXPECT_EQ(piece_of(total, 64, ~std::uint64_t{0}), (Extent{total, 0}));
  }
}

TEST(ShmLayout, PiecesOfTheLargestTotalDoNotOverflow) {
  const std::uint64_t most = ~std::uint64_t{0};
  EXPECT_EQ(pieces_in(most, 2), most / 2 + 1);
  EXPECT_EQ(piece_of(most, 2, most / 2), (Extent{most - 1, 1}));
}

TEST(ShmLayout, AreasFitIntoTheBufferInWholeLines) {
  for (int ranks = 1; ranks <= kMaxRanks; ++ranks) {
    const std::size_t data = layout_for(ranks).data_bytes;
    const std::size_t area = area_bytes(data, ranks);
    EXPECT_EQ(area % kLine, 0U);
    EXPECT_GE(area, kLine);
    EXPECT_LE(area * static_cast<std::size_t>(ranks), data);
  }
}

TEST(ShmLayout, SharesCoverAChunkOnceAndFitIntoAreas) {
  for (const int ranks : {1, 2, 3, 5, 128})
    for (const std::size_t width : {1U, 2U, 4U, 8U, 16U}) {
      const std::size_t area = area_bytes(std::size_t{65536}, ranks);
      const std::uint64_t chunk = area / width * static_cast<unsigned>(ranks);
      for (const std::uint64_t count :
           {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{97}, chunk - 1, chunk}) {
        std::uint64_t next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const Extent share = share_of(count, width, ranks, rank);
          EXPECT_LE(share.size * width, area);
          if (share.size == 0) continue;
          EXPECT_EQ(share.at, next);
          EXPECT_EQ(share.at * width % kLine, 0U);
          next += share.size;
        }
        EXPECT_EQ(next, count);
      }
    }
}

}  // namespace
}  // namespace distrun::shm
