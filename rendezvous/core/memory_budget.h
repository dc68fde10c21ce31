// MemoryBudget: one limit that many owners draw from.
//
// The table's values, what connections have half received and what they have not yet read are all
// memory that a client makes us hold; only their sum can be limited in a way that means something.
#pragma once

#include "runtime/base/check.h"

#include <cstddef>

namespace distrun::rendezvous {

class MemoryBudget {
 public:
  explicit MemoryBudget(std::size_t limit) : limit_(limit) {}

  // False, and nothing taken, if that would go over the limit.
  bool take(std::size_t bytes) {
    if (bytes > limit_ - used_) return false;
    used_ += bytes;
    return true;
  }
  void give_back(std::size_t bytes) {
    DISTRUN_CHECK(bytes <= used_);
    used_ -= bytes;
  }
  std::size_t used() const { return used_; }
  std::size_t limit() const { return limit_; }

 private:
  std::size_t limit_;
  std::size_t used_ = 0;
};

}  // namespace distrun::rendezvous
