#include "tests/sim/rendezvous/referee.h"

#include "rendezvous/core/invariants.h"
#include "tests/sim/rendezvous/node.h"
#include "tests/sim/rendezvous/seat.h"

#include <algorithm>

namespace distrun::rendezvous::sim {

using namespace std::chrono_literals;

namespace {

// How long after a fault its consequences may show.
constexpr Duration kAftermath = 15s;

bool same_end(const Over& a, const Over& b) {
  return a.result == b.result && a.exit_code == b.exit_code && a.report == b.report;
}

bool had_a_round(const RendezvousState& state) {
  return state.last.generation.value >= 0;
}

bool same_failure(const Failure& a, const Failure& b) {
  return a.host == b.host && a.rank == b.rank && a.pid == b.pid && a.exit_code == b.exit_code;
}

}  // namespace

std::vector<std::string_view> Referee::sentences() {
  return {kRanks,  kAgree,      kWorkers,  kFences,  kStart,   kOneJob, kNoWayBack,
          kBudget, kStores,     kQuorum,   kHealthy, kSameEnd, kCause,  kSettles,
          kGoesOn, kNobodyLeft, kFewDials, kOneSeat, kEdges};
}

const NodeId& Referee::id_of(const Node& node) {
  return node.id();
}

void Referee::require(bool holds, std::string_view sentence) {
  if (!holds && broken_.empty()) broken_ = sentence;
}

void Referee::trouble_ends(HostId host) {
  --troubles_[host];
  trouble_ended_[host] = stage_.agenda.now();
}

bool Referee::healthy(HostId host) const {
  const auto troubles = troubles_.find(host);
  if (troubles != troubles_.end() && troubles->second > 0) return false;
  const auto ended = trouble_ended_.find(host);
  return ended == trouble_ended_.end() || stage_.agenda.now() - ended->second > kAftermath;
}

bool Referee::all_there() const {
  return stage_.plan.only_connections_break() &&
         std::none_of(nodes_.begin(), nodes_.end(),
                      [](const auto& node) { return node.second->agent().stopping(); });
}

// ---- coordinators ------------------------------------------------------------------------------

void Referee::seat_opens(Seat& seat) {
  seats_.insert(&seat);
  if (seat.authority().host) {
    job_of_seat_[&seat] = ++last_job_;
  } else {
    if (daemon_job_ == 0) daemon_job_ = ++last_job_;
    job_of_seat_[&seat] = daemon_job_;
  }
}

void Referee::seat_takes_over(const Seat& seat) {
  if (seat.authority().host) job_of_seat_[&seat] = job_of_node_[*seat.authority().host];
}

void Referee::seat_closes(Seat& seat) {
  seats_.erase(&seat);
  job_of_seat_.erase(&seat);
}

void Referee::seat_handled(Seat& seat, const std::map<std::string, RendezvousState>& before,
                           const Event& event, const Effects& effects) {
  ++coverage_.events;
  const RendezvousState none;
  const auto was_ours = before.find(kJob);
  const RendezvousState& job_before = was_ours == before.end() ? none : was_ours->second;
  const bool forgotten = std::any_of(effects.begin(), effects.end(), [](const Effect& effect) {
    return std::holds_alternative<Forget>(effect);
  });
  if (forgotten) {  // everybody had left; the name is free again
    job_of_seat_[&seat] = daemon_job_ = ++last_job_;
    seen("a second job under an old name");
  }
  for (const auto& [job, after] : seat.states()) {
    const auto was = before.find(job);
    if (broken_.empty()) broken_ = broken_invariant(after);
    if (forgotten) continue;
    const RendezvousState& earlier = was == before.end() ? none : was->second;
    if (broken_.empty()) broken_ = broken_step(earlier, after, effects);
    if (was == before.end()) continue;
    if (was->second.phase != after.phase) {
      coverage_.round_edges.insert({was->second.phase, after.phase});
    }
    const bool learned = was->second.last != after.last && after.phase == RoundPhase::recovering;
    const auto* received = std::get_if<Received>(&event);
    const auto* join = received ? std::get_if<Join>(&received->message) : nullptr;
    if (learned && join) {
      const JobNumber job_of_it = job_of_node_[join->node];
      job_of_seat_[&seat] = ends_.contains(job_of_it) ? ++last_job_ : job_of_it;
      seen("a coordinator learns of a round");
    }
    if (!was->second.over && after.over) {
      require(!had_a_round(after) || after.over->result != OverResult::timed_out || !all_there(),
              kGoesOn);
      // Newcomers who were left behind by a job that found no majority are not that job.
      const bool hearsay = seat.authority().host && !after.has_quorum;
      check_end(seat, hearsay ? ++last_job_ : job_of_seat_[&seat], *after.over);
    }
  }
  for (const Effect& effect : effects) {
    const auto* note = std::get_if<Note>(&effect);
    if (!note) continue;
    seen(std::string(to_string(note->happening.kind)) + " is noted");
    if (note->happening.kind == HappeningKind::loss) {
      check_loss(seat, job_before, note->happening.node);
    }
  }
  if (!asking_) check_quorum(seat);
}

void Referee::check_end(const Seat& seat, JobNumber job, const Over& over) {
  all_ends_.push_back(over);
  const auto end = ends_.emplace(job, std::pair(seat.name(), over)).first;
  if (!one_job() || same_end(end->second.second, over)) return;
  // Whoever takes over cannot know what an end was that nobody living has heard of.
  const bool died = std::none_of(seats_.begin(), seats_.end(),
                                 [&](const Seat* one) { return one->name() == end->second.first; });
  require(died, kSameEnd);
  seen("an end dies with its coordinator");
}

// Whoever may act has a quorum; then nobody else has one.
void Referee::check_quorum(Seat& seat) {
  const auto holds = [this](const Seat& one) {
    const auto state = one.states().find(kJob);
    return one.authority().host && one.authority().rule == TakeoverRule::majority &&
           state != one.states().end() && had_a_round(state->second) &&
           state->second.phase != RoundPhase::over && state->second.has_quorum &&
           stage_.network.alive(one.process()) && !stage_.network.paused(one.process());
  };
  if (!holds(seat)) return;
  asking_ = true;
  const std::set<Seat*> seats = seats_;
  for (Seat* other : seats) {
    if (other == &seat || job_of_seat_[other] != job_of_seat_[&seat] || !holds(*other)) continue;
    other->refresh();  // what it said last may no longer be so
    require(!holds(*other), kQuorum);
  }
  asking_ = false;
}

void Referee::check_loss(const Seat& seat, const RendezvousState& before, const NodeId& id) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  const Node& node = *found->second;
  const bool others_may_be_better = seat.authority().host && seat.authority().successor > 0;
  if (!node.alive() || node.agent().stopping() || others_may_be_better || node.hosts()) return;
  const bool had_a_place =
      std::any_of(before.members.begin(), before.members.end(),
                  [&](const MemberState& m) { return m.node == id && m.rank.has_value(); });
  if (!had_a_place) return;
  if (stage_.plan.weather.loss > 0.01) return;
  if (!healthy(node.host()) || !healthy(stage_.network.host_of(seat.process()))) return;
  require(false, kHealthy);
}

