// `distrun flight`: what flight records say, of a job that runs, hangs or is over.
//
//   distrun flight [FOLDER|FILE ...] [--last N] [--trace FILE]
//
// Without a folder: those of this user's jobs on this machine.  Workers need not be asked: their
// records are mappings, and can be read at any time.  `flight` is this verb only as the very first
// argument; a script of that name is run as ./flight.
#pragma once

#include "runtime/base/result.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

struct FlightOptions {
  std::vector<std::string> paths;
  std::size_t last = 10;
  std::string trace;  // empty: none
  bool help = false;
};

// `arguments` behind the word "flight".
Result<FlightOptions> parse_flight_options(std::span<const std::string_view> arguments);

// The whole verb.  Exit status: 0 shown; 1 there is no record; 2 wrong usage; 71 the trace cannot
// be written, or standard output took no more.
int run_flight(std::span<const std::string_view> arguments);

}  // namespace distrun::launcher
