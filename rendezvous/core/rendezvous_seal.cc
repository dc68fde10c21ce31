// A Rendezvous' round begins: who takes part, with which ranks, and what those hear who wait.
#include "rendezvous/core/ranks.h"
#include "rendezvous/core/rendezvous.h"
#include "rendezvous/core/words.h"

#include <algorithm>
#include <map>
#include <utility>

namespace distrun::rendezvous {
namespace {

// How often those who wait are told for what, if nothing changes.
constexpr Duration kReport = std::chrono::seconds(2);

}  // namespace

void Rendezvous::seal() {
  const Terms& terms = record_.terms;
  // Survivors before those who wait for a place, those in order of arrival.  Also survivors that
  // never heard of their round: without them nobody could show that it is over (confirm()).
  std::vector<SessionId> chosen;
  for (const bool survivors : {true, false}) {
    for (const auto& [session, member] : members_) {
      if (!member.waiting || electors_.contains(member.join.node) != survivors) continue;
      if (static_cast<int>(chosen.size()) < terms.max_nodes) chosen.push_back(session);
    }
  }
  std::vector<Candidate> candidates;
  candidates.reserve(chosen.size());
  for (const SessionId session : chosen) {
    const Member& member = members_.at(session);
    candidates.push_back({member.rank, member.join.node_rank, member.join.hosts, member.join.host});
  }
  const std::vector<std::size_t> seats = assign_ranks(candidates);

  const int n = static_cast<int>(seats.size());
  const bool first = record_.last.generation.value < 0;
  if (authority_.host && !first) {
    electorates_.push_back({record_.node_count, left_, incumbent_, electors_});
  }
  electors_.clear();
  for (auto& [session, member] : members_) {
    member.rank.reset();
    member.outcome.reset();
    member.confirmed = false;
  }
  if (new_epoch_) {
    record_.last.epoch = (record_.last.epoch / kEpochs + 1) * kEpochs + authority_.successor;
    new_epoch_ = false;
  }
  record_.last.generation = Generation(record_.last.generation.value + 1);
  record_.node_count = n;
  record_.coordinator = authority_.host.value_or(authority_.elected);
  incumbent_ = record_.coordinator;
  record_.hosts.clear();
  working_ = seated_ = n;
  succeeded_ = left_ = 0;
  seat_succeeded_.assign(seats.size(), false);
  failure_.reset();
  failed_outcome_ = {};
  membership_ = broken_ = false;
  remains_.clear();
  last_call_ends_.reset();

  Welcome welcome;
  welcome.round = record_.last;
  welcome.founder = record_.founder;
  welcome.node_count = n;
  welcome.restart_count = record_.restarts;
  welcome.coordinator = authority_.host.value_or("");
  std::map<std::string, int> role_sizes;
  std::vector<Member*> by_rank;
  for (const std::size_t seat : seats) {
    Member& member = members_.at(chosen[seat]);
    const NodeRank rank(static_cast<int>(by_rank.size()));
    by_rank.push_back(&member);
    member.rank = rank;
    electors_.insert(member.join.node);
    set_waiting(member, false);
    welcome.world_size += member.join.nproc;
    role_sizes[member.join.role] += member.join.nproc;
    record_.hosts.push_back(member.join.host);
    if (authority_.host && rank.value < kMaxSuccessors) {
      welcome.successors.push_back({member.join.node, member.join.host, member.join.address,
                                    member.join.takeover_port, rank});
    }
  }
  --welcome.world_size;  // the 1 it began with
  successors_ = welcome.successors;
  welcome.master_addr = by_rank.front()->join.address;
  welcome.master_port = by_rank.front()->join.store_port;

  enter(RoundPhase::sealed);
  note(HappeningKind::seal,
       "round " + std::to_string(record_.last.generation.value) + " begins: " + std::to_string(n) +
           (n == 1 ? " node, " : " nodes, ") + std::to_string(welcome.world_size) +
           (welcome.world_size == 1 ? " worker" : " workers"));
  out_.emplace_back(Save{std::make_shared<const Record>(record_)});
  std::map<std::string, int> role_bases;
  out_.reserve(out_.size() + by_rank.size());
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const Member& member = *by_rank[rank];
    welcome.node_rank = *member.rank;
    welcome.base_role_rank = role_bases[member.join.role];
    welcome.role_world_size = role_sizes[member.join.role];
    send(chosen[seats[rank]], welcome);
    welcome.base_rank = Rank(welcome.base_rank.value + member.join.nproc);
    role_bases[member.join.role] += member.join.nproc;
  }
  if (waiting_ > 0) next_report_ = now_;  // spares
  if (authority_.host) {
    sealed_ping_ = liveness_.extra_ping(now_);
    const Ping ping = ping_message(sealed_ping_);
    for (const auto& [session, member] : members_) send(session, ping);
  }
}

void Rendezvous::report_waiting() {
  if (now_ < next_report_ || waiting_ == 0 || phase_ == RoundPhase::over) return;
  if (phase_ == RoundPhase::ended && (working_ > 0 || holds_quorum())) return;
  next_report_ = now_ + kReport;
  const Waiting general = waiting();
  for (const auto& [session, member] : members_) {
    if (!member.waiting) continue;
    Waiting message = general;
    if (phase_ == RoundPhase::sealed && member.rank) {
      message.finished = true;
      message.why = of(succeeded_, record_.node_count) + " nodes have finished";
    } else if (phase_ == RoundPhase::sealed) {
      message.spare = true;
      if (authority_.host) message.coordinator = record_.coordinator;
      message.successors = successors_;
    }
    send(session, std::move(message));
  }
}

Waiting Rendezvous::waiting() const {
  Waiting waiting;
  waiting.present = waiting_;
  waiting.min_nodes = record_.terms.min_nodes;
  waiting.max_nodes = record_.terms.max_nodes;
  for (const auto& [session, member] : members_) {
    if (static_cast<int>(waiting.hosts.size()) == kMaxHosts) break;
    if (member.waiting) waiting.hosts.push_back(member.join.host);
  }
  waiting.quorum = holds_quorum();
  switch (phase_) {
    case RoundPhase::gathering:
      if (waiting_ < waiting.min_nodes) waiting.giving_up_in = join_deadline() - now_;
      if (draining_ > 0) waiting.why = "nodes that were lost stop their workers";
      break;
    case RoundPhase::last_call:
      waiting.sealing_in = *last_call_ends_ - now_;
      break;
    case RoundPhase::recovering:
      waiting.why = of(seated_, record_.node_count) + " nodes of round " +
                    std::to_string(record_.last.generation.value) + " are back";
      break;
    case RoundPhase::sealed:
    case RoundPhase::ended:
    case RoundPhase::over:
      break;
  }
  if (!waiting.quorum) {
    waiting.why = "not a majority of round " + std::to_string(record_.last.generation.value) +
                  ": " + of(electors_here(), record_.node_count - left_) + " nodes";
  }
  return waiting;
}

}  // namespace distrun::rendezvous
