#include "rendezvous/core/member.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <utility>

namespace distrun::rendezvous {
namespace {

using namespace member;

// Different answers that are remembered for the last sentence.
constexpr std::size_t kMaxAnswers = 8;

}  // namespace

std::string_view to_string(MemberPhase phase) {
  switch (phase) {
    case MemberPhase::idle:
      return "idle";
    case MemberPhase::dialing:
      return "dialing";
    case MemberPhase::pausing:
      return "pausing";
    case MemberPhase::attached:
      return "attached";
    case MemberPhase::done:
      return "done";
  }
  return "?";
}

std::string to_text(const Contact& contact) {
  const bool v6 = contact.address.find(':') != std::string::npos;
  return (v6 ? "[" + contact.address + "]" : contact.address) + ":" + std::to_string(contact.port);
}

std::string to_text(const Fence& round) {
  const std::string number = std::to_string(round.generation.value);
  return round.epoch == 0 ? number : number + " (epoch " + std::to_string(round.epoch) + ")";
}

Member::Member(MemberLimits limits)
    : limits_(std::move(limits)),
      backoff_(limits_.backoff),
      random_(limits_.seed),
      hosting_(limits_.hosts) {}

member::Effects Member::handle(const member::Event& event, TimePoint now) {
  DISTRUN_CHECK(now >= now_);
  now_ = now;
  if (phase_ == MemberPhase::done) return {};
  std::visit([this](const auto& e) { on(e); }, event);
  settle();
  return std::exchange(out_, {});
}

std::optional<Contact> Member::coordinator() const {
  return attached_ == 0 ? std::nullopt : std::optional(lines_.at(attached_).contact);
}

// ---- the agent ---------------------------------------------------------------------------------

void Member::on(const Asked& asked) {
  asked_ = true;
  store_port_ = asked.store_port;
  if (asked.outcome && has_round() && asked.outcome->round == round_) {
    outcome_ = asked.outcome;
    outcome_at_ = now_;
  }
  if (phase_ == MemberPhase::idle) {
    lost_since_ = now_;
    begin_pass();
  } else if (attached_ != 0) {
    tell_pending(lines_.at(attached_));
  }
}

void Member::on(const FailedHere& failed) {
  if (!has_round() || asked_ || failure_) return;  // of an older round, or told already
  failure_ = failed.failure;
  failed_at_ = now_;
  if (attached_ != 0) out_.push_back(member::Send{attached_, Failed{round_, *failure_}});
}

void Member::on(const Left& left) {
  for (const auto& [dial, line] : lines_) {
    if (line.joined) out_.push_back(member::Send{dial, Leave{left.why}});
  }
  finish();
}

// What a coordinator has to hear that was not in the Join.
void Member::tell_pending(Line& line) {
  if (outcome_ && !line.told) {
    Ended ended;
    ended.outcome = outcome_now();
    ended.store_port = std::exchange(store_port_, 0);
    out_.push_back(member::Send{attached_, std::move(ended)});
    line.told = true;
  } else if (failure_ && !outcome_) {
    Failed failed{round_, failure_now()};
    out_.push_back(member::Send{attached_, std::move(failed)});
  }
}

Outcome Member::outcome_now() const {
  Outcome outcome = *outcome_;
  if (outcome.failure) outcome.failure->age += now_ - outcome_at_;
  return outcome;
}

Failure Member::failure_now() const {
  Failure failure = *failure_;
  failure.age += now_ - failed_at_;
  return failure;
}

// ---- connections -------------------------------------------------------------------------------

void Member::on(const Connected& connected) {
  const auto found = lines_.find(connected.dial);
  if (found == lines_.end()) return;
  found->second.connected = true;
  found->second.local_address = connected.local_address;
}

void Member::on(const NotConnected& answer) {
  const auto found = lines_.find(answer.dial);
  if (found == lines_.end()) return;
  const Contact contact = found->second.contact;
  lines_.erase(found);
  note_answer(answer.why);
  last_no_answer_ = answer.reason;
  if (answer.reason != NoAnswer::refused || contact != old_) return;
  release(contact);
  if (agents_host() && !may_take_over() && !hosting_) {
    give_up(GaveUp::closed, "the coordinator at " + to_text(contact) +
                                " is gone, and the job ends with it (" + answer.why +
                                "); `--rdzv-conf takeover=majority` lets another node take over");
  }
}

void Member::on(const member::Closed& closed) {
  const auto found = lines_.find(closed.dial);
  if (found == lines_.end()) return;
  const std::string how = closed.why.empty() ? "closed" : closed.why;
  if (closed.dial == attached_) {
    lose(how);
    lines_.erase(found);
    return search_again();
  }
  note_answer(to_text(found->second.contact) + ": " + how);
  lines_.erase(found);
}

void Member::on(const member::Received& received) {
  if (!lines_.contains(received.dial)) return;  // hung up
  std::visit([&](const auto& message) { on_message(received.dial, message); }, received.message);
}

// ---- the coordinator's words -------------------------------------------------------------------

void Member::on_message(int dial, const Ping& ping) {
  if (!acceptable(dial, ping.last, ping.quorum)) return;
  if (dial != attached_) attach(dial);
  their_silence_ = ping.silence;
  heard_ = now_;
  silent_at_ = now_ + silence();
  forgiven_ = false;
  set_quorum(ping.quorum);
  const AgentMessage pong = Pong{ping.number};  // in one expression GCC 12 warns without a reason
  out_.push_back(member::Send{dial, pong});
  if (ping.last > round_ && has_round() && !asked_ && !disbanded_) {
    disbanded_ = true;
    out_.push_back(Disbanded{
        round_, "the job has gone on to round " + to_text(ping.last) + " without this node"});
  }
}

void Member::on_message(int dial, const Welcome& welcome) {
  if (!acceptable(dial, welcome.round, true)) return;
  if (welcome.round > round_ && !asked_) {
    // It takes workers that run for none.  To come again and to say what is held sets that right.
    say(Tone::warning, "the coordinator at " + to_text(lines_.at(dial).contact) +
                           " gave a place in round " + to_text(welcome.round) +
                           " while workers of round " + to_text(round_) + " run: connecting anew");
    return leave_line(dial, "it is out of step");
  }
  if (dial != attached_) attach(dial);
  if (welcome.round == round_) {
    coordinator_ = welcome.coordinator;  // who may take over can have changed
    successors_ = welcome.successors;
    return;
  }
  place(welcome);
}

void Member::on_message(int dial, const Waiting& waiting) {
  if (dial != attached_) {
    // It does not say of which round: with one to lose, the ping that follows decides.
    if (has_round() || attached_ != 0) {
      lines_.at(dial).waiting = waiting;
      return;
    }
    attach(dial);
  }
  take_waiting(waiting);
}

void Member::take_waiting(const Waiting& waiting) {
  set_quorum(waiting.quorum);
  waiting_why_ = waiting.why;
  if (!waiting.coordinator.empty()) {  // a spare follows the round it waits beside
    coordinator_ = waiting.coordinator;
    successors_ = waiting.successors;
  }
  out_.push_back(Progress{waiting});
}

void Member::on_message(int dial, const Disband& disband) {
  if (disband.round != round_ || !has_round()) return;
  if (dial != attached_) {
    if (attached_ != 0 || hosting_) {  // the ping that follows decides
      lines_.at(dial).disband = disband;
      return;
    }
    attach(dial);
  }
  left_ = std::max(left_, disband.left);
  if (!disband.heir.empty()) heir_ = disband.heir;
  if (asked_ || disbanded_) return;
  disbanded_ = true;
  out_.push_back(Disbanded{round_, disband.why});
}

void Member::on_message(int, const Over& over) {
  out_.push_back(JobOver{over});
  finish();
}

void Member::on_message(int dial, const Refused& refused) {
  const Line line = lines_.at(dial);
  const std::string who = to_text(line.contact);
  const bool was_attached = dial == attached_;
  switch (refused.code) {
    case RefusalCode::elsewhere:
      return follow(dial, {refused.address, refused.port});
    case RefusalCode::not_yet:
      note_answer(who + ": " + (refused.why.empty() ? "not yet the coordinator" : refused.why));
      if (line.order < own_order()) somebody_ = true;
      leave_line(dial, "it does not coordinate the job now");
      return release(line.contact);
    case RefusalCode::stale:
      if (was_attached) return;  // of a word that crossed its own
      note_answer(who + ": " + refused.why);
      drop(dial);
      // It does not know this node's round, so it does not count on it.
      return release(line.contact);
    case RefusalCode::closed:
      return give_up(GaveUp::closed, who + ": " + refused.why);
    case RefusalCode::version:
    case RefusalCode::terms:
    case RefusalCode::rank:
    case RefusalCode::token:
    case RefusalCode::limit:
      if (!has_round()) return give_up(GaveUp::refused, who + ": " + refused.why);
      // Whoever says so does not know this job: no reason to stop its workers.
      note_answer(who + ": " + refused.why);
      return leave_line(dial, refused.why);
  }
}

// Whether a word from a coordinator that knows `last` is to be listened to.  If not, it is hung up
// on.
bool Member::acceptable(int dial, const Fence& last, bool quorum) {
  const Line& line = lines_.at(dial);
  const Contact contact = line.contact;
  if (last < round_) {
    const std::string what = "it knows only round " + to_text(last) +
                             " of this job, this node had a place in round " + to_text(round_);
    note_answer(to_text(contact) + ": " + what);
    leave_line(dial, what);
    release(contact);
    return false;
  }
  if (dial == attached_ || worth_following(line, last, quorum)) return true;
  drop(dial);
  return false;
}

bool Member::worth_following(const Line& line, const Fence& last, bool quorum) const {
  if (!hosting_ || line.contact == own_contact()) return attached_ == 0;
  if (!no_quorum_since_) return false;
  return quorum || last > round_ || line.order < own_order();
}

void Member::follow(int dial, const Contact& target) {
  const Line line = lines_.at(dial);
  const std::string who = to_text(line.contact);
  if (line.order < own_order()) somebody_ = true;
  const bool own = target == own_contact() || target.port == 0 || target.address.empty();
  note_answer(who + ": sends to " + (target.port == 0 ? "nobody" : to_text(target)));
  if (dial == attached_) {
    say(Tone::info, "the coordinator at " + who + " sends this node to " + to_text(target));
    if (hosting_) stop_hosting();
    detach();
    tried_.assign(1, line.contact);
    wide_ = false;
    somebody_ = false;
    enter(MemberPhase::dialing);
  }
  drop(dial);
  release(line.contact);
  if (hosting_ && !no_quorum_since_) return;
  if (own || line.hops >= kMaxHops) return;
  this->dial(target, std::min(order_of(target), line.order), line.hops + 1);
}

// ---- attached, or no more ----------------------------------------------------------------------

void Member::attach(int dial) {
  Line& line = lines_.at(dial);
  const Contact contact = line.contact;
  if (hosting_ && contact != own_contact()) {
    say(Tone::info,
        "the coordinator is at " + to_text(contact) + ": this node hosts none any more");
    stop_hosting();
  }
  std::vector<int> others;
  for (const auto& [other, its_line] : lines_) {
    const bool look = hosting_ && other != attached_;  // goes on beside the own one
    if (other != dial && !look) others.push_back(other);
  }
  for (const int other : others) drop(other);
  if (old_ && has_round() && !hosting_) {
    say(Tone::info,
        (contact == *old_ ? "the coordinator is back at " : "the coordinator is now at ") +
            to_text(contact));
  }
  attached_ = dial;
  old_ = contact;
  attached_since_ = heard_ = now_;
  their_silence_ = {};
  silent_at_ = now_ + silence();
  forgiven_ = false;
  bound_until_.reset();
  lost_since_.reset();
  pause_until_.reset();
  line.answer_by.reset();
  // A host whose own line broke pauses before it dials again; its look at the others goes on.
  if (phase_ == MemberPhase::pausing) enter(MemberPhase::dialing);
  enter(MemberPhase::attached);
  if (const auto waiting = std::exchange(line.waiting, std::nullopt)) take_waiting(*waiting);
  tell_pending(line);
  if (const auto disband = std::exchange(line.disband, std::nullopt)) on_message(dial, *disband);
}

void Member::place(const Welcome& welcome) {
  DISTRUN_CHECK(welcome.round > round_);
  round_ = welcome.round;
  founder_ = welcome.founder;
  rank_ = welcome.node_rank;
  node_count_ = welcome.node_count;
  restart_count_ = welcome.restart_count;
  coordinator_ = welcome.coordinator;
  successors_ = welcome.successors;
  asked_ = false;
  disbanded_ = false;
  store_port_ = 0;
  outcome_.reset();
  failure_.reset();
  left_ = 0;
  heir_.clear();
  waiting_why_.clear();
  no_quorum_since_.reset();
  for (auto& [dial, line] : lines_) line.told = false;  // the next outcome is another
  out_.push_back(Placed{welcome});
}

// Forgets the attachment.  Its vote still binds, until release().
void Member::detach() {
  DISTRUN_CHECK(attached_ != 0);
  attached_ = 0;
  lost_since_ = now_;
  bound_until_ = heard_ + silence();
  answers_.clear();
  last_no_answer_.reset();
  if (agents_host() && !no_quorum_since_) no_quorum_since_ = now_;
}

void Member::lose(const std::string& how) {
  const bool workers = has_round() && !asked_;
  say(Tone::warning, "lost the coordinator at " + to_text(lines_.at(attached_).contact) + " (" +
                         how + "); " + (workers ? "workers go on; " : "") + "looking for it");
  detach();
}

void Member::search_again() {
  if (now_ - attached_since_ >= silence()) {
    backoff_.reset();
    return begin_pass();
  }
  pause_until_ = now_ + backoff_.next(random_);
  enter(MemberPhase::pausing);
}

void Member::leave_line(int dial, const std::string& why) {
  const bool was_attached = dial == attached_;
  if (was_attached) lose(why);
  drop(dial);
  if (was_attached) search_again();
}

void Member::drop(int dial) {
  lines_.erase(dial);
  out_.push_back(HangUp{dial});
}

void Member::release(const Contact& contact) {
  if (contact == old_) bound_until_.reset();
}

void Member::set_quorum(bool quorum) {
  if (quorum || !agents_host()) {
    no_quorum_since_.reset();
  } else if (!no_quorum_since_) {
    no_quorum_since_ = now_;
  }
}

// ---- words and the end -------------------------------------------------------------------------

void Member::note_answer(std::string what) {
  const auto found = std::find_if(answers_.begin(), answers_.end(),
                                  [&](const auto& entry) { return entry.first == what; });
  if (found != answers_.end()) {
    ++found->second;
  } else if (answers_.size() < kMaxAnswers) {
    answers_.emplace_back(std::move(what), 1);
  }
}

std::string Member::answers_text() const {
  std::string all;
  for (const auto& [what, times] : answers_) {
    all += (all.empty() ? " (" : "; ") + what;
    if (times > 1) all += ", " + std::to_string(times) + " times";
  }
  return all.empty() ? all : all + ")";
}

std::string Member::advice() const {
  if (!last_no_answer_) return {};
  switch (*last_no_answer_) {
    case NoAnswer::refused:
      return "; nobody listens there: is `distrund`, or the node that owns this address, up, and "
             "is "
             "the port of --rdzv-endpoint right?";
    case NoAnswer::unreachable:
      return "; check the address of --rdzv-endpoint, the route to it and firewalls";
    case NoAnswer::unknown:
      return "; give an address to --rdzv-endpoint, or a name that this machine can look up";
    case NoAnswer::alien:
      return "; another program listens there: check the port of --rdzv-endpoint";
  }
  return {};
}

void Member::give_up(GaveUp reason, std::string why) {
  out_.push_back(NoRound{reason, std::move(why)});
  finish();
}

void Member::finish() {
  while (!lines_.empty()) drop(lines_.begin()->first);
  attached_ = 0;
  pause_until_.reset();
  enter(MemberPhase::done);
}

void Member::say(Tone tone, std::string text) {
  out_.push_back(Say{tone, std::move(text)});
}

void Member::enter(MemberPhase next) {
  if (next == phase_) return;
  const std::pair edge{phase_, next};
  DISTRUN_CHECK(std::find(kMemberEdges.begin(), kMemberEdges.end(), edge) != kMemberEdges.end());
  phase_ = next;
}

std::string Member::broken_invariant() const {
  if ((attached_ != 0) != (phase_ == MemberPhase::attached))
    return "attached exactly in phase attached";
  if (attached_ != 0 && !lines_.contains(attached_)) return "the attachment is a connection";
  if (attached_ != 0 && !lines_.at(attached_).joined) return "attached without a Join";
  if (attached_ != 0 && !hosting_ && lines_.size() != 1)
    return "an attached node that does not host looks at nobody else";
  if (phase_ == MemberPhase::done && !lines_.empty()) return "done, but connected";
  if ((phase_ == MemberPhase::pausing) != pause_until_.has_value())
    return "a pause has an end, and only a pause";
  if (lines_.size() > kMaxDials) return "too many connections at once";
  const auto asking = std::count_if(lines_.begin(), lines_.end(), [this](const auto& entry) {
    return entry.second.joined && entry.first != attached_;
  });
  if (asking > 1) return "a Join is sent to one coordinator at a time";
  if (outcome_ && outcome_->round != round_) return "an outcome is of this node's last round";
  if (attached_ != 0 && !hosting_ && bound_until_) return "attached and bound elsewhere";
  return {};
}

}  // namespace distrun::rendezvous
