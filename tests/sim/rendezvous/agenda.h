// Agenda: virtual time.  Everything that happens in a world is an entry of this queue, ordered by
// (time, sequence), so that a seed is a complete description of a run.
#pragma once

#include "runtime/base/time.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace distrun::rendezvous::sim {

class Agenda {
 public:
  using Action = std::function<void()>;

  TimePoint now() const { return now_; }
  void at(TimePoint when, Action action) {
    if (free_.empty()) {
      free_.push_back(actions_.size());
      actions_.emplace_back();
    }
    const std::size_t place = free_.back();
    free_.pop_back();
    actions_[place] = std::move(action);
    heap_.push_back({std::max(when, now_), sequence_++, place});
    std::push_heap(heap_.begin(), heap_.end());
  }
  void after(Duration wait, Action action) { at(now_ + wait, std::move(action)); }

  bool empty() const { return heap_.empty(); }
  TimePoint next() const { return heap_.front().when; }
  // REQUIRES: not empty().
  void step() {
    std::pop_heap(heap_.begin(), heap_.end());
    const Entry entry = heap_.back();
    heap_.pop_back();
    now_ = entry.when;
    const Action action = std::move(actions_[entry.place]);
    actions_[entry.place] = nullptr;
    free_.push_back(entry.place);
    action();
  }

 private:
  struct Entry {
    TimePoint when;
    std::uint64_t sequence;
    std::size_t place;                          // of its action: a heap moves its entries often
    bool operator<(const Entry& other) const {  // the heap's top is the earliest
      return std::pair(other.when, other.sequence) < std::pair(when, sequence);
    }
  };

  TimePoint now_{std::chrono::hours(1)};
  std::uint64_t sequence_ = 0;
  std::vector<Entry> heap_;
  std::vector<Action> actions_;
  std::vector<std::size_t> free_;
};

}  // namespace distrun::rendezvous::sim
