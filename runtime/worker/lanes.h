// Runs jobs on threads of its own: those of one lane one after another, lanes beside each other.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace distrun {

class Lanes {
 public:
  using Lane = std::pair<int, std::pair<int, int>>;
  static constexpr std::size_t kMaxThreads = 1024;  // lanes that are at work at once
  static constexpr std::size_t kMaxWaiting = 4096;  // in one lane

  ~Lanes();

  // False: too many lanes are at work, or too much waits in this one.
  bool add(const Lane& lane, std::function<void()> job);
  // In the caller's thread, if the lane is free; else behind what is in it, and waited for.  False:
  // as above.
  bool run(const Lane& lane, const std::function<void()>& job);
  // Until nothing is left to do.  False: something is, at `deadline`.
  bool drain(std::chrono::steady_clock::time_point deadline);
  // Waits for what is under way.
  void stop();

 private:
  using Jobs = std::deque<std::function<void()>>;

  bool put(const Lane& lane, std::function<void()> job);  // with the lock held
  void leave(const Lane& lane);  // with the lock held: the next of it may run
  void work_off();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Lane, Jobs> lanes_;  // at work, with what waits in each
  std::deque<Lane> ready_;
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace distrun
