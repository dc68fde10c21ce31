#include "rendezvous/core/rendezvous.h"

#include "rendezvous/core/terms.h"
#include "rendezvous/core/words.h"
#include "runtime/base/check.h"

#include <algorithm>
#include <utility>

namespace distrun::rendezvous {
namespace {

// Up to so many members hear of each change at once; more would cost O(nodes^2) while they come.
constexpr std::size_t kChatty = 16;
// After a takeover: from the quorum to the end of waiting for the others.
constexpr Duration kStragglers = std::chrono::seconds(1);

bool is_loopback(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1";
}

}  // namespace

std::string_view to_string(RoundPhase phase) {
  switch (phase) {
    case RoundPhase::gathering:
      return "gathering";
    case RoundPhase::last_call:
      return "last_call";
    case RoundPhase::sealed:
      return "sealed";
    case RoundPhase::ended:
      return "ended";
    case RoundPhase::recovering:
      return "recovering";
    case RoundPhase::over:
      return "over";
  }
  return "?";
}

Rendezvous::Rendezvous(const Join& founder, Authority authority)
    : authority_(std::move(authority)),
      budget_(budget_limits(founder.terms)),
      liveness_(founder.terms.beat, founder.terms.silence()) {
  DISTRUN_CHECK(!terms_problem(founder.terms));
  record_.job = founder.job;
  record_.token = founder.token;
  record_.founder = founder.node;
  record_.terms = founder.terms;
}

Rendezvous::Rendezvous(Record record, Authority authority, TimePoint now)
    : record_(std::move(record)),
      authority_(std::move(authority)),
      budget_(budget_limits(record_.terms), record_.restarts),
      liveness_(record_.terms.beat, record_.terms.silence()),
      now_(now) {
  incumbent_ = record_.coordinator;
  if (record_.over) {
    phase_ = RoundPhase::over;
  } else if (record_.last.generation.value >= 0) {
    phase_ = RoundPhase::recovering;
    seat_succeeded_.assign(static_cast<std::size_t>(record_.node_count), false);
    recovery_ends_ = now + kRecovery;
    new_epoch_ = authority_.host.has_value();
  }
}

Effects Rendezvous::handle(const Event& event, TimePoint now) {
  DISTRUN_CHECK(now >= now_);
  now_ = now;
  out_.clear();
  liveness_.awake(now);
  std::visit([this](const auto& e) { on(e); }, event);
  while (const auto silent = liveness_.silent(now)) {
    remove(*silent, HappeningKind::loss, "no answer for " + duration_text(record_.terms.silence()));
    out_.emplace_back(Drop{*silent});
  }
  settle();
  report_waiting();
  if (const auto number = liveness_.ping(now)) {
    const Ping ping = ping_message(*number);
    out_.reserve(out_.size() + members_.size());
    for (const auto& [session, member] : members_) send(session, ping);
  } else if (const auto doubted = liveness_.doubted(now); !doubted.empty()) {
    const Ping ping = ping_message(liveness_.extra_ping(now));
    for (const SessionId session : doubted) send(session, ping);
  }
  return std::move(out_);
}

std::optional<TimePoint> Rendezvous::next_deadline() const {
  std::optional<TimePoint> next = liveness_.next_deadline();
  const auto at = [&](TimePoint time) { next = next ? std::min(*next, time) : time; };
  if (members_.empty()) return std::nullopt;
  switch (phase_) {
    case RoundPhase::gathering:
      if (join_deadline() > now_) at(join_deadline());  // later: each beat looks for a quorum
      if (hold_until_ > now_) at(hold_until_);
      if (waiting_ > 0) at(next_report_);
      break;
    case RoundPhase::last_call:
      at(*last_call_ends_);
      at(next_report_);
      break;
    case RoundPhase::recovering:
      if (!members_.empty()) at(recovery_ends_);
      if (waiting_ > 0) at(next_report_);
      break;
    case RoundPhase::sealed:
      if (scales_up() && static_cast<int>(joins_.size()) >= kMembershipChanges) {
        at(joins_.front() + kMembershipWindow);
      }
      break;
    case RoundPhase::ended:
    case RoundPhase::over:
      break;
  }
  return next;
}

RendezvousState Rendezvous::state() const {
  RendezvousState state;
  state.job = record_.job;
  state.phase = phase_;
  state.terms = record_.terms;
  state.last = record_.last;
  state.node_count = record_.node_count;
  state.electors = static_cast<int>(electors_.size());
  state.left = left_;
  state.restarts = record_.restarts;
  state.has_quorum = holds_quorum();
  for (const auto& [session, member] : members_) {
    MemberState shown;
    shown.node = member.join.node;
    shown.host = member.join.host;
    shown.address = member.join.address;
    shown.nproc = member.join.nproc;
    shown.role = member.join.role;
    shown.session = session;
    shown.rank = member.rank;
    shown.elects = electors_.contains(member.join.node);
    shown.asked = member.join.node_rank;
    shown.outcome = member.outcome;
    shown.waiting = member.waiting;
    shown.heard = liveness_.last_heard(session);
    shown.store_port = member.join.store_port;
    shown.takeover_port = member.join.takeover_port;
    shown.hosts = member.join.hosts;
    state.members.push_back(std::move(shown));
  }
  state.last_failure = last_failure_;
  state.over = record_.over;
  return state;
}

// ---- events ------------------------------------------------------------------------------------

void Rendezvous::on(const Received& event) {
  if (const auto* join = std::get_if<Join>(&event.message)) {
    if (members_.count(event.session) != 0) return;  // once a session
    return on_message(event.session, *join);
  }
  if (members_.count(event.session) == 0) return;  // of somebody lost or refused
  liveness_.heard(event.session, now_);
  std::visit([&](const auto& message) { on_message(event.session, message); }, event.message);
}

void Rendezvous::on(const Closed& event) {
  // It hung up on a coordinator that was paused; its next Join is on its way.  If none comes, it is
  // lost for its silence.
  if (phase_ != RoundPhase::over && liveness_.just_awake(now_)) return;
  remove(event.session, HappeningKind::loss, "its connection closed");
}

void Rendezvous::on(const ReachedAt& event) {
  for (auto& [session, member] : members_) {
    if (is_loopback(member.join.address)) member.join.address = event.address;
  }
}

void Rendezvous::on_message(SessionId session, const Join& join) {
  const bool trusted = join.token == record_.token;
  if (phase_ == RoundPhase::over && trusted && join.held && join.held->round <= record_.last &&
      !of_another_job(join)) {
    // It missed the end.
    send(session, *record_.over);
    out_.emplace_back(Drop{session});
    return;
  }
  if (authority_.host && trusted && join.hosts && join.node != *authority_.host && join.held &&
      record_.last.generation.value < 0) {
    direct_elsewhere(join);
  }
  if (auto refused = refusal(join)) {
    superseded_ = superseded_ || refused->code == RefusalCode::stale;
    Member guest;
    guest.join = join;
    note(HappeningKind::refuse, join.host + " is refused: " + refused->why, &guest);
    send(session, std::move(*refused));
    out_.emplace_back(Drop{session});
    return;
  }
  if (replace_older_session(session, join)) return;
  if (join.held && (record_.last.generation.value < 0 || knows_newer(join))) adopt(join);

  if (members_.empty()) {
    gathering_since_ = now_;
    recovery_ends_ = now_ + kRecovery;
  }
  Member& member = members_[session];
  member.join = join;
  member.join.terms = {};
  by_node_[join.node] = session;
  if (join.node_rank) asked_ranks_[*join.node_rank] = session;
  liveness_.add(session, now_);
  if (members_.size() <= kChatty) next_report_ = now_;
  if (join.held || authority_.host) ping_now(session);

  if (!join.held) {
    set_waiting(member, true);
    return note(HappeningKind::join, join.host + " waits for a round", &member);
  }
  if (holds_last(join) && phase_ == RoundPhase::recovering) {
    return seat_again(session, join);
  }
  // Its round is over, or it was taken for lost: it begins anew once its workers are stopped.
  note(HappeningKind::join,
       join.host + " is back from round " + std::to_string(join.held->round.generation.value),
       &member);
  const bool before_the_next = phase_ == RoundPhase::ended || phase_ == RoundPhase::gathering ||
                               phase_ == RoundPhase::last_call;
  if (holds_last(join) && before_the_next && !taken_seat(join.held->rank, join.node) &&
      join.held->rank.value < record_.node_count) {
    member.rank = join.held->rank;  // nobody has its place yet
    electors_.insert(join.node);
    ++seated_;
  }
  if (join.held->outcome) {
    member.outcome = join.held->outcome;
    return set_waiting(member, true);
  }
  set_draining(member, true);
  Disband disband;
  disband.round = join.held->round;
  disband.why = "this node was lost, and the others went on";
  send(session, std::move(disband));
}

void Rendezvous::on_message(SessionId session, const Failed& failed) {
  Member& member = members_.at(session);
  if (failed.round != record_.last || !member.rank || member.outcome || member.draining) return;
  take_failure(member, failed.failure);
  if (phase_ == RoundPhase::sealed) end_round(failure_text(), false);
}

void Rendezvous::on_message(SessionId session, const Ended& ended) {
  Member& member = members_.at(session);
  member.join.store_port = ended.store_port;
  if (member.draining) {
    set_draining(member, false);
    member.outcome = ended.outcome;
    set_waiting(member, phase_ != RoundPhase::over);
    return;
  }
  if (ended.outcome.round != record_.last || !member.rank || member.outcome) return;
  take_outcome(member, ended.outcome);
}

void Rendezvous::on_message(SessionId session, const Pong& pong) {
  liveness_.answered(session, pong.number, now_);
  confirm(members_.at(session), pong.number);
}

void Rendezvous::on_message(SessionId session, const Leave& leave) {
  remove(session, HappeningKind::leave, leave.why);
  out_.emplace_back(Drop{session});
}

// ---- how the round goes ------------------------------------------------------------------------

void Rendezvous::take_failure(const Member& member, const Failure& failure) {
  const TimePoint at = now_ - std::min(failure.age, record_.terms.silence());
  if (failure_ && failed_at_ <= at) return;
  failure_ = failure;
  failed_at_ = at;
  failed_outcome_ = {};
  last_failure_ = failure;
  note(HappeningKind::failure, failure_text(), &member);
}

std::string Rendezvous::failure_text() const {
  return "rank " + std::to_string(failure_->rank.value) + " on " + failure_->host + ": " +
         failure_->status;
}

void Rendezvous::take_outcome(Member& member, Outcome outcome) {
  member.outcome = std::move(outcome);
  const Outcome& how = *member.outcome;
  --working_;
  set_waiting(member, true);
  if (how.remains) remains_ += (remains_.empty() ? "" : ", ") + member.join.host;
  switch (how.result) {
    case RoundResult::succeeded: {
      const auto seat = static_cast<std::size_t>(member.rank->value);
      if (!seat_succeeded_[seat]) ++succeeded_;
      seat_succeeded_[seat] = true;
      return;
    }
    case RoundResult::failed:
      if (how.failure) take_failure(member, *how.failure);
      if (how.failure && failure_->rank == how.failure->rank) failed_outcome_ = how;
      if (phase_ == RoundPhase::sealed) end_round(failure_text(), false);
      return;
    case RoundResult::stopped:
      broken_ = true;
      if (phase_ == RoundPhase::sealed) {
        end_round(member.join.host + " stopped its workers", true);
      }
      return;
  }
}

void Rendezvous::remove(SessionId session, HappeningKind how, const std::string& why) {
  const auto found = members_.find(session);
  if (found == members_.end()) return;
  const Member member = std::move(found->second);
  const bool left = how == HappeningKind::leave;
  const std::string text =
      node_text(member.join.host, member.rank) + (left ? " left: " : " is lost: ") + why;
  set_waiting(found->second, false);
  set_draining(found->second, false);
  if (member.join.node_rank) asked_ranks_.erase(*member.join.node_rank);
  members_.erase(found);
  by_node_.erase(member.join.node);
  liveness_.remove(session);
  if (phase_ == RoundPhase::over) return;
  if (members_.size() <= kChatty) next_report_ = now_;
  note(how, text, &member);
  const bool seat_left = left && electors_.erase(member.join.node) > 0;
  const bool host_left = seat_left && member.join.hosts;
  if (seat_left) ++left_;
  // Only who decides a draw passes that on, and only here: while it lives, or may have told
  // another, a second one would be named.
  if (host_left && member.join.node == incumbent_ && authority_.host == incumbent_) {
    incumbent_ = lowest_node();
  }
  if (!member.rank) {
    if (host_left) hand_over(text);
    return;
  }

  --seated_;
  if (!member.outcome && !member.draining) --working_;
  last_loss_ = text;
  hold_until_ = std::max(hold_until_, now_ + record_.terms.rejoin_wait);
  const bool done = member.outcome && member.outcome->result == RoundResult::succeeded;
  // Who has succeeded is not missed, unless the others' store was on that node.
  if (phase_ == RoundPhase::sealed && (!done || member.rank->value == 0)) {
    if (succeeded_ == record_.node_count) return;
    if (!spend_membership_change()) return;
    return end_round(text, true);
  }
  // A failure that comes with a loss is the loss's: workers die of a peer that is gone.
  if (phase_ == RoundPhase::ended && !done && !membership_) {
    membership_ = true;
    if (!spend_membership_change()) return;
  }
  if (host_left) hand_over(text);
}

// The coordinator goes with this node; the others learn who decides a draw without it.
void Rendezvous::hand_over(const std::string& why) {
  for (const auto& [session, member] : members_) {
    if (member.rank) send(session, disband_message(why));
  }
}

// One more within the window, if there is room.
bool Rendezvous::spend(std::deque<TimePoint>& changes) const {
  while (!changes.empty() && now_ - changes.front() >= kMembershipWindow) changes.pop_front();
  if (static_cast<int>(changes.size()) >= kMembershipChanges) return false;
  changes.push_back(now_);
  return true;
}

bool Rendezvous::spend_membership_change() {
  if (spend(losses_)) return true;
  Over over;
  over.result = OverResult::failed;
  over.exit_code = 1;
  over.why = "nodes were lost " + std::to_string(kMembershipChanges) + " times within " +
             duration_text(kMembershipWindow) + "; the last: " + last_loss_;
  finish(std::move(over));
  return false;
}

void Rendezvous::end_round(const std::string& why, bool membership) {
  enter(RoundPhase::ended);
  membership_ = membership;
  ended_why_ = why;
  note(HappeningKind::disband,
       "round " + std::to_string(record_.last.generation.value) + " is over: " + why);
  out_.reserve(out_.size() + members_.size());
  for (const auto& [session, member] : members_) {
    if (member.rank && !member.outcome) send(session, disband_message(why));
  }
}

Disband Rendezvous::disband_message(const std::string& why) const {
  Disband disband;
  disband.round = record_.last;
  disband.why = why;
  disband.left = left_;
  if (authority_.host) disband.heir = incumbent_;
  return disband;
}

NodeId Rendezvous::lowest_node() const {
  const Member* lowest = nullptr;
  for (const auto& [session, member] : members_) {
    if (member.rank && (lowest == nullptr || *member.rank < *lowest->rank)) lowest = &member;
  }
  return lowest != nullptr ? lowest->join.node : NodeId();
}

// ---- what follows ------------------------------------------------------------------------------

void Rendezvous::settle() {
  while (step()) {
  }
}

bool Rendezvous::step() {
  const Terms& terms = record_.terms;
  const bool first = record_.last.generation.value < 0;
  switch (phase_) {
    case RoundPhase::gathering: {
      if (members_.empty()) return false;
      if (waiting_ >= terms.min_nodes) {
        // Also if nobody of the last round is left: all who come are newcomers.
        if ((first || seated_ == 0) && waiting_ < terms.max_nodes && holds_quorum()) {
          last_call_ends_ = now_ + terms.last_call;
          enter(RoundPhase::last_call);
          return true;
        }
        const bool all_back = draining_ == 0 && now_ >= hold_until_;
        if ((waiting_ >= terms.max_nodes || all_back) && holds_quorum()) {
          seal();
          return true;
        }
      }
      if (now_ < join_deadline()) return false;
      if (seated_ > 0 && !holds_quorum()) return false;  // the others may be enough
      Over over;
      over.result = OverResult::timed_out;
      over.exit_code = 75;
      over.why = of(waiting_, terms.min_nodes) + " nodes came within " +
                 duration_text(terms.join_timeout) +
                 (last_loss_.empty() ? "" : "; before, " + last_loss_);
      finish(std::move(over));
      return true;
    }
    case RoundPhase::last_call:
      if (waiting_ < terms.min_nodes || !holds_quorum()) {
        last_call_ends_.reset();
        gathering_since_ = now_;
        enter(RoundPhase::gathering);
        return true;
      }
      if (waiting_ < terms.max_nodes && now_ < *last_call_ends_) return false;
      seal();
      return true;
    case RoundPhase::sealed: {
      if (succeeded_ == record_.node_count) {
        Over over;
        over.why = "all workers exited with status 0";
        finish(std::move(over));
        return true;
      }
      if (!scales_up()) return false;
      if (!spend(joins_)) return false;  // it waits
      hold_until_ = now_ + terms.rejoin_wait;
      end_round(newcomer() + " joins", true);
      return true;
    }
    case RoundPhase::ended:
      if (working_ > 0) return false;
      if (!holds_quorum()) return newcomers_give_up();
      decide();
      return true;
    case RoundPhase::recovering:
      return step_recovering();
    case RoundPhase::over:
      return false;
  }
  return false;
}

// Without a quorum nothing is decided for members of the last round.  Newcomers that they left
// behind when they gave up do not wait for ever.
bool Rendezvous::newcomers_give_up() {
  if (seated_ > 0) gathering_since_ = now_;
  if (now_ < join_deadline()) return false;
  Over over;
  over.result = OverResult::timed_out;
  over.exit_code = 75;
  over.why = "no majority of round " + std::to_string(record_.last.generation.value) +
             " came back within " + duration_text(record_.terms.join_timeout);
  finish(std::move(over));
  return true;
}

bool Rendezvous::step_recovering() {
  if (seated_ == record_.node_count) {
    note(HappeningKind::takeover,
         "all nodes of round " + std::to_string(record_.last.generation.value) + " are back");
    enter(RoundPhase::sealed);
    if (failure_) {
      end_round(failure_text(), false);
    } else if (broken_) {
      end_round("a node stopped its workers meanwhile", true);
    }
    return true;
  }
  if (authority_.host && !has_taken_over_) {
    if (!holds_quorum()) {
      recovery_ends_ = now_ + kRecovery;  // not ours to end
      return newcomers_give_up();
    }
    has_taken_over_ = true;
    recovery_ends_ = now_ + kStragglers;
    note(HappeningKind::takeover, "this node coordinates the job now; " +
                                      of(seated_, record_.node_count) + " nodes of round " +
                                      std::to_string(record_.last.generation.value) + " are here");
  }
  // Of the node that coordinated, nothing more is to be expected after a takeover; and not much
  // after an election.
  const bool only_it_is_missing =
      seated_ == record_.node_count - 1 && !incumbent_.empty() && by_node_.count(incumbent_) == 0;
  const bool all_others = has_taken_over_ && only_it_is_missing;
  if (!authority_.host && only_it_is_missing && !std::exchange(waits_for_incumbent_, true)) {
    recovery_ends_ = std::min(recovery_ends_, now_ + kStragglers);
  }
  if ((now_ < recovery_ends_ && !all_others) || members_.empty()) return false;
  if (!holds_quorum()) {
    has_taken_over_ = false;
    return true;
  }
  last_loss_ = of(record_.node_count - seated_, record_.node_count) + " nodes did not come back";
  if (!spend_membership_change()) return true;
  end_round(last_loss_, true);
  return true;
}

std::string Rendezvous::newcomer() const {
  for (const auto& [session, member] : members_) {
    if (member.waiting) return member.join.host;
  }
  return "a node";
}

bool Rendezvous::scales_up() const {
  return waiting_ > 0 && succeeded_ == 0 && record_.node_count < record_.terms.max_nodes;
}

void Rendezvous::decide() {
  Over over;
  over.result = OverResult::failed;
  over.exit_code = failure_ ? failure_->exit_code : 1;
  if (!remains_.empty()) {
    over.why = "not restarted: processes of round " +
               std::to_string(record_.last.generation.value) + " are still there on " + remains_ +
               "; they may hold devices and ports";
    return finish(std::move(over));
  }
  if (failure_ && !membership_) {
    const bool first_round = record_.last.generation.value == 0 && record_.restarts == 0;
    if (failed_outcome_.failed_at_start && first_round) {
      over.why = failure_->pid == 0 ? "not restarted: a worker could not be started, and would not "
                                      "be the next time"
                                    : "not restarted: every worker failed within 1 s of the first "
                                      "start, so the next ones would too";
      return finish(std::move(over));
    }
    if (const auto refusal = budget_.refusal(now_)) {
      over.why = "not restarted: " + *refusal;
      return finish(std::move(over));
    }
    budget_.spend(now_);
    record_.restarts = budget_.spent();
    note(HappeningKind::restart,
         "restart " + std::to_string(record_.restarts) + ": " + failure_text());
  }
  gathering_since_ = now_;
  enter(RoundPhase::gathering);
}

void Rendezvous::finish(Over over) {
  over.restarts = record_.restarts;
  over.failure = failure_;
  over.report = failed_outcome_.report;
  record_.over = over;
  enter(RoundPhase::over);
  note(HappeningKind::over, "the job is over: " + over.why);
  out_.emplace_back(Save{std::make_shared<const Record>(record_)});
  for (const auto& [session, member] : members_) send(session, over);
}

// ---- small things ------------------------------------------------------------------------------

Ping Rendezvous::ping_message(std::uint64_t number) const {
  Ping ping;
  ping.number = number;
  ping.last = record_.last;
  ping.quorum = holds_quorum();
  ping.silence = record_.terms.silence();
  return ping;
}

void Rendezvous::ping_now(SessionId session) {
  send(session, ping_message(liveness_.extra_ping(now_)));
}

// Another node coordinates this job already: all who came here are told where.
void Rendezvous::direct_elsewhere(const Join& coordinator) {
  elsewhere_ = refuse(RefusalCode::elsewhere,
                      "job " + record_.job + " is coordinated by " + coordinator.host);
  elsewhere_->address = coordinator.address;
  elsewhere_->port = coordinator.takeover_port;
  for (const auto& [session, member] : members_) {
    send(session, *elsewhere_);
    out_.emplace_back(Drop{session});
    liveness_.remove(session);
  }
  members_.clear();
  by_node_.clear();
  asked_ranks_.clear();
  waiting_ = draining_ = 0;
  if (phase_ == RoundPhase::last_call) enter(RoundPhase::gathering);
  last_call_ends_.reset();
}

void Rendezvous::set_waiting(Member& member, bool waiting) {
  if (member.waiting == waiting) return;
  member.waiting = waiting;
  waiting_ += waiting ? 1 : -1;
}

void Rendezvous::set_draining(Member& member, bool draining) {
  if (member.draining == draining) return;
  member.draining = draining;
  draining_ += draining ? 1 : -1;
}

void Rendezvous::enter(RoundPhase next) {
  DISTRUN_CHECK(std::count(kRoundEdges.begin(), kRoundEdges.end(), std::pair(phase_, next)) == 1);
  phase_ = next;
}

void Rendezvous::send(SessionId session, CoordinatorMessage message) {
  out_.emplace_back(Send{session, std::move(message)});
}

void Rendezvous::note(HappeningKind kind, std::string text, const Member* member) {
  Happening happening;
  happening.kind = kind;
  happening.job = record_.job;
  happening.round = record_.last;
  if (member != nullptr) {
    happening.node = member->join.node;
    happening.host = member->join.host;
  }
  happening.text = std::move(text);
  out_.emplace_back(Note{std::move(happening)});
}

}  // namespace distrun::rendezvous
