#include "tests/sim/world.h"

#include "agent/core/invariants.h"
#include "tests/sim/transcript.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>

namespace distrun::sim {

using namespace agent;
using namespace std::chrono_literals;

namespace {

constexpr TimePoint kEpoch{1h};
constexpr Duration kHorizon = 90s;  // then the operator ends what still runs
constexpr Duration kSlack = 100ms;  // of the world's own delays
constexpr int kStepsMax = 20'000;
constexpr std::size_t kTailMax = 50;

constexpr std::string_view kEnds =
    "the job ends within grace and patience of the operator's signal";
constexpr std::string_view kFinal = "the operator's second order is final";
constexpr std::string_view kDrains = "a round that stops has stopped within grace and patience";
constexpr std::string_view kTicks = "a deadline that has come is dealt with";
constexpr std::string_view kOneRound = "no process of an older round is alive when a worker starts";
constexpr std::string_view kOnce = "a worker is spawned once a round";
constexpr std::string_view kOwnPid = "no signal goes to a process that was reaped";
constexpr std::string_view kJobDead = "a job that is done leaves nobody alive but the given up";
constexpr std::string_view kCause = "the reported failure is the one that came first";
constexpr std::string_view kParts = "each end is called what it was";
constexpr std::string_view kNotice =
    "a notice reaches every living worker once, and no child of it";
constexpr std::string_view kToldOnce = "a stop signal reaches each process once";
constexpr std::string_view kVerdict =
    "a job succeeds or fails by the word of the rendezvous, unless something is still there";
constexpr std::string_view kOwnFailure =
    "a change of membership does not end a round that has failed here";
// Of the world itself: it must come to an end.
constexpr std::string_view kSteps = "the world runs away";

constexpr std::array kSentences = {kEnds,   kFinal,    kDrains,  kTicks,     kOneRound,
                                   kOnce,   kOwnPid,   kJobDead, kCause,     kParts,
                                   kNotice, kToldOnce, kVerdict, kOwnFailure};

bool is_order(int signo) {
  return signo == SIGINT || signo == SIGTERM;
}

}  // namespace

std::vector<std::string_view> world_sentences() {
  return {kSentences.begin(), kSentences.end()};
}

World::World(std::uint64_t seed, Coverage& coverage)
    : random_(seed),
      faults_(draw_faults(random_)),
      limits_(draw_limits(random_)),
      typo_(chance(random_, faults_.typo)),
      coverage_(coverage),
      agent_(limits_),
      budget_(draw_budget(random_)),
      processes_(
          faults_, random_,
          [this](Duration after, std::function<void()> action) { later(after, std::move(action)); },
          {[this](const Process& process) { on_death(process); }}),
      now_(kEpoch) {}

std::string World::run() {
  if (faults_.stop_before_begin) later(0s, [this] { stop(SIGTERM); });
  later(1ms, [this] {
    if (agent_.phase() == AgentPhase::idle) feed(Begin{});
  });
  constexpr std::array kStops = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTERM, SIGINT};
  // Half of the operators are impatient: their signals come close together.
  Duration at = millis(random_, 1, chance(random_, 0.5) ? 200 : 30000);
  for (int i = 0; i < faults_.stops; ++i) {
    later(at, [this, signo = kStops[static_cast<std::size_t>(between(random_, 0, 5))]] {
      stop(signo);
    });
    at += millis(random_, 0, chance(random_, 0.5) ? 50 : 10000);
  }
  constexpr std::array kNotices = {SIGUSR1, SIGUSR2, SIGCONT};
  for (int i = 0; i < faults_.notices; ++i) {
    later(millis(random_, 1, 20000), [this, kNotices] {
      feed(NoticeSignal{kNotices[static_cast<std::size_t>(between(random_, 0, 2))]});
    });
  }
  if (chance(random_, faults_.job_over)) end_job_later(millis(random_, 0, 20000));
  if (chance(random_, faults_.given_up)) {
    later(millis(random_, 0, 20000), [this] {
      feed(RoundFailed{RoundError::closed, "the rendezvous is gone"});
    });
  }
  later(kHorizon, [this] { stop(SIGTERM); });

