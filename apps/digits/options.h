// The command line of the digits worker.
#pragma once

#include <cstdint>
#include <string>

namespace digits {

struct Options {
  std::string data = "tests/data/digits/digits.csv";
  std::string checkpoint;  // empty: none
  std::int64_t steps = 600;
  std::int64_t checkpoint_every = 50;
  std::int64_t report_every = 100;
  std::int64_t step_sleep_ms = 0;  // to have time to look, or to kill
  std::int64_t die_at_step = -1;   // by SIGKILL, in the first attempt only
  std::int64_t die_rank = 0;
  bool help = false;
};

extern const char* const kHelp;

// Throws std::invalid_argument naming the option and the value.
Options parse_options(int argc, const char* const* argv);

}  // namespace digits
