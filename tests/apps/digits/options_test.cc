#include "apps/digits/options.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace digits {
namespace {

Options parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "digits");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

std::string refusal(std::vector<const char*> arguments) {
  try {
    parse(std::move(arguments));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Options, AreTaken) {
  const Options options = parse({"--data", "d", "--checkpoint", "c", "--steps", "9",
                                 "--checkpoint-every", "2", "--report-every", "3",
                                 "--step-sleep-ms", "4", "--die-at-step", "5", "--die-rank", "1"});
  EXPECT_EQ(options.data, "d");
  EXPECT_EQ(options.checkpoint, "c");
  EXPECT_EQ(options.steps, 9);
  EXPECT_EQ(options.checkpoint_every, 2);
  EXPECT_EQ(options.report_every, 3);
  EXPECT_EQ(options.step_sleep_ms, 4);
  EXPECT_EQ(options.die_at_step, 5);
  EXPECT_EQ(options.die_rank, 1);
}

TEST(Options, WhatCannotBeIsNamed) {
  EXPECT_EQ(refusal({"--steps", "9x"}), "--steps: not a number from 0 up: 9x");
  EXPECT_EQ(refusal({"--checkpoint-every", "0"}), "--checkpoint-every: not a number from 1 up: 0");
  EXPECT_EQ(refusal({"--steps"}), "--steps: unknown, or its value is missing");
  EXPECT_EQ(refusal({"--stepz", "9"}), "--stepz: no such option; see --help");
}

}  // namespace
}  // namespace digits
