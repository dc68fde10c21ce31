#include "rendezvous/server/first_bytes.h"

#include "rendezvous/protocol/frame.h"

namespace distrun::rendezvous {

Speaker speaker_of(std::string_view first_bytes) {
  constexpr std::size_t kTellsApart = 2;  // "DR" and "DELETE"
  if (first_bytes.empty()) return Speaker::unknown;
  if (greets_as_agent(first_bytes))
    return first_bytes.size() < kTellsApart ? Speaker::unknown : Speaker::agent;
  const char first = first_bytes.front();
  return first >= 'A' && first <= 'Z' ? Speaker::http : Speaker::store;
}

}  // namespace distrun::rendezvous
