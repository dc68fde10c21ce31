// The prefix of a teed line: torchrun's "[trainer0]:", or its template's expansion.  Pure.
#pragma once

#include "runtime/base/ids.h"

#include <string>
#include <string_view>

namespace distrun::agent {

// `pattern`: --log-line-prefix-template; empty: torchrun's default.  ${role_name}, ${rank},
// ${local_rank} and ${hostname} are replaced, with or without braces; $$ is $; whatever else stays
// as it is.  At most kLongestPrefix bytes of the result are used.
std::string line_prefix(std::string_view pattern, std::string_view role, Rank rank,
                        LocalRank local_rank, std::string_view host);

inline constexpr std::size_t kLongestPrefix = 256;

}  // namespace distrun::agent
