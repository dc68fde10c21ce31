// Runs every *.txt of this folder: commands, "----", and the answer that is expected.  With
// DISTRUN_REWRITE=1 the answers are written anew instead; read the difference before you commit it.
#include "tests/scenario/agent/story.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace distrun::scenario {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The same text with each answer replaced by what the story says now.
std::string retold(const std::string& text, Story& story) {
  std::istringstream lines(text);
  std::ostringstream out;
  std::vector<std::string> commands;
  bool in_answer = false;
  for (std::string line; std::getline(lines, line);) {
    if (in_answer && !line.empty()) continue;  // an old answer ends with an empty line
    in_answer = false;
    out << line << "\n";
    if (line == "----") {
      std::string answer;
      for (const std::string& command : commands) answer += story.tell(command);
      out << (answer.empty() ? "nothing\n" : answer);
      commands.clear();
      in_answer = true;
    } else if (!line.empty() && line[0] != '#') {
      commands.push_back(line);
    }
  }
  for (const std::string& command : commands) {
    ADD_FAILURE() << "a command without ----: " << command;
  }
  return out.str();
}

std::vector<std::string> scenario_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(DISTRUN_SCENARIO_DIR)) {
    const auto& path = entry.path();
    if (path.extension() == ".txt" && path.stem() != "CMakeLists")
      names.push_back(path.stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class AgentScenario : public testing::TestWithParam<std::string> {};

TEST_P(AgentScenario, IsToldAsWritten) {
  const auto path = std::filesystem::path(DISTRUN_SCENARIO_DIR) / (GetParam() + ".txt");
  const std::string written = read(path);
  Story story;
  const std::string now = retold(written, story);
  for (const std::string& broken : story.broken()) ADD_FAILURE() << GetParam() << ": " << broken;
  if (const char* rewrite = std::getenv("DISTRUN_REWRITE"); rewrite && rewrite[0] == '1') {
    std::ofstream(path) << now;
    return;
  }
  EXPECT_EQ(written, now) << "DISTRUN_REWRITE=1 writes the new answers into " << path;
}

INSTANTIATE_TEST_SUITE_P(All, AgentScenario, testing::ValuesIn(scenario_names()),
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
