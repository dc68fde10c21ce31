// Member's search: whom it dials, when it may, and when it hosts.  What it does with the answers is
// in member.cc.
#include "rendezvous/core/member.h"
#include "runtime/base/check.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace distrun::rendezvous {
namespace {

using namespace member;

Contact contact_of(const Successor& successor) {
  return {successor.address, successor.port};
}

void earlier(std::optional<TimePoint>& earliest, std::optional<TimePoint> other) {
  if (other && (!earliest || *other < *earliest)) earliest = other;
}

}  // namespace

// ---- the search --------------------------------------------------------------------------------

void Member::settle() {
  if (phase_ == MemberPhase::idle || phase_ == MemberPhase::done) return;
  check_deadlines();
  if (phase_ == MemberPhase::done) return;
  if (attached_ == 0) {
    if (pause_until_ && now_ >= *pause_until_) begin_pass();
    if (!pause_until_ && !wide_ && !hosting_ && free_to_vote()) widen_pass();
    if (!pause_until_ && may_host_now()) host();
    if (!pause_until_ && lines_.empty()) end_pass();
  }
  look_around();
  join_next();
  update_direct();
}

void Member::check_deadlines() {
  if (attached_ != 0 && now_ >= silent_at_) {
    // Late by more than a beat: it is this process that was paused, and pings may wait unread.
    if (now_ - silent_at_ > limits_.self.terms.beat && !forgiven_) {
      forgiven_ = true;
      silent_at_ = now_ + limits_.self.terms.beat;
    } else {
      leave_line(attached_, "silent for " + duration_text(silence()));
    }
  }
  std::vector<int> mute;
  for (auto& [dial, line] : lines_) {
    if (dial == attached_ || !line.answer_by || now_ < *line.answer_by) continue;
    if (now_ - *line.answer_by > limits_.self.terms.beat) {  // as above: an answer may wait unread
      line.answer_by = now_ + limits_.self.terms.beat;
    } else {
      mute.push_back(dial);
    }
  }
  for (const int dial : mute) {
    note_answer(to_text(lines_.at(dial).contact) + ": took the connection and says nothing");
    drop(dial);
  }
  const auto end = giving_up_at();
  if (!end || now_ < *end) return;
  if (!has_round()) {
    return give_up(GaveUp::timed_out, "no coordinator at " + to_text(limits_.endpoint) + " in " +
                                          duration_text(limits_.start_timeout) + answers_text() +
                                          advice());
  }
  if (!agents_host()) {
    return give_up(GaveUp::closed, "the coordinator at " +
                                       to_text(old_.value_or(limits_.endpoint)) + " was away for " +
                                       duration_text(limits_.patience) + answers_text() + advice());
  }
  const std::string nodes = std::to_string(node_count_);
  give_up(GaveUp::closed,
          "the coordinator was lost, and in " + duration_text(limits_.takeover_patience) +
              " no majority of the " + nodes + " nodes of round " + to_text(round_) +
              " found together" + (waiting_why_.empty() ? "" : " (" + waiting_why_ + ")") +
              answers_text() +
              "; `--rdzv-conf takeover=any` lets a minority go on, if no network between the nodes "
              "can fail");
}

std::optional<TimePoint> Member::giving_up_at() const {
  if (has_round() && agents_host()) {
    if (!no_quorum_since_) return std::nullopt;
    return *no_quorum_since_ + limits_.takeover_patience;
  }
  if (!lost_since_) return std::nullopt;
  return *lost_since_ + (has_round() ? limits_.patience : limits_.start_timeout);
}

void Member::begin_pass() {
  tried_.clear();
  wide_ = false;
  somebody_ = false;
  pause_until_.reset();
  enter(MemberPhase::dialing);
  const Contact first = hosting_ ? own_contact() : old_.value_or(limits_.endpoint);
  dial(first, order_of(first), 0);
}

// Beyond the old coordinator, to which this node's vote is bound no more.
void Member::widen_pass() {
  wide_ = true;
  dial(limits_.endpoint, -1, 0);
  if (!may_take_over()) return;
  int order = 0;
  for (const Successor& successor : succession()) dial(contact_of(successor), order++, 0);
}

