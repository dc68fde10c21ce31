#include "tests/sim/transcript.h"

#include <string_view>

namespace distrun::sim {

using namespace agent;

namespace {

std::string number(int value) {
  return std::to_string(value);
}

std::string_view to_string(JobResult result) {
  switch (result) {
    case JobResult::succeeded:
      return "succeeded";
    case JobResult::failed:
      return "failed";
    case JobResult::interrupted:
      return "interrupted";
    case JobResult::no_round:
      return "no round";
  }
  return "?";
}

std::string_view to_string(GroupResult result) {
  switch (result) {
    case GroupResult::succeeded:
      return "succeeded";
    case GroupResult::failed:
      return "failed";
    case GroupResult::stopped:
      return "stopped";
  }
  return "?";
}

std::string_view to_string(Severity severity) {
  switch (severity) {
    case Severity::debug:
      return "debug";
    case Severity::info:
      return "info";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return "?";
}

std::string_view to_string(RoundError error) {
  switch (error) {
    case RoundError::timed_out:
      return "timed out";
    case RoundError::closed:
      return "closed";
    case RoundError::refused:
      return "refused";
    case RoundError::no_store:
      return "no store";
  }
  return "?";
}

std::string text(std::string_view view) {
  return std::string(view);
}

struct EventLine {
  std::string operator()(const Begin&) const { return "begin"; }
  std::string operator()(const Welcome& e) const {
    return "welcome to round " + number(e.assignment.generation.value) + " as node " +
           number(e.assignment.node_rank.value);
  }
  std::string operator()(const RoundFailed& e) const {
    return "no round: " + text(to_string(e.error)) + ": " + e.why;
  }
  std::string operator()(const JobOver& e) const {
    return "job over: " + text(to_string(e.result)) + " with " + number(e.exit_code) + ": " + e.why;
  }
  std::string operator()(const Disband& e) const {
    return "disband round " + number(e.generation.value) + ": " + e.why;
  }
  std::string operator()(const StopRequested& e) const {
    return "operator: " + signal_name(e.signo);
  }
  std::string operator()(const NoticeSignal& e) const { return "notice: " + signal_name(e.signo); }
  std::string operator()(const SpawnDone& e) const {
    return "spawned " + number(e.local_rank.value) + " (pid " + number(e.pid) + ")";
  }
  std::string operator()(const SpawnFailed& e) const {
    return "not spawned " + number(e.local_rank.value) + ": " +
           to_text(NeverStarted{e.stage, e.error});
  }
  std::string operator()(const Exited& e) const {
    std::string line = "exited";
    for (const WorkerExit& exit : e.exits) {
      line += (&exit == &e.exits.front() ? " " : ", ") + number(exit.local_rank.value) + " " +
              to_text(exit.status);
    }
    return line;
  }
  std::string operator()(const LeftoversGone& e) const {
    return "leftovers gone (look " + number(e.request) + ")";
  }
  std::string operator()(const Tick&) const { return "tick"; }
};

struct EffectLine {
  std::string operator()(const Join& e) const {
    if (!e.ended) return "join";
    return "join (round " + number(e.ended->generation.value) + " " +
           text(to_string(e.ended->result)) + ")";
  }
  std::string operator()(const Leave& e) const {
    return "leave (" + text(to_string(e.result)) + ")";
  }
  std::string operator()(const StartGroup& e) const {
    return "start round " + number(e.assignment.generation.value);
  }
  std::string operator()(const Spawn& e) const { return "spawn " + number(e.local_rank.value); }
  std::string operator()(const Signal& e) const {
    return signal_name(e.signo) + (e.target == Target::group ? " to group " : " to process ") +
           number(e.local_rank.value);
  }
  std::string operator()(const StopLeftovers& e) const {
    std::string line = signal_name(e.signo) + " to leftovers (look " + number(e.request) + ")";
    if (!e.told.empty()) line += ", but not to groups";
    for (const LocalRank told : e.told) line += " " + number(told.value);
    return line;
  }
  std::string operator()(const Report& e) const {
    return "report rank " + number(e.failure.rank.value) + ": " + to_text(e.failure.status);
  }
  std::string operator()(const GroupEnded& e) const {
    const GroupVerdict& v = e.verdict;
    std::string line =
        "round " + number(v.generation.value) + " ended: " + text(to_string(v.result));
    if (v.failed_at_start) line += " at start";
    for (const Ending& end : v.ends) {
      line += "\n  " + number(end.local_rank.value) + " " + text(agent::to_string(end.part)) +
              ": " + to_text(end.status);
    }
    for (const Abandoned& a : v.abandoned)
      line += "\n  " + number(a.local_rank.value) + " abandoned";
    if (v.leftovers_abandoned) line += "\n  leftovers may be alive";
    return line;
  }
  std::string operator()(const Say& e) const { return text(to_string(e.severity)) + ": " + e.text; }
  std::string operator()(const Finish& e) const {
    return "finish with " + number(e.verdict.exit_code) + ", " + text(to_string(e.verdict.result)) +
           ": " + e.verdict.why +
           (e.verdict.report.empty() ? "" : "\n  another node's report: " + e.verdict.report);
  }
};

}  // namespace

std::string to_line(const Event& event) {
  return std::visit(EventLine{}, event);
}
std::string to_line(const Effect& effect) {
  return std::visit(EffectLine{}, effect);
}

std::string phases(const AgentState& state) {
  return text(agent::to_string(state.phase)) + "/" + text(agent::to_string(state.group.phase));
}

}  // namespace distrun::sim
