// The clock of every core: monotonic, passed in as an argument, never read inside a core.
#pragma once

#include <chrono>
#include <string>

namespace distrun {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

// For people: "250 ms", "1.5 s", "30 s", "10 min".
std::string duration_text(Duration duration);

}  // namespace distrun
