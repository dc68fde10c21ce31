#include "tests/rendezvous/etcd/election_world.h"

#include <algorithm>
#include <charconv>

namespace distrun::rendezvous::etcd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kReplicas = 3;
constexpr int kJobs = 3;
constexpr Duration kFaultsLast = seconds(120);
constexpr Duration kCalm = seconds(20);
// For the transaction that was on its way, its own, and a pause that does not cost the lease.
constexpr Duration kDecisionsWait = 2 * milliseconds(4500) + milliseconds(1500);

const Keys kKeys{};

std::string job_name(int job) {
  return "job-" + std::to_string(job);
}

int number_in(const std::string& text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

ElectionWorld::ElectionWorld(std::uint64_t seed, Flaw flaw) : random_(seed), flaw_(flaw) {
  etcd_clock_ = std::uniform_real_distribution<double>(0.9, 1.2)(random_);
  for (int i = 0; i < kReplicas; ++i) {
    LeaderLimits limits;
    limits.endpoint = "10.0.0." + std::to_string(i) + ":29400";
    limits.id = "replica-" + std::to_string(i);
    replicas_.emplace_back(std::move(limits));
  }
}

std::string ElectionWorld::run() {
  for (int i = 0; i < kReplicas; ++i) {
    feed(i, leader::Start{});
    schedule({.kind = Kind::decide, .replica = i}, between(milliseconds(0), milliseconds(100)));
    schedule({.kind = Kind::pause, .replica = i}, between(seconds(3), seconds(15)));
  }
  schedule({.kind = Kind::etcd_goes}, between(seconds(10), seconds(30)));
  schedule({.kind = Kind::etcd_is_full}, between(seconds(10), seconds(60)));
  schedule({.kind = Kind::member_is_stale}, between(seconds(5), seconds(40)));
  const TimePoint calm_from = started_ + kFaultsLast;
  while (broken_.empty() && !agenda_.empty() && agenda_.top().at < calm_from + kCalm) {
    Entry next = agenda_.top();
    agenda_.pop();
    now_ = std::max(now_, next.at);
    if (faults_ && now_ >= calm_from) faults_ = false;
    step(std::move(next));
    spread_news();
    check();
  }
  if (!broken_.empty()) return broken_;
  const auto acting = std::count_if(replicas_.begin(), replicas_.end(),
                                    [this](const Replica& replica) { return acts(replica); });
  return acting == 1 ? "" : "long after the last fault nobody acts";
}

// ---- the agenda --------------------------------------------------------------------------------

void ElectionWorld::schedule(Entry entry, Duration in) {
  entry.at = now_ + in;
  entry.order = ++order_;
  agenda_.push(std::move(entry));
}

Duration ElectionWorld::between(Duration low, Duration high) {
  return Duration(std::uniform_int_distribution<Duration::rep>(low.count(), high.count())(random_));
}

Duration ElectionWorld::delay() {
  if (!faults_ || chance(0.8)) return between(std::chrono::microseconds(100), milliseconds(10));
  return between(milliseconds(1), milliseconds(900));
}

void ElectionWorld::step(Entry entry) {
  const bool of_replica = entry.kind == Kind::answer || entry.kind == Kind::news ||
                          entry.kind == Kind::deaf || entry.kind == Kind::tick ||
                          entry.kind == Kind::decide;
  Replica& replica = at(entry.replica);
  if (of_replica && replica.awake_at) {  // it waits, and comes in any order when it wakes
    const Duration in = *replica.awake_at - now_ + between(Duration::zero(), milliseconds(1));
    return schedule(std::move(entry), in);
  }
  switch (entry.kind) {
    case Kind::to_etcd:
      return carry_out(entry.call);
    case Kind::answer:
      return answered(entry);
    case Kind::news:
      return feed(entry.replica, leader::Changed{entry.watch, entry.value});
    case Kind::deaf:
      return feed(entry.replica, leader::Deaf{entry.watch});
    case Kind::tick:
      if (entry.call != replica.tick) return;  // an earlier one came in between
      replica.tick_at.reset();
      return feed(entry.replica, leader::Tick{});
    case Kind::decide:
      decide(entry.replica);
      return schedule(std::move(entry), between(milliseconds(5), milliseconds(300)));
    case Kind::pause: {
      if (!faults_) return;
      ++tally_.pauses;
      const Duration length = between(milliseconds(100), seconds(6));
      replica.awake_at = now_ + length;
      if (flaw_ == Flaw::a_pause_stops_its_clock) replica.lost += length;
      return schedule({.kind = Kind::wake, .replica = entry.replica}, length);
    }
    case Kind::wake:
      replica.awake_at.reset();
      return schedule({.kind = Kind::pause, .replica = entry.replica},
                      between(seconds(3), seconds(15)));
    case Kind::etcd_goes:
      if (!faults_) return;
      etcd_away_ = true;
      return schedule({.kind = Kind::etcd_comes}, between(milliseconds(200), seconds(8)));
    case Kind::etcd_comes:
      etcd_away_ = false;
      etcd_.promote(etcds_time());
      return schedule({.kind = Kind::etcd_goes}, between(seconds(10), seconds(30)));
    case Kind::etcd_is_full:
      if (!faults_) return;
      etcd_full_ = true;
      return schedule({.kind = Kind::etcd_has_room}, between(seconds(1), seconds(16)));
    case Kind::etcd_has_room:
      etcd_full_ = false;
      return schedule({.kind = Kind::etcd_is_full}, between(seconds(10), seconds(60)));
    case Kind::member_is_stale:
      if (!faults_) return;
      member_stale_ = true;
      etcd_.promote(etcds_time());
      for (Replica& each : replicas_) each.at_stale = chance(0.5);
      return schedule({.kind = Kind::member_notices}, between(seconds(1), seconds(8)));
    case Kind::member_notices:
      member_stale_ = false;
      return schedule({.kind = Kind::member_is_stale}, between(seconds(5), seconds(40)));
  }
}

// ---- a replica's election ----------------------------------------------------------------------

void ElectionWorld::feed(int replica, const leader::Event& event) {
  const auto effects = at(replica).leader.handle(event, time_of(at(replica)));
  for (const leader::Effect& effect : effects) {
    std::visit([&](const auto& held) { apply(replica, held); }, effect);
  }
  Replica& self = at(replica);
  const auto deadline = self.leader.next_deadline();
  if (!deadline) return;
  const Duration in = std::max<Duration>(*deadline - time_of(self), Duration::zero());
  if (self.tick_at && *self.tick_at <= now_ + in) return;
  self.tick_at = now_ + in;
  schedule({.kind = Kind::tick, .replica = replica, .call = ++self.tick}, in);
}

void ElectionWorld::apply(int replica, const leader::Ask& effect) {
  ask(replica, effect.number, effect.request, effect.within);
}

void ElectionWorld::apply(int replica, const leader::Watch& effect) {
  at(replica).watch = effect.watch;
  const KeyValue* const now = key();
  if (now != nullptr && now->create_revision < effect.from) return;
  Entry news{.kind = Kind::news, .replica = replica, .watch = effect.watch};
  if (now != nullptr) news.value = *now;
  schedule(std::move(news), delay());
}

void ElectionWorld::apply(int replica, const leader::Unwatch&) {
  at(replica).watch = 0;
}

void ElectionWorld::apply(int replica, const leader::Lead& effect) {
  Replica& self = at(replica);
  ++tally_.led;
  ++self.tenure;
  self.lease = effect.lease;
  self.revision = effect.revision;
  self.saving.clear();
  self.numbers.clear();
  self.store.emplace(kKeys, effect.revision, effect.lease, effect.patience);
  for (const KeyValue& job : effect.jobs) {
    for (int i = 0; i < kJobs; ++i) {
      if (job.key == kKeys.job(job_name(i))) self.numbers[i] = number_in(job.value);
    }
  }
  for (const auto& [job, number] : told_) {
    if (self.numbers[job] < number) {
      fail("a later leader does not know what was told: number " + std::to_string(number) + " of " +
           job_name(job) + ", it read " + std::to_string(self.numbers[job]));
    }
  }
}

void ElectionWorld::apply(int replica, const leader::GoOn&) {
  ++tally_.went_on;
  tell_what_is_kept(replica);
}

void ElectionWorld::apply(int replica, const leader::Halt&) {
  Replica& self = at(replica);
  ++self.tenure;
  self.store.reset();
  self.saving.clear();
}

// ---- between a replica and etcd ----------------------------------------------------------------

void ElectionWorld::ask(int replica, int number, Request request, Duration within) {
  const int id = static_cast<int>(calls_.size());
  calls_.push_back({.replica = replica,
                    .ask = number,
                    .tenure = at(replica).tenure,
                    .lease = at(replica).lease,
                    .request = std::move(request),
                    .deadline = now_ + within});
  const auto* look = std::get_if<Range>(&calls_.back().request);
  if (flaw_ == Flaw::renews_without_a_look && at(replica).store && look != nullptr &&
      look->key == kKeys.leader()) {
    Found own;
    own.keys.push_back({look->key, "", at(replica).revision, at(replica).lease});
    return schedule({.kind = Kind::answer, .replica = replica, .call = id, .answer = own},
                    milliseconds(1));
  }
  const int tries = faults_ && chance(0.2) ? 3 : 1;
  for (int i = 0; i < tries; ++i) {
    if (faults_ && chance(0.05)) continue;  // lost
    const bool late = faults_ && chance(0.03);
    schedule({.kind = Kind::to_etcd, .call = id},
             late ? between(seconds(1), seconds(8)) : delay() + milliseconds(100) * i);
  }
  Failed failed;
  failed.why = "no answer";
  schedule({.kind = Kind::answer, .replica = replica, .call = id, .answer = failed}, within);
}

// It confirms what it knows, and carries nothing out; who hears nothing from it asks another.
bool ElectionWorld::asks_stale_member(int id) {
  const Call& call = calls_[static_cast<std::size_t>(id)];
  if (!member_stale_ || !at(call.replica).at_stale) return false;
  if (std::holds_alternative<KeepAlive>(call.request)) {
    ++tally_.not_moved;
    const int ttl = LeaderLimits{}.ttl_seconds;
    schedule({.kind = Kind::answer, .replica = call.replica, .call = id, .answer = KeptAlive{ttl}},
             delay());
    return true;
  }
  at(call.replica).at_stale = false;
  schedule({.kind = Kind::to_etcd, .call = id}, milliseconds(500));
  return true;
}

void ElectionWorld::carry_out(int id) {
  if (asks_stale_member(id)) return;
  const Call call = calls_[static_cast<std::size_t>(id)];
  if (etcd_away_) {  // lost, or it waits in a member that has lost the others
    if (chance(0.5))
      schedule({.kind = Kind::to_etcd, .call = id}, between(milliseconds(100), seconds(2)));
    return;
  }
  if (etcd_full_ && (std::holds_alternative<Transaction>(call.request) ||
                     std::holds_alternative<Grant>(call.request))) {
    return;  // asked for again until its time is over
  }
  if (now_ > call.deadline) ++tally_.late_tries;
  const KeyValue* const before = key();
  const bool holds = before != nullptr && before->lease == call.lease;
  const Answer answer = etcd_.carry_out(call.request, etcds_time());
  const auto* done = std::get_if<Transacted>(&answer);
  if (call.ask == 0 && done != nullptr && done->succeeded) {
    if (!holds || key() == nullptr) fail("etcd took a decision from who does not hold the key");
    for (const Change& change : std::get<Transaction>(call.request).changes) {
      const auto* put = std::get_if<Put>(&change);
      for (int job = 0; put != nullptr && job < kJobs; ++job) {
        if (put->key != kKeys.job(job_name(job))) continue;
        const int number = number_in(put->value);
        if (number < written_[job]) fail(job_name(job) + " went back in etcd");
        written_[job] = number;
        writers_[{job, number}] = call.lease;
      }
    }
  }
  if (faults_ && chance(0.05)) return;  // the answer is lost
  schedule({.kind = Kind::answer, .replica = call.replica, .call = id, .answer = answer}, delay());
}

void ElectionWorld::answered(const Entry& entry) {
  Call& call = calls_[static_cast<std::size_t>(entry.call)];
  if (std::exchange(call.answered, true)) return;
  if (call.ask != 0) return feed(call.replica, leader::Answered{call.ask, *entry.answer});
  if (call.tenure == at(call.replica).tenure && at(call.replica).store) {
    on_kept(call.replica, *entry.answer);
  }
}

void ElectionWorld::spread_news() {
  if (!etcd_away_) etcd_.expire(etcds_time());
  const KeyValue* const now = key();
  const std::optional<KeyValue> is = now == nullptr ? std::nullopt : std::optional(*now);
  if (is == last_key_) return;
  last_key_ = is;
  for (int i = 0; i < kReplicas; ++i) {
    const int watch = at(i).watch;
    if (watch == 0) continue;
    if (faults_ && chance(0.1)) {
      if (chance(0.5)) schedule({.kind = Kind::deaf, .replica = i, .watch = watch}, delay());
      continue;
    }
    schedule({.kind = Kind::news, .replica = i, .watch = watch, .value = is}, delay());
  }
}

// ---- decisions ---------------------------------------------------------------------------------

void ElectionWorld::decide(int replica) {
  Replica& self = at(replica);
  if (!self.store || !self.leader.leads(time_of(self))) return;
  const int job = std::uniform_int_distribution<int>(0, kJobs - 1)(random_);
  const Told decision{job, ++self.numbers[job]};
  ++tally_.decided;
  const auto ticket = self.store->save(job_name(job), std::to_string(decision.number));
  if (flaw_ == Flaw::tells_before_it_is_kept) {
    tell(replica, decision);
  } else {
    self.saving.push_back({ticket, decision, now_});
  }
  pump(replica);
}

void ElectionWorld::pump(int replica) {
  if (auto transaction = at(replica).store->next(time_of(at(replica))))
    keep(replica, std::move(*transaction));
}

void ElectionWorld::keep(int replica, Transaction transaction) {
  std::erase_if(transaction.conditions, [this](const Condition& condition) {
    return flaw_ == (std::holds_alternative<CreatedAt>(condition)
                         ? Flaw::writes_without_the_key
                         : Flaw::writes_without_the_sequence);
  });
  // Without the key's guard, the number is the last word; so that alone it is found wanting:
  if (flaw_ == Flaw::writes_without_the_key) transaction.conditions.clear();
  const Duration left = at(replica).store->time_left(time_of(at(replica)));
  ask(replica, 0, std::move(transaction), std::max<Duration>(left, milliseconds(100)));
}

void ElectionWorld::on_kept(int replica, const Answer& answer) {
  Replica& self = at(replica);
  const bool endless = flaw_ == Flaw::asks_for_ever_to_keep;
  EtcdStore::Verdict verdict = self.store->answered(answer, endless ? TimePoint{} : time_of(self));
  if (std::holds_alternative<EtcdStore::Disowned>(verdict) &&
      flaw_ == Flaw::keeps_on_after_a_failed_guard && !self.saving.empty()) {
    return tell(replica, self.saving.front().decision);
  }
  if (const auto* kept = std::get_if<EtcdStore::Kept>(&verdict)) {
    for (Saving& each : self.saving) each.kept = each.ticket <= kept->upto;
    tell_what_is_kept(replica);
    return pump(replica);
  }
  if (std::holds_alternative<EtcdStore::Again>(verdict)) {
    return keep(replica, self.store->on_its_way());
  }
  if (std::holds_alternative<Failed>(answer)) ++tally_.unkept;
  feed(replica, leader::Disowned{std::get<EtcdStore::Disowned>(verdict).why});
}

void ElectionWorld::tell_what_is_kept(int replica) {
  Replica& self = at(replica);
  while (!self.saving.empty() && self.saving.front().kept) {
    if (!acts(self) && flaw_ != Flaw::does_not_ask_before_it_tells) return;
    const Told decision = self.saving.front().decision;
    self.saving.pop_front();
    tell(replica, decision);
  }
}

void ElectionWorld::tell(int replica, const Told& decision) {
  const Replica& self = at(replica);
  ++tally_.told;
  const std::string what =
      "number " + std::to_string(decision.number) + " of " + job_name(decision.job);
  const auto written = writers_.lower_bound({decision.job, decision.number});
  // Of several numbers of a job that wait, only the last is written.
  if (written == writers_.end() || written->first.first != decision.job ||
      written->second != self.lease) {
    return fail(what + " was told and not written by who tells it");
  }
  if (!self.leader.acts(now_)) return fail(what + " was told by who may not act");
  if (decision.number <= told_[decision.job]) return fail(what + " was told twice");
  told_[decision.job] = decision.number;
}

// ---- the referee -------------------------------------------------------------------------------

void ElectionWorld::check() {
  int acting = 0;
  for (const Replica& replica : replicas_) {
    if (replica.awake_at || !acts(replica)) continue;
    ++acting;
    if (!holds_key(replica)) fail("one acts without the key");
    if (!replica.saving.empty() && now_ - replica.saving.front().since > kDecisionsWait)
      fail("one leads, and its decisions are not kept");
  }
  if (acting > 1) fail("two act");
}

void ElectionWorld::fail(std::string why) {
  if (!broken_.empty()) return;
  broken_ = std::move(why) + " (after " +
            std::to_string(std::chrono::duration_cast<milliseconds>(now_ - started_).count()) +
            " ms)";
}

const KeyValue* ElectionWorld::key() const {
  return etcd_.find(kKeys.leader());
}

bool ElectionWorld::holds_key(const Replica& replica) const {
  return key() != nullptr && key()->lease == replica.lease;
}

TimePoint ElectionWorld::etcds_time() const {
  const double passed = static_cast<double>((now_ - started_).count()) * etcd_clock_;
  return started_ + Duration(static_cast<Duration::rep>(passed));
}

}  // namespace distrun::rendezvous::etcd
