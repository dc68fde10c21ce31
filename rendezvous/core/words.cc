#include "rendezvous/core/words.h"

#include <utility>

namespace distrun::rendezvous {

Refused refuse(RefusalCode code, std::string why) {
  Refused refused;
  refused.code = code;
  refused.why = std::move(why);
  return refused;
}

std::string node_text(const std::string& host, const std::optional<NodeRank>& rank) {
  return rank ? host + " (node rank " + std::to_string(rank->value) + ")" : host;
}

std::string of(int some, int all) {
  return std::to_string(some) + " of " + std::to_string(all);
}

}  // namespace distrun::rendezvous
