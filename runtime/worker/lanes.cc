#include "runtime/worker/lanes.h"

#include <chrono>
#include <system_error>
#include <utility>

namespace distrun {

Lanes::~Lanes() {
  stop();
}

bool Lanes::put(const Lane& lane, std::function<void()> job) {
  const auto found = lanes_.find(lane);
  if (found != lanes_.end()) {
    if (found->second.size() >= kMaxWaiting) return false;
    found->second.push_back(std::move(job));
    return true;
  }
  // One that waits in vain for others must not hold those up.
  if (idle_ <= ready_.size()) {
    if (threads_.size() >= kMaxThreads) return false;
    threads_.emplace_back([this] { work_off(); });
    ++idle_;
  }
  lanes_[lane].push_back(std::move(job));
  ready_.push_back(lane);
  changed_.notify_all();
  return true;
}

bool Lanes::add(const Lane& lane, std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  return put(lane, std::move(job));
}

bool Lanes::run(const Lane& lane, const std::function<void()>& job) {
  std::unique_lock lock(mutex_);
  if (!lanes_.contains(lane)) {
    lanes_.emplace(lane, Jobs());
    lock.unlock();
    job();
    lock.lock();
    leave(lane);
    return true;
  }
  bool done = false;
  const bool taken = put(lane, [&] {
    job();
    const std::lock_guard again(mutex_);
    done = true;
    changed_.notify_all();
  });
  if (!taken) return false;
  changed_.wait(lock, [&] { return done; });
  return true;
}

void Lanes::leave(const Lane& lane) {
  const auto found = lanes_.find(lane);
  if (found->second.empty()) {
    lanes_.erase(found);
  } else {
    ready_.push_back(lane);
    // Of those that there are, one comes to it at last; without any it could never be.
    if (idle_ < ready_.size() && threads_.size() < kMaxThreads) try {
        threads_.emplace_back([this] { work_off(); });
        ++idle_;
      } catch (const std::system_error&) {
        if (threads_.empty()) throw;
      }
  }
  changed_.notify_all();
}

void Lanes::work_off() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !ready_.empty(); });
    if (ready_.empty()) return;
    const Lane lane = ready_.front();
    ready_.pop_front();
    --idle_;
    Jobs& jobs = lanes_[lane];
    const auto job = std::move(jobs.front());
    jobs.pop_front();
    lock.unlock();
    job();
    lock.lock();
    ++idle_;
    leave(lane);
  }
}

bool Lanes::drain(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return lanes_.empty(); });
}

void Lanes::stop() {
  std::vector<std::thread> threads;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return lanes_.empty(); });
    stopping_ = true;
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (auto& thread : threads) thread.join();
}

}  // namespace distrun