  while (!queue_.empty() && broken_.empty()) {
    const Entry entry = queue_.top();
    queue_.pop();
    now_ = entry.at;
    entry.action();
    require(!done_by_ || now_ <= *done_by_ || agent_.phase() == AgentPhase::done, kEnds);
    require(!drained_by_ || now_ <= *drained_by_, kDrains);
    require(steps_ < kStepsMax, kSteps);
  }
  require(agent_.phase() == AgentPhase::done, kSteps);
  return broken_;
}

std::string World::tail() const {
  std::string text;
  for (const std::string& line : tail_) text += line + "\n";
  return text;
}

void World::later(Duration after, std::function<void()> action) {
  queue_.push({now_ + after, sequence_++, std::move(action)});
}

void World::note(std::string line) {
  std::array<char, 32> stamp;
  const double seconds = std::chrono::duration<double>(now_ - kEpoch).count();
  std::snprintf(stamp.data(), stamp.size(), "%9.4f  ", seconds);
  line.insert(0, stamp.data());
  for (const char c : line) {
    fingerprint_ = (fingerprint_ ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  tail_.push_back(std::move(line));
  if (tail_.size() > kTailMax) tail_.pop_front();
}

void World::require(bool holds, std::string_view sentence) {
  if (!holds && broken_.empty()) broken_ = sentence;
}

// ---- one event ---------------------------------------------------------------------------------

void World::feed(const Event& event) {
  if (!broken_.empty()) return;
  ++steps_;
  ++coverage_.events;
  const AgentState before = agent_.state();
  note("> " + to_line(event));
  const Effects effects = agent_.handle(event, now_);
  const AgentState after = agent_.state();
  for (const Effect& effect : effects) note("    " + to_line(effect));
  check_step(event, before, after, effects);
  if (!broken_.empty()) return;
  cover(before, after);
  for (const Effect& effect : effects) {
    std::visit([this](const auto& e) { apply(e); }, effect);
  }

  const auto deadline = agent_.next_deadline();
  if (deadline && deadline != armed_) {
    later(std::max(*deadline - now_, Duration{}) + micros(random_, 0, 500),
          [this] { feed(Tick{}); });
  }
  armed_ = deadline;
}

void World::check_step(const Event& event, const AgentState& before, const AgentState& after,
                       const Effects& effects) {
  if (broken_.empty()) broken_ = broken_step(before, after, effects, now_);
  if (broken_.empty()) broken_ = broken_invariant(after, limits_);
  check_deadlines(event, before, after);
  if (std::holds_alternative<Disband>(event)) {
    require(!before.group.first_failure || before == after, kOwnFailure);
  }

  const auto* notice = std::get_if<NoticeSignal>(&event);
  if (!notice) return;
  // Living as far as the core can know.
  std::set<int> reached;
  for (const Effect& effect : effects) {
    if (const auto* signal = std::get_if<Signal>(&effect)) {
      require(signal->signo == notice->signo && signal->target == Target::process, kNotice);
      require(reached.insert(signal->local_rank.value).second, kNotice);
    }
  }
  const auto living = std::count_if(before.group.workers.begin(), before.group.workers.end(),
                                    [](const Worker& w) { return w.phase == WorkerPhase::alive; });
  require(before.phase == AgentPhase::done || std::ssize(reached) == living, kNotice);
}

void World::check_deadlines(const Event& event, const AgentState& before, const AgentState& after) {
  if (std::holds_alternative<Tick>(event) && agent_.next_deadline()) {
    // Zero grace, zero wait: what a tick sets may be due at once, what it was sent for may not.
    require(*agent_.next_deadline() > now_ || before != after, kTicks);
  }
  const bool draining = after.phase == AgentPhase::draining;
  if (!draining) {
    drained_by_.reset();
  } else if (before.phase != AgentPhase::draining) {
    drained_by_ = now_ + limits_.grace + limits_.patience + kSlack;
  }
  if (const auto* stop = std::get_if<StopRequested>(&event)) {
    if (!done_by_) done_by_ = now_ + limits_.grace + limits_.patience + kLastWord + kSlack;
    if (is_order(stop->signo) && ++orders_ == 2) {
      done_by_ = std::min(*done_by_, now_ + limits_.patience + kLastWord + kSlack);
      require(after.phase == AgentPhase::done || after.group.killing, kFinal);
    }
  }
}

void World::cover(const AgentState& before, const AgentState& after) {
  if (before.phase != after.phase) coverage_.agent_edges.insert({before.phase, after.phase});
  const bool fresh = before.groups_started != after.groups_started;
  const GroupPhase from = fresh ? GroupPhase::idle : before.group.phase;
  if (from != after.group.phase) coverage_.group_edges.insert({from, after.group.phase});
  if (after.group.hold_until) seen("a failure is held back");
  if (before.answer_by && after.verdict) {
    seen(after.verdict->result == JobResult::interrupted ? "the last word is not answered"
                                                         : "the last word is answered");
  }
}

// ---- what the core wants -----------------------------------------------------------------------

void World::apply(const Join& join) {
  if (!join.ended) return give_place();
  decide(*join.ended);
}

// As the rendezvous of several nodes would, of which the others are made up.
void World::decide(const GroupVerdict& ended) {
  const bool remains = !ended.abandoned.empty() || ended.leftovers_abandoned;
  // A rendezvous that does not care starts the next round all the same.
  const bool careless = chance(random_, remains ? 0.6 : 0.2);
  const bool fails_elsewhere = chance(random_, faults_.others);
  if (ended.result == GroupResult::stopped && !remains && !fails_elsewhere) return give_place();
  JobOver over{JobResult::succeeded, 0, "all workers exited with status 0", budget_.spent(), {}};
  if (ended.result != GroupResult::succeeded || fails_elsewhere) {
    const bool blind = ended.failed_at_start && !careless;
    const auto refusal = budget_.refusal(now_);
    if ((!remains || careless) && !blind && !refusal) {
      if (ended.result != GroupResult::stopped || fails_elsewhere) budget_.spend(now_);
      return give_place();
    }
    over.result = JobResult::failed;
    over.exit_code = ended.first_failure ? process_exit_code(ended.first_failure->status) : 1;
    over.why = "not restarted: " + refusal.value_or("the simulation says so");
    if (fails_elsewhere) over.report = "rank 99 on another node";
  }
  // The others may need long to end.
  const bool slow = chance(random_, faults_.others);
  later(slow ? millis(random_, 0, 5000) : micros(random_, 100, 5000),
        [this, over] { end_job(over); });
}

void World::end_job_later(Duration after) {
  const bool well = chance(random_, 0.2);
  const std::string report = chance(random_, 0.5) ? "rank 99 on another node" : "";
  const JobOver over{well ? JobResult::succeeded : JobResult::failed, between(random_, 0, 255),
                     "the simulation says so", between(random_, 0, 3), well ? "" : report};
  later(after, [this, over] { end_job(over); });
}

void World::end_job(const JobOver& over) {
  if (agent_.phase() != AgentPhase::done && !over_) over_ = over;
  if (agent_.phase() == AgentPhase::launching || agent_.phase() == AgentPhase::working ||
      agent_.phase() == AgentPhase::draining) {
    seen("the job is over while " + std::string(to_string(agent_.phase())));
  }
  feed(over);
}

void World::give_place() {
  const bool slow = chance(random_, 0.2);
  const Duration after = slow ? millis(random_, 0, 5000) : micros(random_, 100, 5000);
  if (chance(random_, faults_.round_fails)) {
    constexpr std::array kErrors = {RoundError::timed_out, RoundError::closed, RoundError::refused,
                                    RoundError::no_store};
    const RoundError error = kErrors[static_cast<std::size_t>(between(random_, 0, 3))];
    later(after, [this, error] { feed(RoundFailed{error, "the simulation says so"}); });
    return;
  }
  // A word about an older round comes late.
  if (next_generation_ > 0 && chance(random_, 0.1)) {
    Assignment stale;
    stale.generation = Generation{next_generation_ - 1};
    later(after / 2, [this, stale] { feed(Welcome{stale}); });
  }
  Assignment assignment;
  next_generation_ += chance(random_, 0.1) ? 2 : 1;
  assignment.generation = Generation{next_generation_ - 1};
  assignment.node_count = between(random_, 1, 3);
  assignment.node_rank = NodeRank{between(random_, 0, assignment.node_count - 1)};
  assignment.base_rank = Rank{assignment.node_rank.value * limits_.nproc};
  assignment.world_size = assignment.node_count * limits_.nproc;
  assignment.restart_count = budget_.spent();
  later(after, [this, assignment] { feed(Welcome{assignment}); });
  if (chance(random_, faults_.job_over / 5)) end_job_later(after + micros(random_, 0, 3000));
  if (chance(random_, faults_.disband)) {
    later(after + millis(random_, 0, 3000), [this, generation = assignment.generation] {
      feed(Disband{generation, "a node joined"});
    });
  }
}

void World::apply(const Spawn& spawn) {
  for (const Process* process : processes_.alive()) {
    require(process->generation == spawn.generation, kOneRound);
  }
  const int local_rank = spawn.local_rank.value;
  require(spawned_.insert({spawn.generation.value, local_rank}).second, kOnce);
  if (chance(random_, faults_.spawn_hangs)) return seen("a spawn never answers");

  const Duration after =
      chance(random_, faults_.spawn_slow) ? millis(random_, 0, 500) : micros(random_, 200, 600);
  if (chance(random_, faults_.spawn_fails)) {
    SpawnFailed failed{
        spawn.generation, spawn.local_rank,
        static_cast<ExecStage>(between(random_, 0, static_cast<int>(ExecStage::exec))),
        chance(random_, 0.5) ? ENOENT : EAGAIN};
    later(after, [this, failed] {
      seen("a spawn fails: " + std::string(to_string(failed.stage)));
      feed(failed);
    });
    return;
  }
  later(after, [this, spawn, local_rank] {
    const Process& process = processes_.add_worker(spawn.generation, local_rank, typo_);
    feed(SpawnDone{spawn.generation, spawn.local_rank, process.pid});
  });
}

void World::apply(const Signal& signal) {
  Process* process = processes_.worker(signal.generation, signal.local_rank.value);
  require(process && !process->reported, kOwnPid);
  if (!process || process->reported) return;
  if (signal.target == Target::process) return processes_.signal_process(*process, signal.signo);
  require(signal.signo == SIGKILL || !process->told, kToldOnce);
  processes_.signal_group(signal.generation, signal.local_rank.value, signal.signo);
}

void World::apply(const StopLeftovers& request) {
  asked_ = request.generation.value;
  request_ = request.request;
  if (request.signo == SIGKILL) processes_.keep_killing(request.generation);
  for (Process* leftover : processes_.leftovers(request.generation)) {
    if (request.signo == SIGKILL) {
      processes_.signal_process(*leftover, SIGKILL);
      continue;
    }
    const bool in_told_group =
        !leftover->own_group &&
        std::count(request.told.begin(), request.told.end(), LocalRank{leftover->local_rank}) > 0;
    if (in_told_group) continue;
    require(!leftover->told, kToldOnce);
    processes_.signal_process(*leftover, request.signo);
  }
  answer_if_no_leftovers(request.generation);
}

void World::apply(const Report& report) {
  // Told to the other nodes, it ends the round for all of them, this one included.
  if (chance(random_, 0.5)) {
    later(micros(random_, 100, 5000), [this, generation = report.generation] {
      feed(Disband{generation, "a worker failed"});
    });
  }
  if (std::holds_alternative<NeverStarted>(report.failure.status)) return;
  const auto& failures = truth_[report.generation.value];
  require(!failures.empty() && failures.front()->pid == report.failure.pid, kCause);
}

void World::apply(const GroupEnded& ended) {
  const GroupVerdict& verdict = ended.verdict;
  if (!verdict.abandoned.empty()) seen("a worker is abandoned");
  if (verdict.leftovers_abandoned && verdict.abandoned.empty()) seen("leftovers are abandoned");
  if (verdict.failed_at_start) seen("a start fails");
  for (const Ending& end : verdict.ends) {
    seen("a worker is called " + std::string(to_string(end.part)));
    const Process* process = processes_.worker(verdict.generation, end.local_rank.value);
    if (!process) continue;  // never started
    const auto& failures = truth_[verdict.generation.value];
    const bool first = !failures.empty() && failures.front() == process;
    const Part part = process->told                ? Part::stopped
                      : succeeded(process->status) ? Part::succeeded
                      : first                      ? Part::first_failure
                                                   : Part::victim;
    require(end.status == process->status, kParts);
    // After a spawn that failed even the first death is a victim's.
    const bool after_spawn = verdict.first_failure && verdict.first_failure->pid == 0;
    require(end.part == part || (after_spawn && first && end.part == Part::victim), kParts);
  }
}

void World::apply(const Finish& finish) {
  const auto& last = finish.verdict.last_group;
  const bool given_up = last && (!last->abandoned.empty() || last->leftovers_abandoned);
  for (int generation = 0; generation < next_generation_; ++generation) {
    require_dead(Generation{generation}, given_up);
  }
  const JobVerdict& verdict = finish.verdict;
  if (verdict.result == JobResult::succeeded || verdict.result == JobResult::failed) {
    require(over_ ? verdict.result == over_->result && verdict.why == over_->why &&
                        verdict.restarts == over_->restarts
                  : given_up,
            kVerdict);
    if (!verdict.report.empty()) seen("the first failure was on another node");
    if (!over_) seen("a round beside what is still there is not started");
  }
  switch (finish.verdict.result) {
    case JobResult::succeeded:
      return seen(finish.verdict.restarts > 0 ? "success after a restart" : "success");
    case JobResult::failed:
      return seen(finish.verdict.restarts > 0 ? "failure after a restart" : "failure");
    case JobResult::interrupted:
      return seen("interrupted");
    case JobResult::no_round:
      return seen("no round");
  }
}

// Alive may be only what got SIGKILL, would not die of it, and is said to be given up.
void World::require_dead(Generation generation, bool given_up) {
  for (const Process* process : processes_.alive()) {
    if (process->generation != generation) continue;
    require(given_up && process->kill_sent && process->stuck, kJobDead);
  }
}

// ---- what happens ------------------------------------------------------------------------------

void World::on_death(const Process& process) {
  if (!process.worker) return answer_if_no_leftovers(process.generation);
  later(micros(random_, 0, 2000), [this, generation = process.generation] { look(generation); });
}

void World::look(Generation generation) {
  Exited exited{generation, {}};
  for (const Process* process : processes_.reap(generation)) {
    if (!process->told && !succeeded(process->status)) {
      truth_[generation.value].push_back(process);
    }
    exited.exits.push_back({LocalRank{process->local_rank}, process->status});
  }
  if (!exited.exits.empty()) feed(exited);
}

void World::answer_if_no_leftovers(Generation generation) {
  if (asked_ != generation.value || !processes_.leftovers(generation).empty()) return;
  later(micros(random_, 0, 1000),
        [this, gone = LeftoversGone{generation, request_}] { feed(gone); });
}

void World::stop(int signo) {
  feed(StopRequested{signo});
}

}  // namespace distrun::sim
