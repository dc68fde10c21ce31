// Runs every *.txt of this folder: commands, "----", and the answer that is expected.  With
// DISTRUN_REWRITE=1 the answers are written anew instead; read the difference before you commit it.
#include "tests/scenario/agent/story.h"
#include "tests/scenario/retold.h"

#include <gtest/gtest.h>

namespace distrun::scenario {
namespace {

const std::filesystem::path kFolder = DISTRUN_SCENARIO_DIR;

class AgentScenario : public testing::TestWithParam<std::string> {};

TEST_P(AgentScenario, IsToldAsWritten) {
  expect_as_written<Story>(kFolder / (GetParam() + ".txt"));
}

INSTANTIATE_TEST_SUITE_P(All, AgentScenario, testing::ValuesIn(scenario_names(kFolder)),
                         [](const auto& scenario) { return scenario.param; });

TEST(AgentStory, SaysWhatItDoesNotUnderstand) {
  Story story;
  EXPECT_EQ(story.tell("begin"), "error: first comes: agent nproc=…\n");
  story.tell("agent nproc=1");
  EXPECT_EQ(story.tell("operator SIGNONE"), "error: no such signal: SIGNONE\n");
  EXPECT_EQ(story.broken().size(), 2u);
}

}  // namespace
}  // namespace distrun::scenario
