#include "agent/core/agent.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <csignal>

namespace distrun::agent {

std::string_view to_string(AgentPhase phase) {
  switch (phase) {
    case AgentPhase::idle:
      return "idle";
    case AgentPhase::joining:
      return "joining";
    case AgentPhase::launching:
      return "launching";
    case AgentPhase::working:
      return "working";
    case AgentPhase::draining:
      return "draining";
    case AgentPhase::done:
      return "done";
  }
  return "?";
}

int exit_code(RoundError error) {
  switch (error) {
    case RoundError::timed_out:
      return 75;  // EX_TEMPFAIL
    case RoundError::closed:
      return 69;  // EX_UNAVAILABLE
    case RoundError::refused:
      return 77;  // EX_NOPERM
    case RoundError::no_store:
      return 71;  // EX_OSERR
  }
  return 70;
}

AgentLimits limits_of(const Spec& spec) {
  AgentLimits limits;
  limits.nproc = spec.nproc;
  limits.grace = spec.grace;
  limits.restarts = {spec.max_restarts, spec.restart_window};
  return limits;
}

Agent::Agent(AgentLimits limits)
    : limits_(limits), budget_(limits.restarts), group_(GroupLimits{{}, {}, limits.nproc}) {}

Effects Agent::handle(const Event& event, TimePoint now) {
  DISTRUN_CHECK(now >= now_);
  now_ = now;
  out_.clear();
  if (phase_ == AgentPhase::done) return {};  // Finish was the last effect of all
  std::visit([this](const auto& e) { on(e); }, event);
  settle();
  return std::move(out_);
}

std::optional<TimePoint> Agent::next_deadline() const {
  return phase_ == AgentPhase::done ? std::nullopt : group_.next_deadline();
}

AgentState Agent::state() const {
  return {phase_,      assignment_,  groups_started_, budget_.spent(),
          stop_signo_, stop_orders_, verdict_,        group_.state()};
}

// ---- events ------------------------------------------------------------------------------------

void Agent::on(const Begin&) {
  DISTRUN_CHECK(phase_ == AgentPhase::idle);
  join();
}

void Agent::on(const Welcome& welcome) {
  if (phase_ != AgentPhase::joining) return;
  const Assignment& a = welcome.assignment;
  if (assignment_ && a.generation <= assignment_->generation) {
    say(Severity::warning, "a place in round " + std::to_string(a.generation.value) +
                               " is of no use: round " +
                               std::to_string(assignment_->generation.value) + " is over");
    return;
  }
  assignment_ = a;
  group_ = WorkerGroup(GroupLimits{a.generation, a.base_rank, limits_.nproc, limits_.grace,
                                   limits_.patience, groups_started_ == 0});
  ++groups_started_;
  enter(AgentPhase::launching);
  const int last = a.base_rank.value + limits_.nproc - 1;
  say(Severity::debug,
      "round " + std::to_string(a.generation.value) + ": starting rank" +
          (limits_.nproc == 1 ? " " : "s " + std::to_string(a.base_rank.value) + " to ") +
          std::to_string(last) + " of " + std::to_string(a.world_size));
  out_.emplace_back(StartGroup{a});
  tell_group(Start{});
}

void Agent::on(const RoundFailed& failed) {
  if (phase_ != AgentPhase::joining) return;
  JobVerdict verdict;
  verdict.result = JobResult::no_round;
  verdict.exit_code = exit_code(failed.error);
  verdict.why = failed.why;
  finish(std::move(verdict));
}

void Agent::on(const Disband& disband) {
  if (phase_ != AgentPhase::launching && phase_ != AgentPhase::working) return;
  if (disband.generation != assignment_->generation) return;
  say(Severity::info,
      "round " + std::to_string(disband.generation.value) + " is over: " + disband.why);
  tell_group(Stop{StopWhy::membership, SIGTERM});
}

void Agent::on(const StopRequested& request) {
  const bool final_if_repeated = request.signo == SIGINT || request.signo == SIGTERM;
  if (final_if_repeated) ++stop_orders_;
  const bool first = stop_signo_ == 0;
  if (first) stop_signo_ = request.signo;
  switch (phase_) {
    case AgentPhase::idle:
    case AgentPhase::joining:
      finish(interrupted());
      return;
    case AgentPhase::launching:
    case AgentPhase::working:
      say(Severity::info, "got " + signal_name(request.signo) + ": the job ends");
      tell_group(Stop{StopWhy::operator_signal, request.signo});
      return;
    case AgentPhase::draining:
      if (final_if_repeated && stop_orders_ == 2) {
        say(Severity::warning, "got " + signal_name(request.signo) + " again: no more grace");
        tell_group(Escalate{});
      } else if (first) {
        say(Severity::info, "got " + signal_name(request.signo) + ": no further round");
      }
      return;
    case AgentPhase::done:
      return;
  }
}

void Agent::on(const NoticeSignal& notice) {
  tell_group(Notify{notice.signo});
}

void Agent::on(const SpawnDone& event) {
  tell_group(event);
}
void Agent::on(const SpawnFailed& event) {
  tell_group(event);
}
void Agent::on(const Exited& event) {
  tell_group(event);
}
void Agent::on(const LeftoversGone& event) {
  tell_group(event);
}
void Agent::on(const Tick& event) {
  tell_group(event);
}

// ---- the group ---------------------------------------------------------------------------------

namespace {

// What the group says is the agent's to say, but two things, which it turns into its own.
struct PassOn {
  Effects& out;
  Generation generation;
  void operator()(FirstFailure& e) const { out.emplace_back(Report{generation, e.end}); }
  void operator()(Ended& e) const { out.emplace_back(GroupEnded{std::move(e.verdict)}); }
  template <class E>
  void operator()(E& e) const {
    out.emplace_back(std::move(e));
  }
};

}  // namespace

void Agent::tell_group(const GroupEvent& event) {
  if (groups_started_ == 0) return;
  const PassOn pass_on{out_, group_.limits().generation};
  for (GroupEffect& effect : group_.handle(event, now_)) std::visit(pass_on, effect);
}

void Agent::settle() {
  const GroupPhase group = group_.state().phase;
  switch (phase_) {
    case AgentPhase::launching:
      if (group == GroupPhase::starting) return;
      enter(group == GroupPhase::running ? AgentPhase::working : AgentPhase::draining);
      return settle();
    case AgentPhase::working:
      if (group == GroupPhase::running) return;
      enter(AgentPhase::draining);
      return settle();
    case AgentPhase::draining:
      if (group == GroupPhase::stopped) group_ended();
      return;
    case AgentPhase::idle:
    case AgentPhase::joining:
    case AgentPhase::done:
      return;
  }
}

void Agent::group_ended() {
  const GroupVerdict ended = group_.verdict();
  const bool remains = !ended.abandoned.empty() || ended.leftovers_abandoned;
  JobVerdict verdict;
  switch (ended.result) {
    case GroupResult::succeeded:
      verdict.result = JobResult::succeeded;
      verdict.exit_code = 0;
      verdict.why = "all workers exited with status 0";
      return finish(std::move(verdict));
    case GroupResult::failed: {
      const auto refusal = no_restart_because(ended);
      if (!refusal && stop_signo_ != 0) return finish(interrupted());
      if (!refusal) {
        budget_.spend(now_);
        say(Severity::info, "restart " + std::to_string(budget_.spent()) + ": rank " +
                                std::to_string(ended.first_failure->rank.value) + ": " +
                                to_text(ended.first_failure->status));
        return join();
      }
      verdict.result = JobResult::failed;
      verdict.exit_code = process_exit_code(ended.first_failure->status);
      verdict.why = "not restarted: " + *refusal;
      verdict.first_failure = ended.first_failure;
      return finish(std::move(verdict));
    }
    case GroupResult::stopped:
      if (stop_signo_ != 0) return finish(interrupted());
      if (!remains) return join();  // a change of membership
      verdict.result = JobResult::failed;
      verdict.exit_code = 1;
      verdict.why = "not restarted: " + *no_restart_because(ended);
      return finish(std::move(verdict));
  }
}

std::optional<std::string> Agent::no_restart_because(const GroupVerdict& ended) const {
  if (!ended.abandoned.empty() || ended.leftovers_abandoned) {
    return "processes of round " + std::to_string(ended.generation.value) +
           " are still there; they may hold devices and ports";
  }
  if (ended.failed_at_start) {
    if (std::holds_alternative<NeverStarted>(ended.first_failure->status)) {
      return "a worker could not be started, and would not be the next time";
    }
    return "every worker failed within " + duration_text(kStartup) +
           " of the first start, so the next ones would too";
  }
  return budget_.refusal(now_);
}

// ---- changes of phase --------------------------------------------------------------------------

void Agent::enter(AgentPhase next) {
  DISTRUN_CHECK(std::count(kAgentEdges.begin(), kAgentEdges.end(), std::pair(phase_, next)) == 1);
  phase_ = next;
}

void Agent::join() {
  enter(AgentPhase::joining);
  out_.emplace_back(Join{budget_.spent()});
}

JobVerdict Agent::interrupted() const {
  JobVerdict verdict;
  verdict.result = JobResult::interrupted;
  verdict.exit_code = 128 + stop_signo_;
  verdict.signo = stop_signo_;
  verdict.why = "stopped by " + signal_name(stop_signo_);
  return verdict;
}

void Agent::finish(JobVerdict verdict) {
  const bool joined = phase_ != AgentPhase::idle;
  enter(AgentPhase::done);
  verdict.restarts = budget_.spent();
  if (groups_started_ > 0) verdict.last_group = group_.verdict();
  verdict_ = verdict;
  if (joined) out_.emplace_back(Leave{verdict.result});
  out_.emplace_back(Finish{std::move(verdict)});
}

void Agent::say(Severity severity, std::string text) {
  out_.emplace_back(Say{severity, std::move(text)});
}

}  // namespace distrun::agent
