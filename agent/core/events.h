// What an agent is told, and what it answers: the events and effects of WorkerGroup and Agent.
//
//   edge --Event, now--> Agent::handle --Effects--> edge
//
// Each effect says what the edge has to do and what it owes in return.  Whatever concerns processes
// carries the generation of its round: a word about an older round is recognised and dropped.
#pragma once

#include "agent/core/exit_status.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace distrun::agent {

// A place in a round, as the rendezvous gave it to this node.
struct Assignment {
  Generation generation;
  NodeRank node_rank;
  int node_count = 1;
  Rank base_rank;  // of this node's local rank 0
  int world_size = 1;
  int base_role_rank = 0;
  int role_world_size = 1;
  std::string master_addr;  // the workers' store
  std::uint16_t master_port = 0;
  int restart_count = 0;  // of the job: the same on every node
  bool operator==(const Assignment&) const = default;
};

// A worker's part in how its round ended.
enum class Part {
  succeeded,      // exit status 0
  first_failure,  // the cause: the first to fail by itself
  victim,         // failed by itself after the first failure, before we signalled it
  stopped,        // we had signalled it: never a cause, whatever its status
};
std::string_view to_string(Part part);

struct Ending {
  LocalRank local_rank;
  Rank rank;
  int pid = 0;  // 0: never started
  ExitStatus status;
  Part part = Part::succeeded;
  TimePoint at;
  bool operator==(const Ending&) const = default;
};

// A worker that SIGKILL could not end within the patience: stuck in the kernel (D state).
struct Abandoned {
  LocalRank local_rank;
  Rank rank;
  int pid = 0;  // 0: its spawn never answered
  bool operator==(const Abandoned&) const = default;
};

enum class GroupResult { succeeded, failed, stopped };

struct GroupVerdict {
  Generation generation;
  GroupResult result = GroupResult::stopped;
  std::optional<Ending> first_failure;  // set exactly if failed
  std::vector<Ending> ends;             // in kernel exit order
  std::vector<Abandoned> abandoned;
  bool leftovers_abandoned = false;  // descendants may be alive still
  // No worker ever worked: one could not be started, or all failed by themselves within kStartup.
  bool failed_at_start = false;
  bool operator==(const GroupVerdict&) const = default;
};

enum class JobResult { succeeded, failed, interrupted, no_round };

// Why the rendezvous gives no round; each has its exit code (agent.h).
enum class RoundError {
  timed_out,  // not enough nodes in time
  closed,     // the job is over
  refused,    // this node is not wanted: other flags, other version, no place
  no_store,   // the workers' store could not be opened
};

struct JobVerdict {
  JobResult result = JobResult::failed;
  int exit_code = 1;
  std::string why;  // one sentence, for the report's head
  int restarts = 0;
  int signo = 0;                           // interrupted: by this signal
  std::optional<Ending> first_failure;     // failed, by a worker of this node: the cause
  std::string report;                      // failed, by one of another node: its report
  std::optional<GroupVerdict> last_group;  // of the last round here, if one was started
  bool operator==(const JobVerdict&) const = default;
};

// ---- events: processes ------------------------------------------------------------------------

// Answer to Spawn: the program runs (exec succeeded).
struct SpawnDone {
  Generation generation;
  LocalRank local_rank;
  int pid = 0;
};
// Answer to Spawn: it does not, and no process is left of the try.
struct SpawnFailed {
  Generation generation;
  LocalRank local_rank;
  ExecStage stage = ExecStage::exec;
  int error = 0;  // errno
};
// Workers are dead and reaped.  In one event, in kernel exit order, all that were dead when the
// edge looked: a worker that died before our signal reached it is then no "stopped" one.
struct WorkerExit {
  LocalRank local_rank;
  ExitStatus status;
};
struct Exited {
  Generation generation;
  std::vector<WorkerExit> exits;
};
// Answer to StopLeftovers: a look begun after that request found no process of the round that is
// not a worker of it.  `request` is the effect's own.
struct LeftoversGone {
  Generation generation;
  int request = 0;
};
// A deadline of next_deadline() has come.  One too many does no harm.
struct Tick {};

// ---- events: the group is told -----------------------------------------------------------------

struct Start {};
enum class StopWhy { failure, operator_signal, membership };
struct Stop {
  StopWhy why = StopWhy::operator_signal;
  int signo = 15;  // what the workers get; SIGKILL follows after the grace
};
struct Escalate {};  // SIGKILL now
struct Notify {      // pass a signal on; nothing else changes
  int signo = 0;
};

// ---- events: the agent is told -----------------------------------------------------------------

