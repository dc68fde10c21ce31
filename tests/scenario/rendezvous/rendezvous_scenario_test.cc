// Runs every *.txt of this folder against the Rendezvous core, as the agent's scenarios are.
#include "tests/scenario/rendezvous/rendezvous_story.h"
#include "tests/scenario/retold.h"

#include <gtest/gtest.h>

namespace distrun::scenario {
namespace {

const std::filesystem::path kFolder = DISTRUN_SCENARIO_DIR;

class RendezvousScenario : public testing::TestWithParam<std::string> {};

TEST_P(RendezvousScenario, IsToldAsWritten) {
  expect_as_written<RendezvousStory>(kFolder / (GetParam() + ".txt"));
}

INSTANTIATE_TEST_SUITE_P(All, RendezvousScenario, testing::ValuesIn(scenario_names(kFolder)),
                         [](const auto& scenario) { return scenario.param; });

TEST(RendezvousStory, SaysWhatItDoesNotUnderstand) {
  RendezvousStory story;
  EXPECT_EQ(story.tell("join host1"), "error: first comes: job min=… max=…\n");
  story.tell("job min=1 max=1");
  EXPECT_EQ(story.tell("leave host1"), "error: host1 is not here\n");
  EXPECT_EQ(story.broken().size(), 2u);
}

}  // namespace
}  // namespace distrun::scenario