// Nobody who answered is left to ask, and whoever is still being dialed comes after this node.
bool Member::may_host_now() const {
  if (!wide_ || hosting_ || somebody_ || !may_take_over() || !free_to_vote()) return false;
  if (own_order() > kMaxSuccessors) return false;  // not in succession
  return std::none_of(lines_.begin(), lines_.end(), [this](const auto& entry) {
    return entry.second.connected || entry.second.order < own_order();
  });
}

void Member::end_pass() {
  pause_until_ = now_ + backoff_.next(random_);
  if (bound_until_ && !free_to_vote()) pause_until_ = std::min(*pause_until_, *bound_until_);
  enter(MemberPhase::pausing);
  if (has_round() || said_none_) return;
  said_none_ = true;
  say(Tone::info, "no coordinator at " + to_text(limits_.endpoint) + " yet" + answers_text() +
                      "; trying for " + duration_text(limits_.start_timeout));
}

// A host looks at the others: at all of them while it has no quorum, or at the endpoint, where a
// newcomer may have opened a rendezvous of its own.
void Member::look_around() {
  if (!hosting_ || attached_ == 0 || !may_take_over()) return look_at_.reset();
  if (!no_quorum_since_ && own_index_ < 0) return look_at_.reset();
  const Duration pause = no_quorum_since_ ? kLookAround : kLookAtEndpoint;
  // The first coordinator has no quorum for a moment after each seal: until others have answered.
  if (!look_at_) look_at_ = own_index_ < 0 ? now_ + pause : now_;
  look_at_ = std::min(*look_at_, now_ + pause);
  if (now_ < *look_at_) return;
  look_at_ = now_ + pause;
  dial(limits_.endpoint, -1, 0);
  if (!no_quorum_since_) return;
  int order = 0;
  for (const Successor& successor : succession()) dial(contact_of(successor), order++, 0);
}

void Member::dial(const Contact& contact, int order, int hops) {
  if (is_trying(contact) || lines_.size() >= kMaxDials) return;
  const bool own = hosting_ && contact == own_contact();
  if (!own && contact == takeover_contact()) return;  // it is this node that answers there
  if (!hosting_) {
    if (std::find(tried_.begin(), tried_.end(), contact) != tried_.end()) return;
    tried_.push_back(contact);
  }
  Line line;
  line.contact = contact;
  line.order = order;
  line.hops = hops;
  lines_.emplace(++last_dial_, std::move(line));
  out_.push_back(Dial{last_dial_, contact, limits_.dial_timeout});
}

void Member::join_next() {
  if (waits_for_a_word()) return;
  auto best = lines_.end();
  for (auto it = lines_.begin(); it != lines_.end(); ++it) {
    if (!it->second.connected || it->second.joined) continue;
    if (best == lines_.end() || it->second.order < best->second.order) best = it;
  }
  if (best != lines_.end()) send_join(best->first, best->second);
}

void Member::send_join(int dial, Line& line) {
  Join join = limits_.self;
  if (join.address.empty()) join.address = line.local_address;
  // To another coordinator, `hosts` says that this node's is the one that acts.
  join.hosts = hosting_ && (line.contact == own_contact() || !no_quorum_since_);
  // Once only: if this Join leads to a round whose Welcome is lost on the way here, others may have
  // used that store.
  join.store_port = std::exchange(store_port_, 0);
  join.held.reset();
  if (has_round()) {
    Join::Held held;
    held.round = round_;
    held.founder = founder_;
    held.rank = rank_;
    held.node_count = node_count_;
    held.restart_count = restart_count_;
    if (outcome_) held.outcome = outcome_now();
    join.held = std::move(held);
  }
  line.joined = true;
  line.told = outcome_.has_value();
  line.answer_by = now_ + silence();
  out_.push_back(member::Send{dial, std::move(join)});
}

// ---- hosting -----------------------------------------------------------------------------------