struct Begin {};  // once, first
// Answers to Join.  RoundFailed and JobOver may also come unasked, in any phase: the workers are
// then stopped first.
struct Welcome {
  Assignment assignment;
};
// The job is over, and how: the same on every node.
struct JobOver {
  JobResult result = JobResult::succeeded;  // succeeded or failed
  int exit_code = 0;
  std::string why;  // one sentence
  int restarts = 0;
  std::string report;  // of a first failure on another node; empty: it was here, or there was none
};
// There is no round for this node, now or later.
struct RoundFailed {
  RoundError error = RoundError::closed;
  std::string why;  // one clause: "port 29500 is in use (127.0.0.1)"
};
// The membership of this round is over: a node joined or was lost.  Costs no restart.
struct Disband {
  Generation generation;
  std::string why;
};
// The operator, or a scheduler, sent a signal out of Spec::stop_signals.  Once for each signal.
struct StopRequested {
  int signo = 0;
  // false: whoever could ask is gone, which is a reason to stop and none to hurry.
  bool by_somebody = true;
};
// USR1, USR2, CONT: passed through to the workers.
struct NoticeSignal {
  int signo = 0;
};

using GroupEvent = std::variant<Start, Stop, Escalate, Notify, SpawnDone, SpawnFailed, Exited,
                                LeftoversGone, Tick>;
using Event = std::variant<Begin, Welcome, RoundFailed, JobOver, Disband, StopRequested,
                           NoticeSignal, SpawnDone, SpawnFailed, Exited, LeftoversGone, Tick>;

// ---- effects: processes ------------------------------------------------------------------------

// Start this worker.  Owed: SpawnDone or SpawnFailed.  One at a time, in order of local rank.
struct Spawn {
  Generation generation;
  LocalRank local_rank;
  bool operator==(const Spawn&) const = default;
};
// Send a signal to a worker; nothing is owed.  Never to one that was reported gone.
enum class Target { process, group };
struct Signal {
  Generation generation;
  LocalRank local_rank;
  int signo = 0;
  Target target = Target::group;  // a stop is for its children too, a notice for itself only
  bool operator==(const Signal&) const = default;
};
// Send a signal to every process of the round that is not a worker: children, grandchildren, those
// in sessions of their own.  Owed: LeftoversGone, at once if there are none.  SIGKILL is to be
// repeated until none is left.  Other signals: once, and not to members of the process groups of
// `told`, which have had it.  A later request replaces an earlier one.
struct StopLeftovers {
  Generation generation;
  int request = 0;
  int signo = 0;
  std::vector<LocalRank> told;
  bool operator==(const StopLeftovers&) const = default;
};

// ---- effects: words ----------------------------------------------------------------------------

enum class Severity { debug, info, warning, error };
struct Say {  // one sentence for the log
  Severity severity = Severity::info;
  std::string text;
  bool operator==(const Say&) const = default;
};
// The group's first failure, as soon as it is known.
struct FirstFailure {
  Ending end;
  bool operator==(const FirstFailure&) const = default;
};
struct Ended {
  GroupVerdict verdict;
  bool operator==(const Ended&) const = default;
};

// ---- effects: the job --------------------------------------------------------------------------

// Ask the rendezvous for a place in the next round, and tell it how the one before went here.  It
// decides whether there is a next one.  Owed: Welcome, JobOver or RoundFailed.
struct Join {
  std::optional<GroupVerdict> ended;  // nullopt: there was no round before
  bool operator==(const Join&) const = default;
};
// Give up the place for good.  Leaving is not closing: only success or failure ends it for others.
struct Leave {
  JobResult result = JobResult::interrupted;
  bool operator==(const Leave&) const = default;
};
// A round starts here: make its log folders and environment; Spawns follow.
struct StartGroup {
  Assignment assignment;
  bool operator==(const StartGroup&) const = default;
};
// A worker failed first on this node: tell the other nodes at once.
struct Report {
  Generation generation;
  Ending failure;
  bool operator==(const Report&) const = default;
};
// The round is over here and nothing of it is alive, but what the verdict calls abandoned.
struct GroupEnded {
  GroupVerdict verdict;
  bool operator==(const GroupEnded&) const = default;
};
// The last effect of all.
struct Finish {
  JobVerdict verdict;
  bool operator==(const Finish&) const = default;
};

using GroupEffect = std::variant<Spawn, Signal, StopLeftovers, FirstFailure, Ended, Say>;
using GroupEffects = std::vector<GroupEffect>;
using Effect = std::variant<Join, Leave, StartGroup, Spawn, Signal, StopLeftovers, Report,
                            GroupEnded, Say, Finish>;
using Effects = std::vector<Effect>;

}  // namespace distrun::agent
