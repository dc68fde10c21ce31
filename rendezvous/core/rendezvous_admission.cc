// Who may come into a Rendezvous, and what a node brings that was in a round before.
#include "rendezvous/core/rendezvous.h"
#include "rendezvous/core/terms.h"
#include "rendezvous/core/words.h"

#include <algorithm>
#include <utility>

namespace distrun::rendezvous {

std::optional<Refused> Rendezvous::refusal(const Join& join) const {
  if (join.version != kProtocolVersion) {
    return refuse(RefusalCode::version, "it speaks protocol version " +
                                            std::to_string(join.version) + ", the coordinator " +
                                            std::to_string(kProtocolVersion) +
                                            "; use one version of distrun on all nodes");
  }
  if (join.token != record_.token) {
    return refuse(RefusalCode::token, "job " + record_.job + " has another token; check that all " +
                                          "nodes have the same");
  }
  if (elsewhere_) return elsewhere_;
  if (of_another_job(join)) {
    return refuse(RefusalCode::closed, "the coordinator does not know the job " + record_.job +
                                           " that it belongs to: it was over, or forgotten, and "
                                           "another of that name has begun");
  }
  if (phase_ == RoundPhase::over) {
    return refuse(RefusalCode::closed, "job " + record_.job + " is over: " + record_.over->why);
  }
  if (const auto problem = terms_problem(join.terms)) return refuse(RefusalCode::terms, *problem);
  const std::string difference = terms_difference(join.terms, record_.terms);
  if (!difference.empty()) {
    return refuse(RefusalCode::terms, "job " + record_.job + " has other flags: " + difference);
  }
  if (join.node_rank &&
      (join.node_rank->value < 0 || join.node_rank->value >= record_.terms.max_nodes)) {
    return refuse(RefusalCode::rank, "--node-rank: " + std::to_string(join.node_rank->value) +
                                         ": the job has node ranks 0 to " +
                                         std::to_string(record_.terms.max_nodes - 1));
  }
  if (record_.terms.fixed_ranks && !join.node_rank) {
    return refuse(RefusalCode::rank, "--node-rank is missing; static needs one for each node");
  }
  if (join.node_rank) {
    const auto taken = asked_ranks_.find(*join.node_rank);
    if (taken != asked_ranks_.end() && members_.at(taken->second).join.node != join.node) {
      return refuse(RefusalCode::rank, "--node-rank: " + std::to_string(join.node_rank->value) +
                                           ": " + members_.at(taken->second).join.host +
                                           " has it; give each node its own");
    }
  }
  if (join.held && record_.last.generation.value >= 0 && join.held->round > record_.last &&
      !knows_newer(join)) {
    return refuse(RefusalCode::stale, "the coordinator knows of no round after " +
                                          std::to_string(record_.last.generation.value));
  }
  if (holds_last(join) && phase_ == RoundPhase::recovering &&
      (join.held->rank.value < 0 || join.held->rank.value >= record_.node_count ||
       taken_seat(join.held->rank, join.node))) {
    return refuse(
        RefusalCode::stale,
        "its place in round " + std::to_string(record_.last.generation.value) + " is not free");
  }
  if (members_.size() >= static_cast<std::size_t>(kMaxNodes)) {
    return refuse(RefusalCode::limit, "job " + record_.job + " has " + std::to_string(kMaxNodes) +
                                          " nodes, and cannot have more");
  }
  return std::nullopt;
}

bool Rendezvous::taken_seat(NodeRank rank, const NodeId& node) const {
  return std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
    return entry.second.rank == rank && entry.second.join.node != node;
  });
}

