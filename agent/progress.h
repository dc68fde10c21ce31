// The progress line: where the job stands, in one line, for a terminal.
//
//   4 workers running, round 0, 12 s, restarts 0/3
#pragma once

#include "runtime/base/time.h"

#include <string>

namespace distrun::agent {

struct Progress {
  enum class Phase { starting, running, stopping };
  Phase phase = Phase::starting;
  int workers = 0;  // alive now
  int nproc = 0;
  int round = 0;
  Duration elapsed{};  // since the job began
  int restarts = 0;
  int max_restarts = 0;
};

std::string to_line(const Progress& progress);

// "12 s", "3 min 05 s", "2 h 07 min".
std::string to_text(Duration elapsed);

}  // namespace distrun::agent
