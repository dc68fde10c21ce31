// Waiting for keys of others with an ear for bad news.
#pragma once

#include "runtime/base/time.h"
#include <distrun/store.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace distrun {

// Until all keys are there; `hear` is called every second meanwhile, and may throw.  Throws
// DistTimeoutError at the deadline.
inline void wait_or_hear(Store& store, const std::vector<std::string>& keys, TimePoint deadline,
                         const std::function<void()>& hear) {
  constexpr Timeout kSlice = std::chrono::seconds(1);
  for (;;) {
    const Duration left = std::max<Duration>(deadline - Clock::now(), Duration::zero());
    const bool last = left <= kSlice;
    try {
      return store.wait(keys, last ? std::chrono::ceil<Timeout>(left) : kSlice);
    } catch (const DistTimeoutError&) {
      hear();
      if (last) throw;
    }
  }
}

}  // namespace distrun
