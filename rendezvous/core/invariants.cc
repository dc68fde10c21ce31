#include "rendezvous/core/invariants.h"

#include <algorithm>
#include <map>
#include <set>

namespace distrun::rendezvous {
namespace {

using State = RendezvousState;

bool had_a_round(const State& s) {
  return s.last.generation.value >= 0;
}

template <class Is>
bool all_members(const State& s, Is is) {
  return std::all_of(s.members.begin(), s.members.end(), is);
}

long count_waiting(const State& s) {
  return std::count_if(s.members.begin(), s.members.end(),
                       [](const MemberState& m) { return m.waiting; });
}

bool ended_badly(const MemberState& m) {
  return m.rank && m.outcome && m.outcome->result != RoundResult::succeeded;
}

// Whether edges lead from one phase to the other in one event: at most so many at once.
bool leads(RoundPhase from, RoundPhase to, int steps) {
  if (from == to) return true;
  return steps > 0 && std::any_of(kRoundEdges.begin(), kRoundEdges.end(), [&](const auto& edge) {
           return edge.first == from && leads(edge.second, to, steps - 1);
         });
}

// ---- a state -----------------------------------------------------------------------------------

struct StateInvariant {
  std::string_view sentence;
  bool (*holds)(const State&);
};

constexpr StateInvariant kStateInvariants[] = {
    {"each member has a name and a connection of its own",
     [](const State& s) {
       std::set<NodeId> nodes;
       std::set<SessionId> sessions;
       return all_members(s, [&](const MemberState& m) {
         return nodes.insert(m.node).second && sessions.insert(m.session).second;
       });
     }},
    {"no two members have one node rank, and each is below the round's size",
     [](const State& s) {
       std::set<NodeRank> ranks;
       return all_members(s, [&](const MemberState& m) {
         return !m.rank || (m.rank->value >= 0 && m.rank->value < s.node_count &&
                            ranks.insert(*m.rank).second);
       });
     }},
    {"whoever has a place in the last round is one of its electors",
     [](const State& s) {
       return all_members(s, [](const MemberState& m) { return !m.rank || m.elects; });
     }},
    {"a round has no more electors than places, but those that left for good",
     [](const State& s) { return s.electors <= s.node_count - s.left; }},
    {"a job is over exactly if it says how",
     [](const State& s) { return (s.phase == RoundPhase::over) == s.over.has_value(); }},
    {"restarts never exceed the budget",
     [](const State& s) { return s.terms.restart_window || s.restarts <= s.terms.max_restarts; }},
    {"a round has at least MIN nodes and at most MAX",
     [](const State& s) {
       return !had_a_round(s) ||
              (s.node_count >= s.terms.min_nodes && s.node_count <= s.terms.max_nodes);
     }},
    {"before the first round nobody has a rank, and there is nothing to recover or to end",
     [](const State& s) {
       if (had_a_round(s)) return true;
       return all_members(s, [](const MemberState& m) { return !m.rank; }) &&
              s.phase != RoundPhase::sealed && s.phase != RoundPhase::ended &&
              s.phase != RoundPhase::recovering;
     }},
    {"in a last call MIN nodes wait",
     [](const State& s) {
       return s.phase != RoundPhase::last_call || count_waiting(s) >= s.terms.min_nodes;
     }},
    {"who waits for the next round has ended the last",
     [](const State& s) {
       return all_members(s,
                          [](const MemberState& m) { return !m.waiting || !m.rank || m.outcome; });
     }},
    {"in a sealed round nobody has failed or stopped",
     [](const State& s) {
       return s.phase != RoundPhase::sealed ||
              all_members(s, [](const MemberState& m) { return !ended_badly(m); });
     }},
    {"with fixed ranks each member has the one it asked for",
     [](const State& s) {
       return !s.terms.fixed_ranks ||
              all_members(s, [](const MemberState& m) { return !m.rank || m.rank == m.asked; });
     }},
};

// ---- a step ------------------------------------------------------------------------------------

struct StepInvariant {
  std::string_view sentence;
  bool (*holds)(const State& before, const State& after, const Effects& effects);
};

constexpr StepInvariant kStepInvariants[] = {
    {"the phase changes along the edges",
     [](const State& before, const State& after, const Effects&) {
       return leads(before.phase, after.phase, 4);
     }},
    {"the end of a job is final",
     [](const State& before, const State& after, const Effects&) {
       return !before.over || before.over == after.over;
     }},
    {"rounds only grow", [](const State& before, const State& after,
                            const Effects&) { return before.last <= after.last; }},
    {"a sealed round never changes",
     [](const State& before, const State& after, const Effects&) {
       if (before.last != after.last) return true;
       if (before.node_count != after.node_count) return false;
       std::map<NodeId, NodeRank> had;
       for (const MemberState& m : before.members) {
         if (m.rank) had[m.node] = *m.rank;
       }
       return all_members(after, [&](const MemberState& m) {
         const auto was = had.find(m.node);
         return was == had.end() || !m.rank || was->second == *m.rank;
       });
     }},
    {"restarts are counted one at a time, and never back",
     [](const State& before, const State& after, const Effects& effects) {
       // A coordinator that hears of a newer round learns its count, too.
       const bool learned = std::any_of(effects.begin(), effects.end(), [](const Effect& effect) {
         const auto* note = std::get_if<Note>(&effect);
         return note && note->happening.kind == HappeningKind::takeover;
       });
       return learned || after.restarts == before.restarts || after.restarts == before.restarts + 1;
     }},
    {"places are given in the sealed round only, one to a member",
     [](const State&, const State& after, const Effects& effects) {
       std::set<SessionId> told;
       std::set<NodeRank> ranks;
       for (const Effect& effect : effects) {
         const auto* send = std::get_if<Send>(&effect);
         const auto* welcome = send ? std::get_if<Welcome>(&send->message) : nullptr;
         if (!welcome) continue;
         if (welcome->round != after.last || welcome->node_count != after.node_count ||
             !told.insert(send->session).second || !ranks.insert(welcome->node_rank).second) {
           return false;
         }
       }
       return true;
     }},
    {"a round and an end are saved before anybody is told",
     [](const State& before, const State& after, const Effects& effects) {
       bool round_saved = before.last == after.last;
       bool end_saved = before.over.has_value();
       for (const Effect& effect : effects) {
         if (const auto* save = std::get_if<Save>(&effect)) {
           round_saved = round_saved || save->record->last == after.last;
           end_saved = end_saved || save->record->over.has_value();
         } else if (const auto* send = std::get_if<Send>(&effect)) {
           if (std::holds_alternative<Welcome>(send->message) && !round_saved) return false;
           if (std::holds_alternative<Over>(send->message) && !end_saved) return false;
         }
       }
       return true;
     }},
    {"nothing is sent on a connection after it was dropped",
     [](const State&, const State&, const Effects& effects) {
       std::set<SessionId> dropped;
       return std::none_of(effects.begin(), effects.end(), [&](const Effect& effect) {
         if (const auto* drop = std::get_if<Drop>(&effect)) dropped.insert(drop->session);
         const auto* send = std::get_if<Send>(&effect);
         return send && dropped.count(send->session) > 0;
       });
     }},
    {"an event costs a member few messages",
     [](const State&, const State&, const Effects& effects) {
       std::map<SessionId, int> messages;
       return std::none_of(effects.begin(), effects.end(), [&](const Effect& effect) {
         const auto* send = std::get_if<Send>(&effect);
         return send && ++messages[send->session] > 4;
       });
     }},
};

}  // namespace

std::string broken_invariant(const RendezvousState& state) {
  for (const StateInvariant& invariant : kStateInvariants) {
    if (!invariant.holds(state)) return std::string(invariant.sentence);
  }
  return {};
}

std::string broken_step(const RendezvousState& before, const RendezvousState& after,
                        const Effects& effects) {
  for (const StepInvariant& invariant : kStepInvariants) {
    if (!invariant.holds(before, after, effects)) return std::string(invariant.sentence);
  }
  return {};
}

std::vector<std::string_view> invariant_sentences() {
  std::vector<std::string_view> sentences;
  for (const StateInvariant& invariant : kStateInvariants) sentences.push_back(invariant.sentence);
  for (const StepInvariant& invariant : kStepInvariants) sentences.push_back(invariant.sentence);
  return sentences;
}

}  // namespace distrun::rendezvous
