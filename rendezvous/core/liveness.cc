#include "rendezvous/core/liveness.h"

#include "runtime/base/check.h"

#include <algorithm>

namespace distrun::rendezvous {

void Liveness::add(SessionId session, TimePoint now) {
  if (order_.empty()) next_ping_ = now + beat_;
  order_.push_back({session, now, std::nullopt});
  DISTRUN_CHECK(watched_.emplace(session.value, std::prev(order_.end())).second);
}

void Liveness::remove(SessionId session) {
  const auto found = watched_.find(session.value);
  if (found == watched_.end()) return;
  order_.erase(found->second);
  watched_.erase(found);
}

void Liveness::heard(SessionId session, TimePoint now) {
  const auto found = watched_.find(session.value);
  if (found == watched_.end()) return;
  found->second->heard = now;
  order_.splice(order_.end(), order_, found->second);
}

void Liveness::answered(SessionId session, std::uint64_t ping, TimePoint now) {
  heard(session, now);
  const auto found = watched_.find(session.value);
  if (found == watched_.end()) return;
  if (ping == 0 || ping > last_ping_ || last_ping_ - ping >= sent_.size()) return;
  std::optional<TimePoint>& from = found->second->held_from;
  const TimePoint sent = sent_[ping % sent_.size()];
  from = from ? std::max(*from, sent) : sent;
}

void Liveness::awake(TimePoint now) {
  const auto deadline = next_deadline();
  if (!deadline || now - *deadline <= beat_ / 2) return;
  woke_at_ = now;
  const Duration paused = now - *deadline;
  for (Watched& watched : order_) watched.heard = std::min(now, watched.heard + paused);
}

std::optional<SessionId> Liveness::silent(TimePoint now) const {
  if (order_.empty() || now - order_.front().heard < silence_) return std::nullopt;
  return order_.front().session;
}

std::optional<std::uint64_t> Liveness::ping(TimePoint now) {
  if (order_.empty() || now < next_ping_) return std::nullopt;
  next_ping_ = now + beat_;
  return extra_ping(now);
}

std::vector<SessionId> Liveness::doubted(TimePoint now) {
  std::vector<SessionId> sessions;
  const auto due = next_doubt();
  if (!due || now < *due) return sessions;
  next_doubt_ = now + beat_ / 4;
  for (const Watched& watched : order_) {
    if (now - watched.heard < beat_ * 3 / 2) break;
    sessions.push_back(watched.session);
  }
  return sessions;
}

std::optional<TimePoint> Liveness::next_doubt() const {
  if (order_.empty()) return std::nullopt;
  return std::max(order_.front().heard + beat_ * 3 / 2, next_doubt_);
}

std::uint64_t Liveness::extra_ping(TimePoint now) {
  ++last_ping_;
  sent_[last_ping_ % sent_.size()] = now;
  return last_ping_;
}

bool Liveness::held(SessionId session, TimePoint now) const {
  const auto found = watched_.find(session.value);
  if (found == watched_.end() || !found->second->held_from) return false;
  return now - *found->second->held_from < silence_;
}

TimePoint Liveness::last_heard(SessionId session) const {
  const auto found = watched_.find(session.value);
  return found == watched_.end() ? TimePoint{} : found->second->heard;
}

std::optional<TimePoint> Liveness::next_deadline() const {
  if (order_.empty()) return std::nullopt;
  return std::min({next_ping_, order_.front().heard + silence_, *next_doubt()});
}

}  // namespace distrun::rendezvous
