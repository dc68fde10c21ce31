// Redirects: which streams of which local ranks, as --redirects and --tee say it.
//
//   value   = digit | pair *("," pair)          digit: 0 none, 1 stdout, 2 stderr, 3 both
//   pair    = rank ":" digit                    rank: a local rank, one to five decimal digits
//
// One digit speaks for all ranks; ranks that pairs do not name get 0.  torchrun's grammar, but a
// rank may have more than one digit.
#pragma once

#include "agent/core/spec.h"
#include "runtime/base/result.h"

#include <map>
#include <string_view>
#include <vector>

namespace distrun::launcher {

struct Redirects {
  agent::StreamSet all;                     // for ranks that are not named
  std::map<int, agent::StreamSet> by_rank;  // of a rank that is named twice the last counts
  bool operator==(const Redirects&) const = default;
};

// The error's text does not name the option; the caller does.
Result<Redirects> parse_redirects(std::string_view text);

// One entry per local rank.
std::vector<agent::StreamSet> expand(const Redirects& redirects, int nproc);

}  // namespace distrun::launcher
