#include "apps/digits/options.h"

#include <array>
#include <charconv>
#include <stdexcept>
#include <string_view>

namespace digits {

const char* const kHelp =
    "Trains a classifier of handwritten digits with one process, or with all of a launcher's.\n"
    "\n"
    "  digits                                     alone\n"
    "  distrun --nproc-per-node 4 digits          data-parallel\n"
    "\n"
    "  --data FILE            images (tests/data/digits/digits.csv)\n"
    "  --checkpoint FILE      written by rank 0, and read at the start if it is there (none)\n"
    "  --steps N              (600)\n"
    "  --checkpoint-every N   steps (50)\n"
    "  --report-every N       steps (100)\n"
    "  --step-sleep-ms N      pause before each step (0)\n"
    "  --die-at-step N        in the first attempt, kill --die-rank before this step (never)\n"
    "  --die-rank R           (0)\n";

namespace {

struct Number {
  std::string_view name;
  std::int64_t Options::*member;
  std::int64_t least;
};
constexpr std::array kNumbers{
    Number{"--steps", &Options::steps, 0},
    Number{"--checkpoint-every", &Options::checkpoint_every, 1},
    Number{"--report-every", &Options::report_every, 1},
    Number{"--step-sleep-ms", &Options::step_sleep_ms, 0},
    Number{"--die-at-step", &Options::die_at_step, 0},
    Number{"--die-rank", &Options::die_rank, 0},
};

std::int64_t number(const std::string& name, const std::string& text, std::int64_t least) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || stop != end || value < least)
    throw std::invalid_argument(name + ": not a number from " + std::to_string(least) +
                                " up: " + text);
  return value;
}

}  // namespace

Options parse_options(int argc, const char* const* argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      options.help = true;
      return options;
    }
    if (i + 1 == argc) throw std::invalid_argument(name + ": unknown, or its value is missing");
    const std::string value = argv[++i];
    if (name == "--data") {
      options.data = value;
      continue;
    }
    if (name == "--checkpoint") {
      options.checkpoint = value;
      continue;
    }
    bool known = false;
    for (const Number& entry : kNumbers) {
      if (entry.name != name) continue;
      options.*entry.member = number(name, value, entry.least);
      known = true;
    }
    if (!known) throw std::invalid_argument(name + ": no such option; see --help");
  }
  return options;
}

}  // namespace digits
