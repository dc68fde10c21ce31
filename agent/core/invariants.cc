#include "agent/core/invariants.h"

#include <algorithm>
#include <csignal>

namespace distrun::agent {

namespace {

// ---- what the sentences are made of ------------------------------------------------------------

// The effects that concern processes; a group's and an agent's alike.
struct ProcessEffects {
  std::vector<Spawn> spawns;
  std::vector<Signal> signals;
  std::vector<StopLeftovers> requests;
  std::vector<GroupVerdict> ended;

  void add(const Spawn& e) { spawns.push_back(e); }
  void add(const Signal& e) { signals.push_back(e); }
  void add(const StopLeftovers& e) { requests.push_back(e); }
  void add(const Ended& e) { ended.push_back(e.verdict); }
  void add(const GroupEnded& e) { ended.push_back(e.verdict); }
  template <class E>
  void add(const E&) {}
};

template <class Variants>
ProcessEffects process_effects(const Variants& effects) {
  ProcessEffects found;
  for (const auto& effect : effects) {
    std::visit([&found](const auto& e) { found.add(e); }, effect);
  }
  return found;
}

template <class E>
long count(const Effects& effects) {
  return std::count_if(effects.begin(), effects.end(),
                       [](const Effect& e) { return std::holds_alternative<E>(e); });
}

long count(const GroupState& s, WorkerPhase phase) {
  return std::count_if(s.workers.begin(), s.workers.end(),
                       [phase](const Worker& w) { return w.phase == phase; });
}

bool nobody_alive(const GroupState& s) {
  return count(s, WorkerPhase::alive) == 0 && count(s, WorkerPhase::spawning) == 0;
}

template <class Range, class Is>
bool all(const Range& range, Is is) {
  return std::all_of(range.begin(), range.end(), is);
}

const Worker& worker(const GroupState& s, LocalRank local_rank) {
  return s.workers.at(static_cast<std::size_t>(local_rank.value));
}

// Whether `edges` lead from one phase to the other, in one event: at most two at once.
template <class Edges, class Phase>
bool leads(const Edges& edges, Phase from, Phase to) {
  if (from == to) return true;
  for (const auto& [a, b] : edges) {
    if (a != from) continue;
    if (b == to) return true;
    for (const auto& [c, d] : edges) {
      if (c == b && d == to) return true;
    }
  }
  return false;
}

// ---- a group's state ---------------------------------------------------------------------------

struct GroupInvariant {
  std::string_view sentence;
  bool (*holds)(const GroupState&, const GroupLimits&);
};

constexpr GroupInvariant kGroupInvariants[] = {
    {"an idle group has started nobody",
     [](const GroupState& s, const GroupLimits& limits) {
       return s.phase != GroupPhase::idle ||
              (count(s, WorkerPhase::waiting) == limits.nproc && s.ends.empty());
     }},
    {"workers are spawned one at a time, in order of local rank",
     [](const GroupState& s, const GroupLimits&) {
       const auto started = [](const Worker& w) { return w.phase != WorkerPhase::waiting; };
       return count(s, WorkerPhase::spawning) <= 1 &&
              std::is_partitioned(s.workers.begin(), s.workers.end(), started) &&
              all(s.workers, [&](const Worker& w) {
                return w.phase != WorkerPhase::spawning || &w == &s.workers.back() ||
                       (&w)[1].phase == WorkerPhase::waiting;
              });
     }},
    {"a running group has started every worker",
     [](const GroupState& s, const GroupLimits&) {
       return s.phase != GroupPhase::running ||
              (count(s, WorkerPhase::waiting) == 0 && count(s, WorkerPhase::spawning) == 0);
     }},
    {"a running group with a failure is holding back, or stops",
     [](const GroupState& s, const GroupLimits&) {
       return s.phase != GroupPhase::running || !s.first_failure || s.hold_until;
     }},
    {"a failure is held back on the first attempt only, and no longer than a start may take",
     [](const GroupState& s, const GroupLimits& limits) {
       return !s.hold_until || (limits.first_attempt && s.phase == GroupPhase::running &&
                                *s.hold_until <= *s.started_at + kStartup);
     }},
    {"a stop has one deadline, before SIGKILL and after it, and nothing else has one",
     [](const GroupState& s, const GroupLimits&) {
       if (s.phase != GroupPhase::stopping) return !s.kill_at && !s.give_up_at;
       return s.kill_at.has_value() == !s.killing && s.give_up_at.has_value() == s.killing;
     }},
    {"in a stop every living worker has been told",
     [](const GroupState& s, const GroupLimits&) {
       return s.phase != GroupPhase::stopping || all(s.workers, [&](const Worker& w) {
                return w.phase != WorkerPhase::alive ||
                       w.signalled == (s.killing ? SIGKILL : s.stop_signo);
              });
     }},
    {"in a stop without workers somebody looks for what they left behind",
     [](const GroupState& s, const GroupLimits&) {
       return s.phase != GroupPhase::stopping || !nobody_alive(s) || s.last_look;
     }},
    {"a stopped group has nobody alive but the abandoned",
     [](const GroupState& s, const GroupLimits&) {
       return s.phase != GroupPhase::stopped || nobody_alive(s);
     }},
    {"only after SIGKILL is anything abandoned",
     [](const GroupState& s, const GroupLimits&) {
       const bool abandoned = count(s, WorkerPhase::abandoned) > 0 ||
                              (s.phase == GroupPhase::stopped && !s.leftovers_gone);
       return !abandoned || s.killing;
     }},
    {"a worker has an end exactly if it is gone",
     [](const GroupState& s, const GroupLimits&) {
       return std::ssize(s.ends) == count(s, WorkerPhase::gone) &&
              all(s.ends, [&](const Ending& end) {
                return worker(s, end.local_rank).phase == WorkerPhase::gone;
              });
     }},
    {"the first failure comes before every victim, and is a failure",
     [](const GroupState& s, const GroupLimits&) {
       for (const Ending& end : s.ends) {
         if (end.part == Part::victim) return false;
         if (end.part != Part::first_failure) continue;
         return s.first_failure == end && !succeeded(end.status);
       }
       return !s.first_failure;
     }},
    {"whom we signalled is neither cause nor victim",
     [](const GroupState& s, const GroupLimits&) {
       return all(s.ends, [&](const Ending& end) {
         return end.part == Part::stopped || worker(s, end.local_rank).signalled == 0;
       });
     }},
};

// ---- a group's step ----------------------------------------------------------------------------

struct GroupStep {
  const GroupState& before;
  const GroupState& after;
  const ProcessEffects& effects;
  TimePoint now;
};

struct GroupStepInvariant {
  std::string_view sentence;
  bool (*holds)(const GroupStep&);
};

constexpr GroupStepInvariant kGroupStepInvariants[] = {
    {"a group's phase changes along its edges",
     [](const GroupStep& s) { return leads(kGroupEdges, s.before.phase, s.after.phase); }},
    {"a stopped group never changes",
     [](const GroupStep& s) {
       return s.before.phase != GroupPhase::stopped || s.after == s.before;
     }},
    {"a group says once that it has ended, and with what it stopped",
     [](const GroupStep& s) {
       const bool stops =
           s.before.phase != GroupPhase::stopped && s.after.phase == GroupPhase::stopped;
       return std::ssize(s.effects.ended) == (stops ? 1 : 0) &&
              all(s.effects.ended, [&](const GroupVerdict& verdict) {
                return verdict.ends == s.after.ends &&
                       verdict.first_failure == s.after.first_failure;
              });
     }},
    {"the first failure is never overwritten",
     [](const GroupStep& s) {
       return !s.before.first_failure || s.after.first_failure == s.before.first_failure;
     }},
    {"an end never changes",
     [](const GroupStep& s) {
       return s.after.ends.size() >= s.before.ends.size() &&
              std::equal(s.before.ends.begin(), s.before.ends.end(), s.after.ends.begin());
     }},
    {"nobody is spawned once a stop has begun",
     [](const GroupStep& s) {
       return s.effects.spawns.empty() || s.after.phase == GroupPhase::starting;
     }},
    {"nobody is signalled who is gone",
     [](const GroupStep& s) {
       return all(s.effects.signals, [&](const Signal& signal) {
         return worker(s.after, signal.local_rank).phase == WorkerPhase::alive;
       });
     }},
    {"a notice changes nothing but reaches the process alone, a stop its whole group",
     [](const GroupStep& s) {
       return all(s.effects.signals, [&](const Signal& signal) {
         return signal.target == Target::group ? s.after.phase == GroupPhase::stopping
                                               : s.after == s.before;
       });
     }},
    {"SIGKILL comes after the grace, or on an order",
     [](const GroupStep& s) {
       return s.before.killing || !s.after.killing || s.after.escalated ||
              (s.before.kill_at && s.now >= *s.before.kill_at);
     }},
    {"a stop that is under way keeps its deadline",
     [](const GroupStep& s) {
       const auto kept = [](const auto& before, const auto& after) {
         return !before || !after || *before == *after;
       };
       return kept(s.before.kill_at, s.after.kill_at) &&
              kept(s.before.give_up_at, s.after.give_up_at);
     }},
    {"what the workers left behind is told by the same signals as they were",
     [](const GroupStep& s) {
       return all(s.effects.requests, [&](const StopLeftovers& request) {
         return request.signo == (s.after.killing ? SIGKILL : s.after.stop_signo);
       });
     }},
};

// ---- an agent's state --------------------------------------------------------------------------

struct AgentInvariant {
  std::string_view sentence;
  bool (*holds)(const AgentState&, const AgentLimits&);
};

constexpr AgentInvariant kAgentInvariants[] = {
    {"the agent's phase follows its group's",
     [](const AgentState& s, const AgentLimits&) {
       switch (s.phase) {
         case AgentPhase::idle:
           return s.group.phase == GroupPhase::idle;
         case AgentPhase::joining:
         case AgentPhase::done:
           return s.group.phase == GroupPhase::idle || s.group.phase == GroupPhase::stopped;
         case AgentPhase::launching:
           return s.group.phase == GroupPhase::starting;
         case AgentPhase::working:
           return s.group.phase == GroupPhase::running;
         case AgentPhase::draining:
           return s.group.phase == GroupPhase::stopping;
       }
       return false;
     }},
    {"a stop that was requested is followed by a last word at most, never by work",
     [](const AgentState& s, const AgentLimits&) {
       return s.stop_signo == 0 || s.phase == AgentPhase::draining || s.phase == AgentPhase::done ||
              (s.phase == AgentPhase::joining && s.answer_by);
     }},
    {"the rendezvous's last word waits only for a group that stops",
     [](const AgentState& s, const AgentLimits&) {
       return !s.kept || s.phase == AgentPhase::draining;
     }},
    {"there is a verdict exactly when all is done",
     [](const AgentState& s, const AgentLimits&) {
       return s.verdict.has_value() == (s.phase == AgentPhase::done);
     }},
    {"the exit code is 0 exactly for a success, and says who stopped the job",
     [](const AgentState& s, const AgentLimits&) {
       if (!s.verdict) return true;
       const int code = s.verdict->exit_code;
       switch (s.verdict->result) {
         case JobResult::succeeded:
           return code == 0;
         case JobResult::interrupted:
           return s.stop_signo != 0 && code == 128 + s.stop_signo;
         case JobResult::failed:
         case JobResult::no_round:
           return code != 0;
       }
       return false;
     }},
    {"the cause of a failed job is the last round's, or has another node's report",
     [](const AgentState& s, const AgentLimits&) {
       if (!s.verdict) return true;
       const JobVerdict& verdict = *s.verdict;
       if (verdict.result != JobResult::failed) {
         return !verdict.first_failure && verdict.report.empty();
       }
       if (!verdict.report.empty()) return !verdict.first_failure;
       return verdict.first_failure ==
              (verdict.last_group ? verdict.last_group->first_failure : std::nullopt);
     }},
};

// ---- an agent's step ---------------------------------------------------------------------------

struct AgentStep {
  const AgentState& before;
  const AgentState& after;
  const Effects& effects;
};

struct AgentStepInvariant {
  std::string_view sentence;
  bool (*holds)(const AgentStep&);
};

constexpr AgentStepInvariant kAgentStepInvariants[] = {
    {"an agent's phase changes along its edges",
     [](const AgentStep& s) { return leads(kAgentEdges, s.before.phase, s.after.phase); }},
    {"done is final",
     [](const AgentStep& s) {
       return s.before.phase != AgentPhase::done || (s.after == s.before && s.effects.empty());
     }},
    {"no group is started while anything of an older one may be alive",
     [](const AgentStep& s) {
       if (count<StartGroup>(s.effects) == 0) return true;
       const GroupState& older = s.before.group;
       return older.phase == GroupPhase::idle ||
              (older.phase == GroupPhase::stopped && older.leftovers_gone && nobody_alive(older) &&
               count(older, WorkerPhase::abandoned) == 0);
     }},
    {"the generation grows with every group",
     [](const AgentStep& s) {
       if (count<StartGroup>(s.effects) == 0) return s.after.assignment == s.before.assignment;
       return !s.before.assignment ||
              s.after.assignment->generation > s.before.assignment->generation;
     }},
    {"the rendezvous is told how each round went, once, and nothing before the first",
     [](const AgentStep& s) {
       const bool joins =
           s.before.phase != AgentPhase::joining && s.after.phase == AgentPhase::joining;
       return count<Join>(s.effects) == (joins ? 1 : 0) &&
              all(s.effects, [&](const Effect& effect) {
                const auto* join = std::get_if<Join>(&effect);
                if (!join) return true;
                if (s.after.groups_started == 0) return !join->ended;
                return join->ended && join->ended->generation == s.after.assignment->generation &&
                       join->ended->ends == s.after.group.ends &&
                       join->ended->first_failure == s.after.group.first_failure;
              });
     }},
    {"restarts are counted by the rendezvous alone",
     [](const AgentStep& s) {
       if (count<StartGroup>(s.effects) > 0) {
         return s.after.restarts == s.after.assignment->restart_count;
       }
       return s.after.restarts == s.before.restarts || s.after.kept ||
              s.after.phase == AgentPhase::done;
     }},
    {"the rendezvous's last word stays, and ends the job unless the operator did",
     [](const AgentStep& s) {
       if (!s.before.kept) return true;
       if (s.after.phase == AgentPhase::draining) return s.after.kept == s.before.kept;
       if (s.after.phase != AgentPhase::done) return false;
       return s.after.verdict->result == s.before.kept->result
                  ? s.after.verdict->exit_code == s.before.kept->exit_code
                  : s.after.verdict->result == JobResult::interrupted;
     }},
    {"a failure is reported in the step in which it is known",
     [](const AgentStep& s) {
       const bool known = s.after.group.first_failure &&
                          (s.before.groups_started != s.after.groups_started ||
                           s.before.group.first_failure != s.after.group.first_failure);
       return count<Report>(s.effects) == (known ? 1 : 0);
     }},
    {"the agent leaves and finishes once, and last of all",
     [](const AgentStep& s) {
       const bool ends = s.before.phase != AgentPhase::done && s.after.phase == AgentPhase::done;
       if (!ends) return count<Finish>(s.effects) == 0 && count<Leave>(s.effects) == 0;
       return count<Finish>(s.effects) == 1 && std::holds_alternative<Finish>(s.effects.back()) &&
              count<Leave>(s.effects) == (s.before.phase == AgentPhase::idle ? 0 : 1);
     }},
};

GroupLimits group_limits(const AgentState& state, const AgentLimits& limits) {
  GroupLimits of{{}, {}, limits.nproc, limits.grace, limits.patience, state.groups_started <= 1};
  if (state.assignment) {
    of.generation = state.assignment->generation;
    of.base_rank = state.assignment->base_rank;
  }
  return of;
}

std::string broken_group_step(const GroupState& before, const GroupState& after,
                              const ProcessEffects& effects, TimePoint now) {
  const GroupStep step{before, after, effects, now};
  for (const auto& invariant : kGroupStepInvariants) {
    if (!invariant.holds(step)) return std::string(invariant.sentence);
  }
  return {};
}

}  // namespace

std::string broken_invariant(const GroupState& state, const GroupLimits& limits) {
  for (const auto& invariant : kGroupInvariants) {
    if (!invariant.holds(state, limits)) return std::string(invariant.sentence);
  }
  return {};
}

std::string broken_step(const GroupState& before, const GroupState& after,
                        const GroupEffects& effects, TimePoint now) {
  return broken_group_step(before, after, process_effects(effects), now);
}

std::string broken_invariant(const AgentState& state, const AgentLimits& limits) {
  for (const auto& invariant : kAgentInvariants) {
    if (!invariant.holds(state, limits)) return std::string(invariant.sentence);
  }
  return broken_invariant(state.group, group_limits(state, limits));
}

std::string broken_step(const AgentState& before, const AgentState& after, const Effects& effects,
                        TimePoint now) {
  GroupState fresh;  // if a new group began in this step, it began so
  fresh.workers.resize(after.group.workers.size());
  const bool begun = before.groups_started != after.groups_started;
  std::string broken =
      broken_group_step(begun ? fresh : before.group, after.group, process_effects(effects), now);
  if (!broken.empty()) return broken;
  const AgentStep step{before, after, effects};
  for (const auto& invariant : kAgentStepInvariants) {
    if (!invariant.holds(step)) return std::string(invariant.sentence);
  }
  return {};
}

std::vector<std::string_view> invariant_sentences() {
  std::vector<std::string_view> sentences;
  const auto add = [&sentences](const auto& table) {
    for (const auto& invariant : table) sentences.push_back(invariant.sentence);
  };
  add(kGroupInvariants);
  add(kGroupStepInvariants);
  add(kAgentInvariants);
  add(kAgentStepInvariants);
  return sentences;
}

}  // namespace distrun::agent
