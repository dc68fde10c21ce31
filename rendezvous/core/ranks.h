// Ranks: which node of a round gets which node rank.
//
// In this order of right: the rank a node had in the last round; the rank it asked for; the
// coordinator's own node; natural order of host names (node2 before node10); order of arrival.
// A rank beyond the round's size gives no right: its node fills a hole.
#pragma once

#include "runtime/base/ids.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::rendezvous {

struct Candidate {
  std::optional<NodeRank> had;
  std::optional<NodeRank> asked;
  bool hosts = false;
  std::string_view host;
};

// "node2" before "node10": runs of digits compare as numbers.
bool natural_less(std::string_view a, std::string_view b);

// The candidates' indices in order of node rank.  REQUIRES: no two had the same rank.
std::vector<std::size_t> assign_ranks(const std::vector<Candidate>& candidates);

}  // namespace distrun::rendezvous
