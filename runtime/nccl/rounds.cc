#include "runtime/nccl/rounds.h"

#include "runtime/nccl/group.h"

#include <algorithm>
#include <thread>

namespace distrun::nccl {

// Never destroyed, see the header.
Rounds& Rounds::watchdog() {
  static auto* const rounds = new Rounds(&Group::watch);
  return *rounds;
}
Rounds& Rounds::listener() {
  static auto* const rounds = new Rounds(&Group::listen);
  return *rounds;
}

void Rounds::add(const std::shared_ptr<Group>& group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back({group.get(), group, Clock::now()});
  if (!running_) {
    running_ = true;
    std::thread([this] { run(); }).detach();
  }
  changed_.notify_one();
}

void Rounds::remove(const Group* group) {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [&](const Entry& entry) { return entry.key == group; });
}

void Rounds::nudge(TimePoint when) {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : groups_) {
    entry.due = std::min(entry.due, when);
    entry.nudged = std::min(entry.nudged, when);
  }
  if (when < sleeps_until_) changed_.notify_one();
}

void Rounds::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const TimePoint now = Clock::now();
    const auto due = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const Entry& entry) { return entry.due <= now; });
    if (due == groups_.end()) {
      TimePoint next = TimePoint::max();
      for (const Entry& entry : groups_) next = std::min(next, entry.due);
      sleeps_until_ = next;
      if (next == TimePoint::max()) {
        changed_.wait(lock);
      } else {
        changed_.wait_until(lock, next);
      }
      sleeps_until_ = TimePoint::min();
      continue;
    }
    const Group* const key = due->key;
    std::shared_ptr<Group> group = due->group.lock();
    if (!group) {
      groups_.erase(due);
      continue;
    }
    due->nudged = TimePoint::max();
    lock.unlock();
    const TimePoint next = ((*group).*visit_)(now);
    group.reset();  // may be the last: not under the lock
    lock.lock();
    for (Entry& entry : groups_) {
      if (entry.key == key) entry.due = std::min(next, entry.nudged);
    }
  }
}

}  // namespace distrun::nccl