void Referee::coordinator_says(const Seat& seat, const CoordinatorMessage& message) {
  ++(std::holds_alternative<Ping>(message) ? beats_ : messages_);
  const auto* welcome = std::get_if<Welcome>(&message);
  if (!welcome || !stage_.careful) return;
  const Key key(job_of_seat_[&seat], welcome->round);
  Round& round = rounds_[key];
  if (round.facts.round != welcome->round) round.facts = *welcome;
  const auto store = stores_.emplace(std::pair(welcome->master_addr, welcome->master_port), key);
  require(store.first->second == key, kStores);
  round_of(*welcome);
}

// Checks that it is as everybody was told.
Referee::Round& Referee::round_of(const Welcome& welcome) {
  const auto key = stores_.find({welcome.master_addr, welcome.master_port});
  Round& round = rounds_[key->second];
  const Welcome& facts = round.facts;
  // With takeover=any two jobs may give one name to two rounds.
  if (!one_job()) return round;
  require(facts.round == welcome.round && facts.node_count == welcome.node_count &&
              facts.world_size == welcome.world_size && facts.master_addr == welcome.master_addr &&
              facts.master_port == welcome.master_port &&
              facts.restart_count == welcome.restart_count &&
              facts.coordinator == welcome.coordinator,
          kAgree);
  require(welcome.node_rank.value >= 0 && welcome.node_rank.value < welcome.node_count, kRanks);
  if (!stage_.plan.terms.restart_window) {
    require(welcome.restart_count <= stage_.plan.terms.max_restarts, kBudget);
  }
  return round;
}

// ---- nodes -------------------------------------------------------------------------------------

void Referee::member_says(const Node&, const AgentMessage& message) {
  ++(std::holds_alternative<Pong>(message) ? beats_ : messages_);
}

void Referee::member_handled(const Node& node, MemberPhase before, const member::Event&,
                             const member::Effects& effects) {
  ++coverage_.events;
  const MemberPhase after = node.member().phase();
  if (before != after) {
    const std::pair edge(before, after);
    coverage_.member_edges.insert(edge);
    // Two at once are a step, too: attached, and at once lost again.
    const auto legal = [](std::pair<MemberPhase, MemberPhase> step) {
      return std::count(kMemberEdges.begin(), kMemberEdges.end(), step) > 0;
    };
    bool via = legal(edge);
    for (const auto& [from, to] : kMemberEdges) {
      via = via || (from == before && legal({to, after}));
    }
    require(via, kEdges);
  }
  if (broken_.empty()) broken_ = node.member().broken_invariant();
  for (const member::Effect& effect : effects) {
    if (std::holds_alternative<member::Host>(effect)) seen("a node takes over");
    if (std::holds_alternative<member::StopHosting>(effect)) seen("a host yields");
    if (const auto* none = std::get_if<member::NoRound>(&effect)) {
      require(none->reason != member::GaveUp::closed ||
                  none->why.find("majority") == std::string::npos || !all_there(),
              kGoesOn);
      seen("a node gives up");
    }
  }
}

