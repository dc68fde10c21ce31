// A Story runs one Agent by commands in words, in virtual time, and answers each with the effects
// it had.  The commands are those of the scenario files; README.md lists them.
#pragma once

#include "agent/core/agent.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace distrun::scenario {

class Story {
 public:
  // One command line; the answer is whole lines or nothing, or "error: …" for a command that makes
  // no sense.
  std::string tell(const std::string& line);

  // Invariants that broke on the way, with the command that did it.
  const std::vector<std::string>& broken() const { return broken_; }

 private:
  using Words = std::vector<std::string>;

  std::string obey(const Words& words);
  std::string feed(const agent::Event& event);
  std::string welcome(const Words& words);
  std::string spawned(const Words& words);
  std::string running();
  std::string exited(const Words& words);
  std::string after(Duration duration);
  std::string rest(const Words& words, std::size_t from) const;
  Generation generation() const;

  std::optional<agent::Agent> agent_;
  TimePoint now_{std::chrono::hours(1)};
  TimePoint start_ = now_;
  int rounds_ = 0;
  std::optional<agent::Spawn> spawn_;  // outstanding
  int look_ = 0;
  std::string report_;  // of another node
  std::string command_;
  std::vector<std::string> broken_;
};

}  // namespace distrun::scenario
