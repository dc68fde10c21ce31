#include "agent/core/agent.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <csignal>
#include <utility>

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
  limits.repeated_term_is_final = spec.repeated_term_is_final;
  return limits;
}

Agent::Agent(AgentLimits limits) : limits_(limits), group_(GroupLimits{{}, {}, limits.nproc}) {}

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
  if (phase_ == AgentPhase::done) return std::nullopt;
  return answer_by_ ? answer_by_ : group_.next_deadline();  // a group that joins again has none
}

AgentState Agent::state() const {
  return {phase_,       assignment_, groups_started_, restarts_, stop_signo_,
          stop_orders_, kept_,       answer_by_,      verdict_,  group_.state()};
}

namespace {

bool something_remains(const GroupVerdict& ended) {
  return !ended.abandoned.empty() || ended.leftovers_abandoned;
}

// Another round is offered while processes of the last one are alive.
JobVerdict unsafe(const GroupVerdict& ended) {
  JobVerdict verdict;
  verdict.result = JobResult::failed;
  verdict.exit_code = ended.first_failure ? process_exit_code(ended.first_failure->status) : 1;
  verdict.why = "not restarted: processes of round " + std::to_string(ended.generation.value) +
                " are still there; they may hold devices and ports";
  return verdict;
}

}  // namespace

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
  if (stop_signo_ != 0) return finish(interrupted());
  if (groups_started_ > 0) {
    if (const GroupVerdict ended = group_.verdict(); something_remains(ended)) {
      JobVerdict verdict = unsafe(ended);
      say(Severity::info, verdict.why);
      return finish(std::move(verdict));
    }
    say_restart(a);
  }
  restarts_ = a.restart_count;
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
  if (kept_) return;
  JobVerdict verdict;
  verdict.result = JobResult::no_round;
  verdict.exit_code = exit_code(failed.error);
  verdict.why = failed.why;
  last_word(std::move(verdict));
}

void Agent::on(const JobOver& over) {
  if (kept_) return;
  restarts_ = over.restarts;
  JobVerdict verdict;
  if (over.result == JobResult::succeeded) {
    verdict.result = JobResult::succeeded;
    verdict.exit_code = 0;
  } else {
    verdict.result = JobResult::failed;
    verdict.exit_code = over.exit_code == 0 ? 1 : over.exit_code;  // never looks like a success
  }
  verdict.why = over.why;
  verdict.report = over.report;
  last_word(std::move(verdict));
}

void Agent::on(const Disband& disband) {
  if (!assignment_ || disband.generation != assignment_->generation) return;
  ended_why_ = disband.why;
  if (phase_ != AgentPhase::launching && phase_ != AgentPhase::working) return;
  // Our own failure, come back: its group stops by itself, or waits whether all fail alike.
  if (group_.state().first_failure) return;
  say(Severity::info,
      "round " + std::to_string(disband.generation.value) + " is over: " + disband.why);
  tell_group(Stop{StopWhy::membership, SIGTERM});
}

void Agent::on(const StopRequested& request) {
  const bool final_signal =
      request.signo == SIGINT || (request.signo == SIGTERM && limits_.repeated_term_is_final);
  const bool final_if_repeated = final_signal && request.by_somebody;
  if (final_if_repeated) ++stop_orders_;
  // Once the job is over only a repeated order means anything: the workers are being stopped.
  const bool first = stop_signo_ == 0 && !kept_;
  if (first) stop_signo_ = request.signo;
  switch (phase_) {
    case AgentPhase::idle:
      finish(interrupted());
      return;
    case AgentPhase::joining:
      if (first || (final_if_repeated && stop_orders_ >= 2)) finish(interrupted());
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
  if (answer_by_ && now_ >= *answer_by_) return finish(interrupted());
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
  const bool by_operator = stop_signo_ != 0 && group_.verdict().result == GroupResult::stopped;
  if (by_operator) return finish(interrupted());
  if (kept_) return finish(*std::exchange(kept_, std::nullopt));
  join();
}

void Agent::last_word(JobVerdict verdict) {
  switch (phase_) {
    case AgentPhase::idle:
    case AgentPhase::joining:
      if (verdict.result == JobResult::failed) say(Severity::info, verdict.why);
      return finish(std::move(verdict));
    case AgentPhase::launching:
    case AgentPhase::working:
      say(Severity::info, "the job is over: " + verdict.why);
      kept_ = std::move(verdict);
      tell_group(Stop{StopWhy::membership, SIGTERM});
      return;
    case AgentPhase::draining:
      say(Severity::info, "the job is over: " + verdict.why);
      kept_ = std::move(verdict);
      return;
    case AgentPhase::done:
      return;
  }
}

// ---- changes of phase --------------------------------------------------------------------------

void Agent::enter(AgentPhase next) {
  DISTRUN_CHECK(std::count(kAgentEdges.begin(), kAgentEdges.end(), std::pair(phase_, next)) == 1);
  phase_ = next;
}

void Agent::join() {
  enter(AgentPhase::joining);
  Join join;
  if (groups_started_ > 0) join.ended = group_.verdict();
  if (stop_signo_ != 0) answer_by_ = now_ + kLastWord;
  out_.emplace_back(std::move(join));
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
  kept_.reset();
  answer_by_.reset();
  verdict.restarts = restarts_;
  if (groups_started_ > 0) verdict.last_group = group_.verdict();
  if (verdict.result == JobResult::failed) {
    const bool here = verdict.report.empty() && verdict.last_group;
    if (here) verdict.first_failure = verdict.last_group->first_failure;
  }
  verdict_ = verdict;
  if (joined) out_.emplace_back(Leave{verdict.result});
  out_.emplace_back(Finish{std::move(verdict)});
}

// Of several nodes, only the rendezvous knows whose failure was first: what this one saw may be its
// victim.
void Agent::say_restart(const Assignment& next) {
  const std::string elsewhere = std::exchange(ended_why_, {});
  if (next.restart_count <= restarts_) return;
  const auto& failure = group_.state().first_failure;
  std::string cause = "a worker failed on another node";
  if (failure)
    cause = "rank " + std::to_string(failure->rank.value) + ": " + to_text(failure->status);
  if (!elsewhere.empty() && next.node_count > 1) cause = elsewhere;
  say(Severity::info, "restart " + std::to_string(next.restart_count) + ": " + cause);
}

void Agent::say(Severity severity, std::string text) {
  out_.emplace_back(Say{severity, std::move(text)});
}

}  // namespace distrun::agent