void Referee::placed(const Node& node, const Welcome& welcome) {
  if (!stage_.careful) return;
  require(node.agent().joining(), kStart);
  const Key key = stores_.at({welcome.master_addr, welcome.master_port});
  const auto last = last_round_.find(node.id());
  require(last == last_round_.end() || last->second.second < welcome.round, kFences);
  last_round_.insert_or_assign(node.id(), key);
  job_of_node_[node.id()] = key.first;

  Round& round = round_of(welcome);
  if (!one_job()) return;
  const auto rank = round.by_rank.emplace(welcome.node_rank.value, node.id());
  require(rank.first->second == node.id(), kRanks);
  round.workers[welcome.node_rank.value] = {welcome.base_rank.value, node.plan().nproc};
  int end = 0;
  for (const auto& [node_rank, workers] : round.workers) {
    require(workers.first >= end, kWorkers);
    end = workers.first + workers.second;
  }
  require(end <= welcome.world_size, kWorkers);
}

void Referee::group_starts(const Node& node, const Welcome&) {
  if (!stage_.careful) return;
  const Key key = last_round_.at(node.id());
  rounds_[key].running.insert(node.id());
  if (!runs_whole(key) || !one_job()) return;
  // Of a coordinator that nobody can replace, and that asks no majority.
  const bool runs_on_beside = stage_.plan.daemon || stage_.plan.rule == TakeoverRule::never;
  const auto newest = newest_whole_.find(key.first);
  if (newest != newest_whole_.end() && key.second < newest->second) {
    require(runs_on_beside, kNoWayBack);
    return seen("a round beyond the coordinator's reach runs on beside the next");
  }
  newest_whole_[key.first] = key.second;
  for (const Key& other : whole_) {
    if (!runs_whole(other)) continue;
    if (other.first != key.first) {
      // An endpoint without memory may gather newcomers into a job of their own.
      seen("a second job beside one that runs");
    } else if (runs_on_beside) {
      // Workers go on while the coordinator is away, which does not wait for those it cannot reach.
      seen("a round beyond the coordinator's reach runs on beside the next");
    } else {
      require(false, kOneJob);
    }
  }
  whole_.insert(key);
}

void Referee::group_ends(const Node& node, const Fence&, const Outcome& outcome) {
  if (!stage_.careful) return;
  Round& round = rounds_[last_round_.at(node.id())];
  round.running.erase(node.id());
  if (outcome.result != RoundResult::succeeded) return;
  round.succeeded.insert(node.id());
  seen("a node succeeds");
}

bool Referee::runs_whole(const Key& key) const {
  const auto round = rounds_.find(key);
  return round != rounds_.end() &&
         std::ssize(round->second.running) == round->second.facts.node_count;
}

bool Referee::runs_on(const Node& node) const {
  const Round& round = rounds_.at(last_round_.at(node.id()));
  return std::ssize(round.running) + std::ssize(round.succeeded) == round.facts.node_count;
}

void Referee::fails(const Node& node, const Failure& failure) {
  if (!stage_.careful) return;
  Round& round = rounds_[last_round_.at(node.id())];
  round.failures.emplace_back(stage_.agenda.now(), failure);
  const std::set<NodeId> others = round.running;
  for (const NodeId& other : others) {
    if (other == node.id()) continue;
    // The rest of the world, not the node that failed, decides what follows.
    stage_.agenda.after(0s, [this, other] { const_cast<Node*>(nodes_.at(other))->infected(); });
  }
}

void Referee::dies(const Node& node) {
  const auto last = last_round_.find(node.id());
  if (last != last_round_.end()) rounds_[last->second].running.erase(node.id());
}

void Referee::agent_ends(const Node& node, const Exit& exit) {
  if (!stage_.careful) return;
  dies(node);
  if (exit.how != Exit::How::over) return;
  const Over& over = exit.over;
  seen("the job ends: " + std::string(over.result == OverResult::succeeded   ? "succeeded"
                                      : over.result == OverResult::failed    ? "failed"
                                      : over.result == OverResult::timed_out ? "timed out"
                                                                             : "closed"));
  const bool known_end = std::any_of(all_ends_.begin(), all_ends_.end(),
                                     [&](const Over& end) { return same_end(end, over); });
  if (one_job()) require(known_end, kSameEnd);
  if (!over.failure) return;
  bool known = false;
  for (const auto& [key, round] : rounds_) {
    for (const auto& [at, failure] : round.failures) {
      known = known || same_failure(failure, *over.failure);
    }
  }
  require(known, kCause);
}

}  // namespace distrun::rendezvous::sim
