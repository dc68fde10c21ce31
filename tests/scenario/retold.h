// A scenario file told again: commands, "----", and the answer that a Story gives now.
//
// Story: `std::string tell(const std::string& command)` and `broken()`, what went wrong on the way.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace distrun::scenario {

inline std::vector<std::string> scenario_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto& path = entry.path();
    if (path.extension() == ".txt" && path.stem() != "CMakeLists") {
      names.push_back(path.stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The same text with each answer replaced by what the story says now.
template <class Story>
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

// Expects the file to be told as it is written; with DISTRUN_REWRITE=1 writes the answers anew.
template <class Story>
void expect_as_written(const std::filesystem::path& path) {
  std::ifstream file(path);
  const std::string written{std::istreambuf_iterator<char>(file), {}};
  Story story;
  const std::string now = retold(written, story);
  for (const std::string& broken : story.broken()) ADD_FAILURE() << path << ": " << broken;
  if (const char* rewrite = std::getenv("DISTRUN_REWRITE"); rewrite && rewrite[0] == '1') {
    std::ofstream(path) << now;
    return;
  }
  EXPECT_EQ(written, now) << "DISTRUN_REWRITE=1 writes the new answers into " << path;
}

}  // namespace distrun::scenario
