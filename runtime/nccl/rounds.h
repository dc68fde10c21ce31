// A thread that visits every group of the process again and again: one looks at what is pending on
// the device (the watchdog), one looks into the store for other ranks' failures, so that a store
// that hangs does not blind the first.
//
// The threads start with the first group and are never joined: the process may end at any time.
#pragma once

#include "runtime/base/time.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

namespace distrun::nccl {

class Group;

class Rounds {
 public:
  static Rounds& watchdog();
  static Rounds& listener();

  void add(const std::shared_ptr<Group>& group);
  // After this a visit may still be under way, but none begins.
  void remove(const Group* group);
  // Somebody has to be visited by then.
  void nudge(TimePoint when);

 private:
  using Visit = TimePoint (Group::*)(TimePoint now);
  explicit Rounds(Visit visit) : visit_(visit) {}
  void run();

  struct Entry {
    const Group* key;
    std::weak_ptr<Group> group;
    TimePoint due;
    TimePoint nudged = TimePoint::max();  // since the visit that is under way began
  };
  const Visit visit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false;
  TimePoint sleeps_until_ = TimePoint::min();  // min: it does not sleep
  std::vector<Entry> groups_;
};

}  // namespace distrun::nccl