// A node whose old connection has not been seen closing.  True: it goes on with the new one.
bool Rendezvous::replace_older_session(SessionId session, const Join& join) {
  const auto known = by_node_.find(join.node);
  if (known == by_node_.end()) return false;
  const SessionId old = known->second;
  const Member& member = members_.at(old);
  const bool same_round =
      join.held && join.held->round == record_.last && member.rank == join.held->rank;
  const bool same_wait = !join.held && !member.rank && !member.draining;
  if (!same_round && !same_wait) {
    remove(old, HappeningKind::loss, "it came back on another connection as another member");
    out_.emplace_back(Drop{old});
    return false;
  }
  auto node = members_.extract(old);
  node.key() = session;
  Member& moved = members_.insert(std::move(node)).position->second;
  known->second = session;
  liveness_.remove(old);
  liveness_.add(session, now_);
  if (moved.join.node_rank) asked_ranks_[*moved.join.node_rank] = session;
  moved.join = join;
  moved.join.terms = {};
  out_.emplace_back(Drop{old});
  note(HappeningKind::reattach, join.host + " is back on another connection", &moved);
  if (moved.draining) {
    if (!join.held->outcome) {
      send(session, disband_message("this node was lost, and the others went on"));
    } else {
      set_draining(moved, false);
      moved.outcome = join.held->outcome;
      set_waiting(moved, true);
    }
    return true;
  }
  if (same_round && join.held->outcome && !moved.outcome) take_outcome(moved, *join.held->outcome);
  // What was sent to the old connection may be lost.
  if (same_round && !moved.outcome && phase_ == RoundPhase::ended) {
    send(session, disband_message(ended_why_));
  }
  return true;
}

void Rendezvous::seat_again(SessionId session, const Join& join) {
  Member& member = members_.at(session);
  member.rank = join.held->rank;
  electors_.insert(join.node);
  ++seated_;
  ++working_;
  note(HappeningKind::reattach,
       node_text(join.host, member.rank) + " is back in round " +
           std::to_string(record_.last.generation.value),
       &member);
  if (join.held->outcome) take_outcome(member, *join.held->outcome);
}

// This coordinator's memory is old, or it learned of its round by hearsay, and there is a newer
// one. If there can be no other coordinator, the newest round is the truth.
bool Rendezvous::knows_newer(const Join& join) const {
  return (adopted_ || !authority_.host) && phase_ == RoundPhase::recovering &&
         join.held->round > record_.last;
}

// Its job had this one's name, and is over or, under a daemon without a journal, forgotten.
bool Rendezvous::of_another_job(const Join& join) const {
  return !authority_.host && join.held && record_.last.generation.value >= 0 &&
         join.held->founder != record_.founder;
}

// Two jobs of one name may have rounds of one number: an endpoint without memory, and what it left.
bool Rendezvous::holds_last(const Join& join) const {
  return join.held && join.held->round == record_.last && join.held->founder == record_.founder;
}

void Rendezvous::adopt(const Join& join) {
  for (auto& [session, member] : members_) {  // of the older round
    if (!member.rank) continue;
    member.rank.reset();
    if (!member.outcome) {
      set_draining(member, true);
      send(session, disband_message("a newer round is known"));
    }
  }
  working_ = seated_ = succeeded_ = left_ = 0;
  electors_.clear();
  failure_.reset();
  adopted_ = new_epoch_ = true;
  record_.founder = join.held->founder;
  record_.last = join.held->round;
  record_.node_count = std::clamp(join.held->node_count, 1, record_.terms.max_nodes);
  record_.restarts = std::clamp(join.held->restart_count, 0, record_.terms.max_restarts);
  budget_ = RestartBudget(budget_limits(record_.terms), record_.restarts);
  authority_.successor = kNoSuccessor;
  seat_succeeded_.assign(static_cast<std::size_t>(record_.node_count), false);
  gathering_since_ = now_;
  recovery_ends_ = now_ + kRecovery;
  last_call_ends_.reset();
  if (phase_ != RoundPhase::recovering) enter(RoundPhase::recovering);
  note(HappeningKind::takeover, "learned of round " +
                                    std::to_string(record_.last.generation.value) + " from " +
                                    join.host + "; waiting for its nodes to come back");
}

}  // namespace distrun::rendezvous
