// Backoff: how long to wait before the next try.  Exponential, capped, with equal jitter.
//
// The n-th pause is drawn from [base/2, base], base = min(first * factor^n, cap).  Randomness comes
// in as an argument, so that tests and simulations are repeatable.
#pragma once

#include "runtime/base/time.h"

#include <random>

namespace distrun {

class Backoff {
 public:
  struct Limits {
    Duration first;
    Duration cap;
    double factor = 2.0;
  };

  explicit Backoff(Limits limits) : limits_(limits), base_(limits.first) {}

  Duration next(std::mt19937_64& random);
  void reset() { base_ = limits_.first; }

 private:
  Limits limits_;
  Duration base_;
};

}  // namespace distrun
