// A World is one seeded run of the agent's cores in virtual time: a simulated process table, a
// simulated rendezvous and an operator, around the real Agent.
//
// Everything that happens comes out of one queue ordered by (time, sequence) and one random engine,
// so a seed is a complete description of a run.  After every event the cores' invariants are
// checked, and what the cores say is compared with what the process table knows.
#pragma once

#include "agent/core/agent.h"
#include "tests/sim/faults.h"
#include "tests/sim/processes.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distrun::sim {

// What was seen, over all worlds that share it.
struct Coverage {
  std::set<std::pair<agent::GroupPhase, agent::GroupPhase>> group_edges;
  std::set<std::pair<agent::AgentPhase, agent::AgentPhase>> agent_edges;
  std::map<std::string, int> situations;
  long events = 0;
};

// The world's own sentences, beside agent::invariant_sentences().
std::vector<std::string_view> world_sentences();

class World {
 public:
  World(std::uint64_t seed, Coverage& coverage);

  // To the job's end and a little beyond.  Empty, or the sentence that does not hold.
  std::string run();

  int steps() const { return steps_; }
  // Of every line of the transcript.
  std::uint64_t fingerprint() const { return fingerprint_; }
  // The last lines of the transcript.
  std::string tail() const;

 private:
  struct Entry {
    TimePoint at;
    std::uint64_t sequence;
    std::function<void()> action;
    bool operator<(const Entry& other) const {  // the queue's top is the earliest
      return std::pair(other.at, other.sequence) < std::pair(at, sequence);
    }
  };

  void later(Duration after, std::function<void()> action);
  void feed(const agent::Event& event);
  void note(std::string line);
  void require(bool holds, std::string_view sentence);
  void check_step(const agent::Event&, const agent::AgentState& before,
                  const agent::AgentState& after, const agent::Effects& effects);
  void check_deadlines(const agent::Event& event, const agent::AgentState& before,
                       const agent::AgentState& after);
  void cover(const agent::AgentState& before, const agent::AgentState& after);
  void seen(const std::string& situation) { ++coverage_.situations[situation]; }

  void apply(const agent::Join& join);
  void decide(const agent::GroupVerdict& ended);
  void give_place();
  void end_job_later(Duration after);
  void end_job(const agent::JobOver& over);
  void apply(const agent::Leave&) {}
  void apply(const agent::StartGroup&) {}
  void apply(const agent::Spawn&);
  void apply(const agent::Signal&);
  void apply(const agent::StopLeftovers&);
  void apply(const agent::Report&);
  void apply(const agent::GroupEnded&);
  void apply(const agent::Say&) {}
  void apply(const agent::Finish&);

  void on_death(const Process& process);
  void look(Generation generation);
  void answer_if_no_leftovers(Generation generation);
  void stop(int signo);
  void require_dead(Generation generation, bool given_up);

  Random random_;
  Faults faults_;
  agent::AgentLimits limits_;
  bool typo_;
  Coverage& coverage_;
  agent::Agent agent_;
  rendezvous::RestartBudget budget_;  // of the simulated rendezvous
  Processes processes_;

  TimePoint now_;
  std::uint64_t sequence_ = 0;
  std::priority_queue<Entry> queue_;
  std::optional<TimePoint> armed_;

  int next_generation_ = 0;
  std::optional<agent::JobOver> over_;  // the first that the agent was told
  std::optional<int> asked_;            // the generation whose leftovers are looked for
  int request_ = 0;
  std::set<std::pair<int, int>> spawned_;  // generation, local rank
  std::map<int, std::vector<const Process*>>
      truth_;  // failures by themselves, by generation, in order

  std::optional<TimePoint> done_by_;     // the operator was heard
  std::optional<TimePoint> drained_by_;  // a stop has begun
  int orders_ = 0;

  int steps_ = 0;
  std::uint64_t fingerprint_ = 14695981039346656037ULL;
  std::deque<std::string> tail_;
  std::string broken_;
};

}  // namespace distrun::sim
