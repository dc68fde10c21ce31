// Phrases that a coordinator uses in more than one place.
#pragma once

#include "rendezvous/core/messages.h"
#include "runtime/base/ids.h"

#include <optional>
#include <string>

namespace distrun::rendezvous {

Refused refuse(RefusalCode code, std::string why);
std::string node_text(const std::string& host, const std::optional<NodeRank>& rank);
std::string of(int some, int all);  // "2 of 3"

}  // namespace distrun::rendezvous
