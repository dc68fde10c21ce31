// Flight records as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing: one process a
// rank, one track a group (and one for its point-to-point operations), one slice an operation from
// its start to its end.  Pure.
#pragma once

#include "runtime/recorder/flight_file.h"

#include <cstdint>
#include <span>
#include <string>

namespace distrun::launcher {

// JSON in the "trace event" format.  Ranks of several machines are laid beside each other by their
// machines' time of day.  `now`: when an operation that is still under way is drawn to end.
std::string flight_trace(std::span<const recorder::RankRecord> ranks, std::int64_t now);

}  // namespace distrun::launcher