void Member::host() {
  const auto& all = successors_;
  const auto own = std::find_if(all.begin(), all.end(), [this](const Successor& successor) {
    return successor.node == limits_.self.node;
  });
  DISTRUN_CHECK(own != all.end());
  hosting_ = true;
  own_index_ = static_cast<int>(std::distance(all.begin(), own));
  Record record;
  record.job = limits_.self.job;
  record.token = limits_.self.token;
  record.founder = founder_;
  record.terms = limits_.self.terms;
  record.last = round_;
  record.node_count = node_count_;
  for (const Successor& successor : all) {
    const auto rank = static_cast<std::size_t>(successor.rank.value);
    if (rank >= record.hosts.size()) record.hosts.resize(rank + 1);
    record.hosts[rank] = successor.host;
  }
  record.restarts = restart_count_;
  record.coordinator = heir_.empty() ? coordinator_ : heir_;
  say(Tone::info, "no coordinator is to be found" + answers_text() + "; this node takes over at " +
                      to_text(own_contact()));
  out_.push_back(Host{std::move(record), own_index_});
  directed_.reset();
  old_ = own_contact();
  dial(*old_, own_order(), 0);
}

void Member::stop_hosting() {
  hosting_ = false;
  own_index_ = -1;
  look_at_.reset();
  bound_until_.reset();
  out_.push_back(StopHosting{});
}

void Member::update_direct() {
  if (!limits_.takeover || hosting_) return;
  Refused answer;
  if (attached_ != 0) {
    const Contact& contact = lines_.at(attached_).contact;
    answer.code = RefusalCode::elsewhere;
    answer.why = "the coordinator of this job is at " + to_text(contact);
    answer.address = contact.address;
    answer.port = contact.port;
  } else {
    answer.code = RefusalCode::not_yet;
    answer.why = "this node looks for the coordinator, too; come again";
  }
  if (answer == directed_) return;
  directed_ = answer;
  out_.push_back(Direct{std::move(answer)});
}

// ---- small answers -----------------------------------------------------------------------------

bool Member::may_take_over() const {
  return limits_.takeover && limits_.rule != TakeoverRule::never && agents_host();
}

bool Member::free_to_vote() const {
  return !bound_until_ || now_ >= *bound_until_;
}

bool Member::waits_for_a_word() const {
  return std::any_of(lines_.begin(), lines_.end(), [this](const auto& entry) {
    return entry.second.joined && entry.first != attached_;
  });
}

bool Member::is_trying(const Contact& contact) const {
  return std::any_of(lines_.begin(), lines_.end(),
                     [&](const auto& entry) { return entry.second.contact == contact; });
}

Duration Member::silence() const {
  return std::max(limits_.self.terms.silence(), their_silence_);
}

std::vector<Successor> Member::succession() const {
  std::vector<Successor> order;
  std::copy_if(successors_.begin(), successors_.end(), std::back_inserter(order),
               [](const Successor& successor) { return successor.port != 0; });
  std::stable_partition(order.begin(), order.end(),
                        [this](const Successor& successor) { return successor.node == heir_; });
  return order;
}

Contact Member::own_contact() const {
  return hosting_ && own_index_ < 0 ? limits_.endpoint : takeover_contact();
}

Contact Member::takeover_contact() const {
  for (const Successor& successor : successors_) {
    if (successor.node == limits_.self.node) return contact_of(successor);
  }
  return {};
}

int Member::own_order() const {
  if (hosting_ && own_index_ < 0) return -1;
  const auto order = succession();
  const auto own = std::find_if(order.begin(), order.end(), [this](const Successor& successor) {
    return successor.node == limits_.self.node;
  });
  if (own == order.end()) return kMaxSuccessors + 1;
  return static_cast<int>(std::distance(order.begin(), own));
}

int Member::order_of(const Contact& contact) const {
  if (contact == limits_.endpoint) return -1;
  const auto order = succession();
  const auto found = std::find_if(order.begin(), order.end(), [&](const Successor& successor) {
    return contact_of(successor) == contact;
  });
  return found == order.end() ? kMaxSuccessors
                              : static_cast<int>(std::distance(order.begin(), found));
}

std::optional<TimePoint> Member::next_deadline() const {
  if (phase_ == MemberPhase::idle || phase_ == MemberPhase::done) return std::nullopt;
  std::optional<TimePoint> earliest = giving_up_at();
  if (attached_ != 0) earlier(earliest, silent_at_);
  for (const auto& [dial, line] : lines_) earlier(earliest, line.answer_by);
  earlier(earliest, pause_until_);
  earlier(earliest, look_at_);
  const bool will_widen = attached_ == 0 && !pause_until_ && !wide_ && !hosting_;
  if (will_widen) earlier(earliest, bound_until_);
  return earliest;
}

}  // namespace distrun::rendezvous
