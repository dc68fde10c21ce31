#include "agent/core/worker_group.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <csignal>
#include <string>

namespace distrun::agent {

namespace {

std::string workers_text(long count) {
  return std::to_string(count) + (count == 1 ? " worker" : " workers");
}

// "rank 5 (local rank 1, pid 4711)"
std::string name_of(Rank rank, LocalRank local_rank, int pid) {
  std::string text = "rank " + std::to_string(rank.value) + " (";
  if (rank.value != local_rank.value) text += "local rank " + std::to_string(local_rank.value);
  if (rank.value != local_rank.value && pid != 0) text += ", ";
  if (pid != 0) text += "pid " + std::to_string(pid);
  if (text.back() == '(') return "rank " + std::to_string(rank.value);
  return text + ")";
}

}  // namespace

std::string_view to_string(GroupPhase phase) {
  switch (phase) {
    case GroupPhase::idle:
      return "idle";
    case GroupPhase::starting:
      return "starting";
    case GroupPhase::running:
      return "running";
    case GroupPhase::stopping:
      return "stopping";
    case GroupPhase::stopped:
      return "stopped";
  }
  return "?";
}

WorkerGroup::WorkerGroup(GroupLimits limits) : limits_(limits) {
  DISTRUN_CHECK(limits_.nproc >= 1);
  state_.workers.resize(static_cast<std::size_t>(limits_.nproc));
}

GroupEffects WorkerGroup::handle(const GroupEvent& event, TimePoint now) {
  DISTRUN_CHECK(now >= now_);
  now_ = now;
  out_.clear();
  std::visit([this](const auto& e) { on(e); }, event);
  settle();
  return std::move(out_);
}

std::optional<TimePoint> WorkerGroup::next_deadline() const {
  std::optional<TimePoint> first = state_.hold_until;
  for (const auto& deadline : {state_.kill_at, state_.give_up_at}) {
    if (deadline && (!first || *deadline < *first)) first = deadline;
  }
  return first;
}

// ---- events ------------------------------------------------------------------------------------

void WorkerGroup::on(const Start&) {
  enter(GroupPhase::starting);
}

void WorkerGroup::on(const Stop& stop) {
  DISTRUN_CHECK(state_.phase != GroupPhase::idle);
  // A stop under way keeps its signal and its deadline: asking twice does not buy a second grace.
  if (in_work()) begin_stop(stop.signo);
}

void WorkerGroup::on(const Escalate&) {
  DISTRUN_CHECK(state_.phase != GroupPhase::idle);
  if (in_work()) begin_stop(SIGTERM);
  if (state_.phase != GroupPhase::stopping || state_.killing) return;
  state_.escalated = true;
  kill();
}

void WorkerGroup::on(const Notify& notice) {
  for (int i = 0; i < limits_.nproc; ++i) {
    const LocalRank local_rank{i};
    if (worker(local_rank).phase != WorkerPhase::alive) continue;
    out_.emplace_back(Signal{limits_.generation, local_rank, notice.signo, Target::process});
  }
}

void WorkerGroup::on(const SpawnDone& done) {
  if (!ours(done.generation)) return;
  Worker& w = worker(done.local_rank);
  if (w.phase == WorkerPhase::abandoned) return;
  DISTRUN_CHECK(w.phase == WorkerPhase::spawning);
  w.phase = WorkerPhase::alive;
  w.pid = done.pid;
  // It was on its way when the stop began.
  if (state_.phase == GroupPhase::stopping) {
    signal(done.local_rank, state_.killing ? SIGKILL : state_.stop_signo);
  }
}

void WorkerGroup::on(const SpawnFailed& failed) {
  if (!ours(failed.generation)) return;
  if (worker(failed.local_rank).phase == WorkerPhase::abandoned) return;
  DISTRUN_CHECK(worker(failed.local_rank).phase == WorkerPhase::spawning);
  record_end(failed.local_rank, NeverStarted{failed.stage, failed.error});
}

void WorkerGroup::on(const Exited& exited) {
  if (!ours(exited.generation)) return;
  for (const WorkerExit& exit : exited.exits) {
    if (worker(exit.local_rank).phase == WorkerPhase::abandoned) continue;
    DISTRUN_CHECK(worker(exit.local_rank).phase == WorkerPhase::alive);
    record_end(exit.local_rank, exit.status);
  }
}

void WorkerGroup::on(const LeftoversGone& gone) {
  if (!ours(gone.generation) || state_.phase != GroupPhase::stopping) return;
  // An answer to an older request looked at a time when a worker could still fork.
  if (state_.last_look && gone.request == state_.leftovers_request) state_.leftovers_gone = true;
}

void WorkerGroup::on(const Tick&) {
  if (state_.kill_at && now_ >= *state_.kill_at) {
    kill();
  } else if (state_.give_up_at && now_ >= *state_.give_up_at) {
    give_up();
  }
}

// ---- changes of phase --------------------------------------------------------------------------

void WorkerGroup::settle() {
  switch (state_.phase) {
    case GroupPhase::idle:
    case GroupPhase::stopped:
      return;
    case GroupPhase::starting:
      if (state_.first_failure) {
        begin_stop(SIGTERM);
      } else if (any(WorkerPhase::waiting)) {
        if (!any(WorkerPhase::spawning)) spawn_next();
        return;
      } else if (any(WorkerPhase::spawning)) {
        return;
      } else {
        enter(GroupPhase::running);
      }
      return settle();
    case GroupPhase::running:
      if (!all_gone() && (!state_.first_failure || holding())) return;
      begin_stop(SIGTERM);
      return settle();
    case GroupPhase::stopping:
      if (!all_gone()) return;
      if (state_.leftovers_gone) {
        enter(GroupPhase::stopped);
      } else if (!state_.last_look) {
        stop_leftovers(state_.killing ? SIGKILL : state_.stop_signo);
      }
      return;
  }
}

void WorkerGroup::enter(GroupPhase next) {
  DISTRUN_CHECK(std::count(kGroupEdges.begin(), kGroupEdges.end(), std::pair(state_.phase, next)) ==
                1);
  state_.phase = next;
  switch (next) {
    case GroupPhase::idle:
    case GroupPhase::running:
      return;
    case GroupPhase::starting:
      state_.started_at = now_;
      return;
    case GroupPhase::stopping:
      state_.hold_until.reset();
      state_.kill_at = now_ + limits_.grace;
      return;
    case GroupPhase::stopped:
      state_.kill_at.reset();
      state_.give_up_at.reset();
      out_.emplace_back(Ended{verdict()});
      return;
  }
}

// ---- actions -----------------------------------------------------------------------------------

void WorkerGroup::spawn_next() {
  for (int i = 0; i < limits_.nproc; ++i) {
    Worker& w = worker(LocalRank{i});
    if (w.phase != WorkerPhase::waiting) continue;
    w.phase = WorkerPhase::spawning;
    out_.emplace_back(Spawn{limits_.generation, LocalRank{i}});
    return;
  }
}

void WorkerGroup::record_end(LocalRank local_rank, const ExitStatus& status) {
  Worker& w = worker(local_rank);
  w.phase = WorkerPhase::gone;
  Ending end{local_rank, rank(local_rank), w.pid, status, Part::victim, now_};
  if (w.signalled != 0 || state_.phase == GroupPhase::stopping) {
    end.part = Part::stopped;
  } else if (succeeded(status)) {
    end.part = Part::succeeded;
  } else if (!state_.first_failure) {
    end.part = Part::first_failure;
  }
  state_.ends.push_back(end);

  const std::string name = name_of(end.rank, local_rank, end.pid);
  switch (end.part) {
    case Part::succeeded:
    case Part::stopped:
      say(Severity::debug, name + ": " + to_text(status));
      break;
    case Part::victim:
      say(Severity::warning, name + ": " + to_text(status) + ", after the first failure");
      break;
    case Part::first_failure:
      say(Severity::error, name + ": " + to_text(status));
      state_.first_failure = end;
      out_.emplace_back(FirstFailure{end});
      break;
  }
  hold_or_not(end);
}

// Whether an early failure may be one of all: see GroupState::hold_until.
void WorkerGroup::hold_or_not(const Ending& end) {
  const bool like_a_typo = !succeeded(end.status) && by_itself(end.status);
  if (!like_a_typo) {
    state_.hold_until.reset();  // somebody fared otherwise: they do not all fail alike
    return;
  }
  const bool all_failed = state_.ends.front().part == Part::first_failure;
  if (end.part != Part::first_failure || !all_failed) return;
  if (!limits_.first_attempt || state_.phase != GroupPhase::running) return;
  const Duration lived = now_ - *state_.started_at;
  if (lived >= kStartup || all_gone()) return;
  state_.hold_until = *state_.started_at + std::min(kStartup, lived + std::max(lived, kHoldMin));
}

void WorkerGroup::begin_stop(int signo) {
  enter(GroupPhase::stopping);
  state_.stop_signo = signo;
  const auto alive = std::count_if(state_.workers.begin(), state_.workers.end(),
                                   [](const Worker& w) { return w.phase == WorkerPhase::alive; });
  if (alive == 0) return;
  say(Severity::info, "stopping " + workers_text(alive) + " with " + signal_name(signo) +
                          "; SIGKILL follows in " + duration_text(limits_.grace));
  for (int i = 0; i < limits_.nproc; ++i) signal(LocalRank{i}, signo);
}

void WorkerGroup::signal(LocalRank local_rank, int signo) {
  Worker& w = worker(local_rank);
  if (w.phase != WorkerPhase::alive) return;
  w.signalled = signo;
  out_.emplace_back(Signal{limits_.generation, local_rank, signo, Target::group});
}

void WorkerGroup::kill() {
  state_.killing = true;
  state_.kill_at.reset();
  state_.give_up_at = now_ + limits_.patience;
  const std::string why = state_.escalated ? " gets SIGKILL"
                                           : " is still there " + duration_text(limits_.grace) +
                                                 " after it was told to stop: SIGKILL";
  for (int i = 0; i < limits_.nproc; ++i) {
    const Worker& w = worker(LocalRank{i});
    if (w.phase != WorkerPhase::alive) continue;
    say(Severity::warning, name_of(rank(LocalRank{i}), LocalRank{i}, w.pid) + why);
    signal(LocalRank{i}, SIGKILL);
  }
  if (all_gone()) {
    say(Severity::warning, "what the workers left behind" + why);
  }
  stop_leftovers(SIGKILL);
}

void WorkerGroup::stop_leftovers(int signo) {
  state_.last_look = all_gone();
  StopLeftovers request{limits_.generation, ++state_.leftovers_request, signo, {}};
  for (int i = 0; i < limits_.nproc && signo != SIGKILL; ++i) {
    if (worker(LocalRank{i}).signalled != 0) request.told.push_back(LocalRank{i});
  }
  out_.emplace_back(std::move(request));
}

void WorkerGroup::give_up() {
  const std::string why = " cannot be killed: stuck in the kernel for " +
                          duration_text(limits_.patience) + "; abandoned";
  const bool workers_gone = all_gone();
  for (int i = 0; i < limits_.nproc; ++i) {
    Worker& w = worker(LocalRank{i});
    if (w.phase != WorkerPhase::alive && w.phase != WorkerPhase::spawning) continue;
    w.phase = WorkerPhase::abandoned;
    say(Severity::error, name_of(rank(LocalRank{i}), LocalRank{i}, w.pid) + why);
  }
  if (workers_gone) say(Severity::error, "what the workers left behind" + why);
  enter(GroupPhase::stopped);
}

// ---- questions ---------------------------------------------------------------------------------

GroupVerdict WorkerGroup::verdict() const {
  GroupVerdict verdict;
  verdict.generation = limits_.generation;
  verdict.first_failure = state_.first_failure;
  verdict.ends = state_.ends;
  verdict.leftovers_abandoned = !state_.leftovers_gone;
  for (int i = 0; i < limits_.nproc; ++i) {
    const Worker& w = state_.workers[static_cast<std::size_t>(i)];
    if (w.phase != WorkerPhase::abandoned) continue;
    verdict.abandoned.push_back({LocalRank{i}, rank(LocalRank{i}), w.pid});
  }

  const bool all_ended = std::ssize(state_.ends) == limits_.nproc;
  const auto all = [&](auto is) {
    return all_ended && std::all_of(state_.ends.begin(), state_.ends.end(), is);
  };
  if (state_.first_failure) {
    verdict.result = GroupResult::failed;
    const auto failed_early = [&](const Ending& end) {
      return end.part != Part::succeeded && end.part != Part::stopped && by_itself(end.status) &&
             end.at - *state_.started_at < kStartup;
    };
    const auto* never = std::get_if<NeverStarted>(&state_.first_failure->status);
    verdict.failed_at_start =
        (never != nullptr && !may_pass(*never)) || (limits_.first_attempt && all(failed_early));
  } else if (all([](const Ending& end) { return end.part == Part::succeeded; })) {
    verdict.result = GroupResult::succeeded;
  } else {
    verdict.result = GroupResult::stopped;
  }
  return verdict;
}

bool WorkerGroup::in_work() const {
  return state_.phase == GroupPhase::starting || state_.phase == GroupPhase::running;
}

bool WorkerGroup::holding() const {
  return state_.hold_until && now_ < *state_.hold_until;
}

bool WorkerGroup::any(WorkerPhase phase) const {
  return std::any_of(state_.workers.begin(), state_.workers.end(),
                     [phase](const Worker& w) { return w.phase == phase; });
}

bool WorkerGroup::all_gone() const {
  return !any(WorkerPhase::alive) && !any(WorkerPhase::spawning);
}

Worker& WorkerGroup::worker(LocalRank local_rank) {
  DISTRUN_CHECK(local_rank.value >= 0 && local_rank.value < limits_.nproc);
  return state_.workers[static_cast<std::size_t>(local_rank.value)];
}

Rank WorkerGroup::rank(LocalRank local_rank) const {
  return Rank{limits_.base_rank.value + local_rank.value};
}

void WorkerGroup::say(Severity severity, std::string text) {
  out_.emplace_back(Say{severity, std::move(text)});
}

}  // namespace distrun::agent
