#include "rendezvous/etcd/core/leader.h"

#include "rendezvous/etcd/core/store.h"
#include "runtime/base/check.h"

#include <algorithm>

namespace distrun::rendezvous::etcd {

using namespace leader;

std::string_view to_string(LeaderPhase phase) {
  switch (phase) {
    case LeaderPhase::idle:
      return "idle";
    case LeaderPhase::looking:
      return "looking";
    case LeaderPhase::following:
      return "following";
    case LeaderPhase::granting:
      return "granting";
    case LeaderPhase::campaigning:
      return "campaigning";
    case LeaderPhase::loading:
      return "loading";
    case LeaderPhase::leading:
      return "leading";
    case LeaderPhase::resigned:
      return "resigned";
  }
  return "?";
}

EtcdLeader::EtcdLeader(LeaderLimits limits) : limits_(std::move(limits)) {}

Effects EtcdLeader::handle(const Event& event, TimePoint now) {
  DISTRUN_CHECK(now >= now_);
  now_ = now;
  // First of all: what comes now may have waited while this process was paused.
  if (holds_key() && now_ >= gives_up_at()) {
    lose("etcd has not confirmed the lease in time, or this process was paused; another may lead");
  }
  std::visit([this](const auto& e) { on(e); }, event);
  settle();
  return std::exchange(out_, {});
}

bool EtcdLeader::acts(TimePoint now) const {
  return phase_ == LeaderPhase::leading && now < acts_until_;
}

bool EtcdLeader::leads(TimePoint now) const {
  return phase_ == LeaderPhase::leading && now < leads_until_;
}

std::optional<TimePoint> EtcdLeader::next_deadline() const {
  std::optional<TimePoint> next;
  const auto at = [&](const std::optional<TimePoint>& time) {
    if (time) next = next ? std::min(*next, *time) : *time;
  };
  if (phase_ == LeaderPhase::resigned) return resigned_by_;
  if (holds_key()) at(gives_up_at());
  if (phase_ == LeaderPhase::leading && !unsure_) at(acts_until_);
  if (renewal_ask_ == 0) at(renewal_at_);
  at(retry_at_);
  at(look_at_);
  return next;
}

TimePoint EtcdLeader::gives_up_at() const {
  return phase_ == LeaderPhase::loading ? acts_until_ : leads_until_;
}

// ---- events ------------------------------------------------------------------------------------

void EtcdLeader::on(const Start&) {
  DISTRUN_CHECK(phase_ == LeaderPhase::idle);
  look();
}

void EtcdLeader::on(const Answered& answered) {
  if (answered.number == revoke_ask_ && phase_ == LeaderPhase::resigned) {
    resigned_by_ = now_;
    return;
  }
  if (answered.number == renewal_ask_ && renewal_ask_ != 0) {
    renewal_ask_ = 0;
    return on_renewal(answered.answer);
  }
  if (answered.number != pending_ || pending_ == 0) return;  // nobody waits for it any more
  pending_ = 0;
  std::visit([this](const auto& answer) { on_answer(answer); }, answered.answer);
}

void EtcdLeader::on(const Changed& changed) {
  if (changed.watch != watch_ || watch_ == 0) return;
  if (holds_key()) {
    if (!changed.now || changed.now->create_revision != revision_) {
      lose(changed.now ? changed.now->value + " leads now" : limits_.keys.leader() + " is gone");
    }
    return;
  }
  if (phase_ != LeaderPhase::following) return;
  if (changed.now) return direct(changed.now);
  grant();
}

void EtcdLeader::on(const Deaf& deaf) {
  if (deaf.watch != watch_ || watch_ == 0) return;
  watch_ = 0;
  retry_at_ = now_ + limits_.pause;
}

void EtcdLeader::on(const Disowned& disowned) {
  if (holds_key()) lose(disowned.why);
}

void EtcdLeader::on(const Resign&) {
  if (phase_ == LeaderPhase::resigned) return;
  if (phase_ == LeaderPhase::leading) out_.emplace_back(Halt{"it was told to stop"});
  pending_ = renewal_ask_ = 0;
  renewal_at_.reset();
  retry_at_.reset();
  look_at_.reset();
  watch_ = 0;
  out_.emplace_back(Unwatch{});
  enter(LeaderPhase::resigned);
  resigned_by_ = now_;
  if (lease_ == 0) return;
  resigned_by_ = now_ + limits_.resigning;
  revoke_ask_ = ask(Revoke{std::exchange(lease_, 0)}, limits_.resigning);
}

// ---- answers -----------------------------------------------------------------------------------

void EtcdLeader::on_answer(const Granted& granted) {
  if (phase_ != LeaderPhase::granting) return;
  lease_ = granted.lease;
  ttl_seconds_ = granted.ttl_seconds;
  acts_until_ = sent_ + sure_time();
  leads_until_ = sent_ + patience();
  campaign();
}

void EtcdLeader::on_answer(const Found& found) {
  if (phase_ == LeaderPhase::loading) return take_page(found);
  if (phase_ != LeaderPhase::looking && phase_ != LeaderPhase::following) return;
  said_.clear();
  if (found.keys.empty()) return grant();
  follow(found.keys.front(), found.revision);
}

void EtcdLeader::on_answer(const Transacted& done) {
  if (phase_ != LeaderPhase::campaigning) return;
  if (done.succeeded) return won(done.revision);
  const auto key = std::find_if(done.keys.begin(), done.keys.end(), [this](const KeyValue& entry) {
    return entry.key == limits_.keys.leader();
  });
  if (key == done.keys.end()) return look();  // it went between
  if (key->value == own_value() && key->lease == lease_) {
    return won(key->create_revision);  // an earlier try was carried out
  }
  give_back();
  follow(*key, done.revision);
}

void EtcdLeader::on_answer(const Failed& failed) {
  trouble(failed);
  if (holds_key()) return lose(failed.why);
  retry_at_ = now_ + limits_.pause;
  if (phase_ == LeaderPhase::following) return;  // the leader may have a better way to etcd
  enter(LeaderPhase::looking);
  give_back();
  direct(std::nullopt);
}

// ---- the lease of who holds the key ------------------------------------------------------------

// A look, and then a keep-alive.  All counts from when the look was sent: should the member that
// confirms the keep-alive not lead the others any more, then another was elected after the look,
// and that one has given all leases their whole time anew.
void EtcdLeader::on_renewal(const Answer& answer) {
  if (!holds_key()) return;
  if (const auto* found = std::get_if<Found>(&answer)) {
    if (found->keys.empty()) return lose(limits_.keys.leader() + " is gone");
    const KeyValue& key = found->keys.front();
    if (key.create_revision != revision_) return lose(key.value + " leads now");
    seen_ = std::max(seen_, found->revision);
    renewal_ask_ = ask(KeepAlive{lease_}, sure_time());
    return;
  }
  if (const auto* kept = std::get_if<KeptAlive>(&answer)) return renewed(*kept);
  if (const auto* failed = std::get_if<Failed>(&answer)) trouble(*failed);
  renewal_at_ = now_ + lease_time() / 10;
}

void EtcdLeader::renewed(const KeptAlive& kept) {
  if (kept.ttl_seconds <= 0) return lose("etcd has ended the lease");
  const bool was_unsure = now_ >= acts_until_;
  ttl_seconds_ = kept.ttl_seconds;
  acts_until_ = std::max(acts_until_, sent_ + sure_time());
  leads_until_ = std::max(leads_until_, sent_ + patience());
  said_.clear();
  if (phase_ != LeaderPhase::leading || !was_unsure || now_ >= acts_until_) return;
  if (std::exchange(unsure_, false))
    out_.emplace_back(Say{Tone::info, "etcd confirms that " + limits_.self + " leads; it goes on"});
  out_.emplace_back(GoOn{});
}

// ---- what follows ------------------------------------------------------------------------------

void EtcdLeader::settle() {
  if (phase_ == LeaderPhase::resigned) {
    if (resigned_by_ && now_ >= *resigned_by_) {
      resigned_by_.reset();
      out_.emplace_back(Resigned{});
    }
    return;
  }
  if (retry_at_ && now_ >= *retry_at_) {
    retry_at_.reset();
    if (holds_key()) {
      if (watch_ == 0) watch(seen_ + 1);
    } else if (pending_ == 0) {
      look();
    }
  }
  if (look_at_ && now_ >= *look_at_ && phase_ == LeaderPhase::following && pending_ == 0) look();
  if (phase_ == LeaderPhase::leading && now_ >= acts_until_ && !std::exchange(unsure_, true)) {
    out_.emplace_back(Say{Tone::warning, "etcd has not confirmed in time that " + limits_.self +
                                             " leads; until it does, nothing is decided, and "
                                             "workers go on"});
  }
  if (holds_key() && renewal_ask_ == 0 && renewal_at_ && now_ >= *renewal_at_) {
    // One at a time: the time at which an answered one was sent is then known.
    sent_ = now_;
    renewal_at_ = now_ + lease_time() / 5;
    renewal_ask_ = ask(Range{limits_.keys.leader(), {}, 0}, sure_time());
  }
}

void EtcdLeader::look() {
  if (phase_ != LeaderPhase::following) enter(LeaderPhase::looking);
  look_at_.reset();
  pending_ = ask(Range{limits_.keys.leader(), {}, 0}, std::chrono::seconds(limits_.ttl_seconds));
}

void EtcdLeader::grant() {
  look_at_.reset();
  watch_ = 0;
  out_.emplace_back(Unwatch{});
  direct(std::nullopt);
  enter(LeaderPhase::granting);
  sent_ = now_;
  pending_ = ask(Grant{limits_.ttl_seconds}, std::chrono::seconds(limits_.ttl_seconds));
}

void EtcdLeader::campaign() {
  enter(LeaderPhase::campaigning);
  const Keys& keys = limits_.keys;
  Transaction transaction;
  transaction.conditions.emplace_back(CreatedAt{keys.leader(), 0});
  transaction.changes.emplace_back(Put{keys.leader(), own_value(), lease_});
  transaction.changes.emplace_back(Put{keys.sequence(), sequence_text(lease_, 0), lease_});
  transaction.otherwise = {keys.leader()};
  pending_ = ask(std::move(transaction), sure_time());
}

void EtcdLeader::won(Revision revision) {
  revision_ = seen_ = revision;
  jobs_.clear();
  enter(LeaderPhase::loading);
  if (now_ >= acts_until_) return lose("etcd took longer than the lease to answer");
  renewal_at_ = sent_ + lease_time() / 5;
  watch(revision_ + 1);
  load();
}

// Nobody but who holds the key writes, so what is read page by page does not change meanwhile.
void EtcdLeader::load() {
  Range range;
  range.key = jobs_.empty() ? limits_.keys.jobs() : jobs_.back().key + '\0';
  range.end = limits_.keys.jobs_end();
  range.limit = limits_.page;
  pending_ = ask(std::move(range), sure_time());
}

void EtcdLeader::take_page(const Found& found) {
  jobs_.insert(jobs_.end(), found.keys.begin(), found.keys.end());
  if (found.more && !found.keys.empty()) return load();
  said_.clear();
  enter(LeaderPhase::leading);
  out_.emplace_back(Say{Tone::info, limits_.self + " leads, with " + std::to_string(jobs_.size()) +
                                        (jobs_.size() == 1 ? " job" : " jobs") + " out of etcd"});
  out_.emplace_back(Lead{revision_, lease_, patience(), std::exchange(jobs_, {})});
}

void EtcdLeader::follow(const std::optional<KeyValue>& key, Revision revision) {
  if (phase_ != LeaderPhase::following) enter(LeaderPhase::following);
  look_at_ = now_ + limits_.look_again;
  direct(key);
  if (watch_ == 0) watch(revision + 1);
}

void EtcdLeader::direct(const std::optional<KeyValue>& key) {
  std::string endpoint;
  // Its own, out of a former life: nobody acts under it.
  if (key && key->value != own_value()) endpoint = key->value.substr(0, key->value.find(' '));
  if (followed_ == endpoint) return;
  followed_ = endpoint;
  if (!endpoint.empty())
    out_.emplace_back(Say{Tone::info, endpoint + " leads; " + limits_.self + " stands by"});
  out_.emplace_back(Follow{endpoint});
}

void EtcdLeader::watch(Revision from) {
  watch_ = ++last_watch_;
  out_.emplace_back(Watch{watch_, from});
}

void EtcdLeader::lose(const std::string& why) {
  if (phase_ == LeaderPhase::leading) out_.emplace_back(Halt{why});
  out_.emplace_back(Say{Tone::warning, limits_.self + " leads no more: " + why +
                                           "; it decides nothing, and workers go on"});
  jobs_.clear();
  unsure_ = false;
  renewal_ask_ = 0;
  renewal_at_.reset();
  retry_at_.reset();
  watch_ = 0;
  out_.emplace_back(Unwatch{});
  give_back();
  followed_.reset();
  direct(std::nullopt);
  look();
}

// Nobody waits for the answer: if it is lost, the lease ends by itself.
void EtcdLeader::give_back() {
  if (lease_ == 0) return;
  ask(Revoke{std::exchange(lease_, 0)}, lease_time());
}

int EtcdLeader::ask(Request request, Duration within) {
  out_.emplace_back(Ask{++last_ask_, std::move(request), within});
  return last_ask_;
}

void EtcdLeader::trouble(const Failed& failed) {
  if (failed.why == said_) return;
  said_ = failed.why;
  out_.emplace_back(Say{Tone::warning, failed.why, failed.refused});
}

void EtcdLeader::enter(LeaderPhase next) {
  if (next == phase_) return;
  const std::pair edge{phase_, next};
  DISTRUN_CHECK(std::find(kLeaderEdges.begin(), kLeaderEdges.end(), edge) != kLeaderEdges.end());
  phase_ = next;
}

}  // namespace distrun::rendezvous::etcd
