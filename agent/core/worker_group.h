// A WorkerGroup is the workers of one node in one round, from the first spawn to the last one gone.
//
//   idle --Start--> starting --all spawned--> running
//                      |                         |
//                      | spawn failed            | one failed / all exited 0
//                      | one failed / Stop       | Stop
//                      +------> stopping <-------+
//                                  |
//                                  +--all gone, leftovers too, or given up on--> stopped
//
//   stopping:  signal --grace--> SIGKILL --patience--> abandoned
//
// A failure stops the others at once, with one exception (State::hold_until).  Success goes through
// stopping too: what the workers left behind is stopped before the group calls itself stopped.
//
// Pure: no process, clock or log.  The caller says what happened and when; the group answers with
// what is to be done.  Not thread-safe; one owner.
#pragma once

#include "agent/core/events.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace distrun::agent {

enum class GroupPhase { idle, starting, running, stopping, stopped };
std::string_view to_string(GroupPhase phase);

// Every legal change of phase.  `WorkerGroup::enter` refuses any other; the simulation fails if it
// never saw one of these.
inline constexpr std::array<std::pair<GroupPhase, GroupPhase>, 5> kGroupEdges{{
    {GroupPhase::idle, GroupPhase::starting},
    {GroupPhase::starting, GroupPhase::running},
    {GroupPhase::starting, GroupPhase::stopping},
    {GroupPhase::running, GroupPhase::stopping},
    {GroupPhase::stopping, GroupPhase::stopped},
}};

// A group whose workers all fail within this time of its start failed at start.
inline constexpr Duration kStartup = std::chrono::seconds(1);
// How long after SIGKILL a process may still be there before it is abandoned.
inline constexpr Duration kPatience = std::chrono::seconds(10);
// The least time that siblings of an early failure get to fail by themselves.
inline constexpr Duration kHoldMin = std::chrono::milliseconds(25);

struct GroupLimits {
  Generation generation;
  Rank base_rank;
  int nproc = 1;
  Duration grace = std::chrono::seconds(30);
  Duration patience = kPatience;
  bool first_attempt = true;  // of the job: no round was started before
  bool operator==(const GroupLimits&) const = default;
};

enum class WorkerPhase { waiting, spawning, alive, gone, abandoned };

struct Worker {
  WorkerPhase phase = WorkerPhase::waiting;
  int pid = 0;
  int signalled = 0;  // the last stop signal we sent it; 0: none
  bool operator==(const Worker&) const = default;
};

struct GroupState {
  GroupPhase phase = GroupPhase::idle;
  std::vector<Worker> workers;  // by local rank
  std::vector<Ending> ends;     // in order of exit
  std::optional<Ending> first_failure;
  std::optional<TimePoint> started_at;

  // First attempt only.  A worker that fails by itself within kStartup may be the first of all: a
  // typo kills every rank, a moment apart.  The others then get as long again as the first one
  // lived to fail by themselves, before they are signalled; else every typo would be retried.
  std::optional<TimePoint> hold_until;

  int stop_signo = 0;                   // what a stop began with; 0: none began
  bool escalated = false;               // somebody ordered SIGKILL before the grace was over
  bool killing = false;                 // SIGKILL has been sent
  std::optional<TimePoint> kill_at;     // set exactly in stopping, before SIGKILL
  std::optional<TimePoint> give_up_at;  // set exactly in stopping, after SIGKILL
  int leftovers_request = 0;            // the last StopLeftovers; 0: none yet
  bool last_look = false;               // it was made when no worker was left: its answer counts
  bool leftovers_gone = false;          // and that is the answer

  bool operator==(const GroupState&) const = default;
};

class WorkerGroup {
 public:
  explicit WorkerGroup(GroupLimits limits);

  // REQUIRES: `now` never goes backwards.
  GroupEffects handle(const GroupEvent& event, TimePoint now);
  // When to send the next Tick; nullopt: nothing is pending.
  std::optional<TimePoint> next_deadline() const;

  const GroupState& state() const { return state_; }
  const GroupLimits& limits() const { return limits_; }
  // Meaningful once stopped.
  GroupVerdict verdict() const;

 private:
  void on(const Start&);  // one overload per event; a new event does not compile until handled
  void on(const Stop&);
  void on(const Escalate&);
  void on(const Notify&);
  void on(const SpawnDone&);
  void on(const SpawnFailed&);
  void on(const Exited&);
  void on(const LeftoversGone&);
  void on(const Tick&);

  void settle();                // after every event: does a change of phase follow?
  void enter(GroupPhase next);  // the only place where the phase changes

  void spawn_next();
  void record_end(LocalRank local_rank, const ExitStatus& status);
  void hold_or_not(const Ending& end);
  void begin_stop(int signo);
  void signal(LocalRank local_rank, int signo);
  void kill();
  void stop_leftovers(int signo);
  void give_up();

  bool ours(Generation generation) const { return generation == limits_.generation; }
  bool in_work() const;  // starting or running
  bool holding() const;
  bool any(WorkerPhase phase) const;
  bool all_gone() const;  // nobody spawning or alive
  Worker& worker(LocalRank local_rank);
  Rank rank(LocalRank local_rank) const;
  void say(Severity severity, std::string text);

  GroupLimits limits_;
  GroupState state_;
  TimePoint now_{};  // of the event in hand
  GroupEffects out_;
};

}  // namespace distrun::agent
