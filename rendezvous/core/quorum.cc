#include "rendezvous/core/quorum.h"

namespace distrun::rendezvous {

std::string_view to_string(TakeoverRule rule) {
  switch (rule) {
    case TakeoverRule::majority:
      return "majority";
    case TakeoverRule::any:
      return "any";
    case TakeoverRule::never:
      return "never";
  }
  return "?";
}

bool has_quorum(int members, int left, int held, bool incumbent_held) {
  const int remaining = members - left;
  if (2 * held > remaining) return true;
  return 2 * held == remaining && incumbent_held;
}

}  // namespace distrun::rendezvous
