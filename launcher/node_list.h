// Node lists as SLURM writes them: "n[001-003,7],login", "r[0-1]n[0-2]", and counts per node:
// "3,1(x2)".
//
// Brackets may stand anywhere in a name and several times (all combinations, the last one running
// fastest); numbers keep the width that the range begins with.  The order is that of the text, and
// what is there twice stays twice.  Pure; text that is not a list is an error, never a guess.
#pragma once

#include "runtime/base/result.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

inline constexpr std::size_t kNodesMax = 65536;  // as SLURM itself has it

Result<std::vector<std::string>> expand_node_list(std::string_view text);

// A number for each node.
Result<std::vector<int>> expand_counts(std::string_view text);

}  // namespace distrun::launcher
