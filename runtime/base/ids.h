// Strong integers: a rank cannot be passed where a local rank is meant.
#pragma once

#include <compare>

namespace distrun {

template <class Tag>
struct Id {
  int value = 0;
  constexpr Id() = default;
  constexpr explicit Id(int v) : value(v) {}
  constexpr auto operator<=>(const Id&) const = default;
};

using Rank = Id<struct RankTag>;              // of a worker, in the whole job
using LocalRank = Id<struct LocalRankTag>;    // of a worker, on its node
using NodeRank = Id<struct NodeRankTag>;      // of a node (torchrun: group rank)
using Generation = Id<struct GenerationTag>;  // of a round: only grows

}  // namespace distrun
