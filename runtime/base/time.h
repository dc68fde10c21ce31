// The clock of every core: monotonic, passed in as an argument, never read inside a core.
#pragma once

#include <chrono>

namespace distrun {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

}  // namespace distrun
