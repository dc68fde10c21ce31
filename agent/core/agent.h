// The Agent takes one node through the life of a job: it joins rounds, runs a WorkerGroup in each,
// and tells the rendezvous how each went.  The rendezvous decides whether there is another.
//
//   idle --Begin--> joining --Welcome--> launching --all spawned--> working
//                    ^  |                    |                         |
//                    |  | JobOver            | failure · operator      | failure · operator ·
//                    success |  | RoundFailed        | Disband · JobOver       | Disband · JobOver
//                    |  | operator           | RoundFailed             | RoundFailed
//                    |  v                    v                         |
//                    | done <-----------  draining  <------------------+
//                    |     operator, or the  |
//                    |     job is over       |
//                    +-----------------------+
//                        nothing of it is alive
//
// The rule that matters most: no group is started while anything of an older one is alive.
//
// The operator's stop ends the job here at once, with one exception: how a round ended that he did
// not stop (a failure or a success was first) is still told, and the answer is waited for a moment
// (kLastWord).  It may be the job's verdict.
//
// Pure, as WorkerGroup is; not thread-safe; one owner.
#pragma once

#include "agent/core/events.h"
#include "agent/core/spec.h"
#include "agent/core/worker_group.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace distrun::agent {

enum class AgentPhase { idle, joining, launching, working, draining, done };
std::string_view to_string(AgentPhase phase);

// Every legal change of phase; as kGroupEdges.
inline constexpr std::array<std::pair<AgentPhase, AgentPhase>, 9> kAgentEdges{{
    {AgentPhase::idle, AgentPhase::joining},
    {AgentPhase::idle, AgentPhase::done},
    {AgentPhase::joining, AgentPhase::launching},
    {AgentPhase::joining, AgentPhase::done},
    {AgentPhase::launching, AgentPhase::working},
    {AgentPhase::launching, AgentPhase::draining},
    {AgentPhase::working, AgentPhase::draining},
    {AgentPhase::draining, AgentPhase::joining},
    {AgentPhase::draining, AgentPhase::done},
}};

// Exit codes of a job that got no round, from sysexits.h where it has one that fits.
int exit_code(RoundError error);  // timed_out 75, closed 69, refused 77, no_store 71

// How long the answer to the last Join is waited for when the operator has ended the job here.
inline constexpr Duration kLastWord = std::chrono::seconds(1);

// What an Agent needs of the Spec.
struct AgentLimits {
  int nproc = 1;
  Duration grace = std::chrono::seconds(30);
  Duration patience = kPatience;
  bool repeated_term_is_final = true;
  bool operator==(const AgentLimits&) const = default;
};
AgentLimits limits_of(const Spec& spec);

struct AgentState {
  AgentPhase phase = AgentPhase::idle;
  std::optional<Assignment> assignment;  // of the last round; nullopt: none yet
  int groups_started = 0;
  int restarts = 0;                    // of the job, as the rendezvous said last
  int stop_signo = 0;                  // the operator's first signal; 0: none
  int stop_orders = 0;                 // among the operator's signals, those final if repeated
  std::optional<JobVerdict> kept;      // the rendezvous's last word, until the group has stopped
  std::optional<TimePoint> answer_by;  // the end of kLastWord; set only in joining
  std::optional<JobVerdict> verdict;   // set exactly in done
  GroupState group;                    // of the last round
  bool operator==(const AgentState&) const = default;
};

class Agent {
 public:
  explicit Agent(AgentLimits limits);

  // REQUIRES: `now` never goes backwards.
  Effects handle(const Event& event, TimePoint now);
  // When to send the next Tick; nullopt: nothing is pending.
  std::optional<TimePoint> next_deadline() const;

  AgentState state() const;
  const AgentLimits& limits() const { return limits_; }
  // For a progress line, without a copy.
  AgentPhase phase() const { return phase_; }
  // Of the job, as the last Welcome or JobOver said.
  int restarts() const { return restarts_; }
  const GroupState& group() const { return group_.state(); }

 private:
  void on(const Begin&);  // one overload per event
  void on(const Welcome&);
  void on(const RoundFailed&);
  void on(const JobOver&);
  void on(const Disband&);
  void on(const StopRequested&);
  void on(const NoticeSignal&);
  void on(const SpawnDone&);
  void on(const SpawnFailed&);
  void on(const Exited&);
  void on(const LeftoversGone&);
  void on(const Tick&);

  void tell_group(const GroupEvent& event);  // and pass its effects on
  void settle();                             // follow the group's phase
  void group_ended();                        // tell the rendezvous, or finish
  void last_word(JobVerdict verdict);  // finish with it as soon as nothing of a group is alive
  void enter(AgentPhase next);         // the only place where the phase changes
  void join();
  JobVerdict interrupted() const;
  void finish(JobVerdict verdict);
  void say_restart(const Assignment& next);
  void say(Severity severity, std::string text);

  AgentLimits limits_;
  WorkerGroup group_;
  AgentPhase phase_ = AgentPhase::idle;
  std::optional<Assignment> assignment_;
  int groups_started_ = 0;
  int restarts_ = 0;
  std::string ended_why_;  // Disband's, of this round
  int stop_signo_ = 0;
  int stop_orders_ = 0;
  std::optional<JobVerdict> kept_;
  std::optional<TimePoint> answer_by_;
  std::optional<JobVerdict> verdict_;
  TimePoint now_{};  // of the event in hand
  Effects out_;
};

}  // namespace distrun::agent
