// Whether a Rendezvous that an agent hosts may act (quorum.h).
#include "rendezvous/core/rendezvous.h"

#include <algorithm>

namespace distrun::rendezvous {
namespace {

// Rounds in a row of which no quorum has heard; one more is not begun.
constexpr std::size_t kMaxElectorates = 8;

}  // namespace

int Rendezvous::electors_here() const {
  return static_cast<int>(std::count_if(
      members_.begin(), members_.end(),
      [this](const auto& entry) { return electors_.contains(entry.second.join.node); }));
}

bool Rendezvous::holds_quorum() const {
  if (!authority_.host || authority_.rule != TakeoverRule::majority) return true;
  if (superseded_) return false;
  if (record_.last.generation.value < 0) return true;
  if (electorates_.size() > kMaxElectorates) return false;
  int held = 0;
  bool incumbent = false;
  for (const auto& [session, member] : members_) {
    if (!electors_.contains(member.join.node) || !liveness_.held(session, now_)) continue;
    ++held;
    if (member.join.node == incumbent_) incumbent = true;
  }
  if (!has_quorum(record_.node_count, left_, held, incumbent)) return false;
  return std::all_of(electorates_.begin(), electorates_.end(), [&](const Electorate& older) {
    return is_quorum_of(older, [&](SessionId session) { return liveness_.held(session, now_); });
  });
}

template <class Holds>
bool Rendezvous::is_quorum_of(const Electorate& older, Holds holds) const {
  int held = 0;
  bool incumbent = false;
  for (const NodeId& node : older.nodes) {
    const auto known = by_node_.find(node);
    if (known == by_node_.end() || !holds(known->second)) continue;
    ++held;
    if (node == older.incumbent) incumbent = true;
  }
  return has_quorum(older.members, older.left, held, incumbent);
}

void Rendezvous::confirm(Member& member, std::uint64_t ping) {
  if (electorates_.empty() || !member.rank || member.confirmed || ping < sealed_ping_) return;
  member.confirmed = true;
  electorates_.erase(std::remove_if(electorates_.begin(), electorates_.end(),
                                    [&](const Electorate& older) {
                                      return is_quorum_of(older, [&](SessionId session) {
                                        return members_.at(session).confirmed;
                                      });
                                    }),
                     electorates_.end());
}

}  // namespace distrun::rendezvous
