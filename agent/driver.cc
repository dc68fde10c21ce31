#include "agent/driver.h"

#include "agent/outcome.h"
#include "agent/process/descendants.h"
#include "agent/process/spawn.h"
#include "runtime/base/log.h"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <cerrno>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#include <utility>

namespace distrun::agent {
namespace {

// Orphans are reaped in batches: they hold nothing but a number.
constexpr auto kOrphanPause = std::chrono::milliseconds(200);
constexpr auto kEndPatience = std::chrono::seconds(10);

}  // namespace

Driver::Driver(boost::asio::io_context& io, const Spec& spec, Output& output,
               RendezvousClient& rendezvous, FlightPlace flight)
    : io_(io),
      spec_(spec),
      output_(output),
      rendezvous_(rendezvous),
      core_(limits_of(spec)),
      timer_(io),
      watched_(io),
      flight_(std::move(flight)),
      leftovers_(io),
      orphan_timer_(io) {
  rendezvous_.on_answer([this](Event event) { feed(std::move(event)); });
}

void Driver::begin() {
  began_ = Clock::now();
  feed(Begin{});
}

void Driver::feed(Event event) {
  // Deaths seen before this event come before it: else a victim would pass for one that we stopped.
  take_exits();
  inbox_.push_back(std::move(event));
  run_inbox();
}

void Driver::run_inbox() {
  if (busy_) return;  // an effect fed us: the loop below will come to it
  busy_ = true;
  while (!inbox_.empty()) {
    const Event next = std::move(inbox_.front());
    inbox_.pop_front();
    for (const Effect& effect : core_.handle(next, Clock::now())) {
      std::visit([this](const auto& e) { apply(e); }, effect);
    }
  }
  busy_ = false;
  rearm();
}

void Driver::rearm() {
  const std::optional<TimePoint> deadline = core_.next_deadline();
  if (deadline == armed_for_) return;
  armed_for_ = deadline;
  if (!deadline) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(*deadline);
  timer_.async_wait([this](const boost::system::error_code& ec) {
    if (ec) return;
    armed_for_.reset();
    feed(Tick{});
  });
}

void Driver::apply(const Join& effect) {
  // A console that takes nothing holds up the next round as it would hold up workers that write to
  // it themselves; else each round would add to what waits.  A success is told at once: it may be
  // the job's, and others wait for it.
  const bool success = effect.ended && effect.ended->result == GroupResult::succeeded;
  if (success || output_.drained()) return join(effect);
  output_.when_drained([this, effect] {
    if (core_.phase() == AgentPhase::joining) join(effect);
  });
}

void Driver::join(const Join& effect) {
  std::string report;
  if (effect.ended && effect.ended->first_failure) {
    report = shortened(to_text(describe(*effect.ended)));
  }
  rendezvous_.join(effect, std::move(report));
}

void Driver::apply(const StartGroup& effect) {
  const Assignment& assignment = effect.assignment;
  generation_ = assignment.generation;
  base_rank_ = assignment.base_rank;
  workers_.clear();
  const auto opened = output_.open_round(assignment.restart_count);
  round_is_open_ = opened.has_value();
  if (!opened) log::error(opened.error().detail);
  if (flight_untold_) tell_flight();
  flight_summary_ = {};
  environment_.emplace(spec_, assignment, flight_.open_round(assignment, spec_.nproc));
}

void Driver::apply(const Spawn& effect) {
  const LocalRank local_rank = effect.local_rank;
  const auto failed = [&](ExecStage stage, int error) {
    feed(SpawnFailed{effect.generation, local_rank, stage, error});
  };
  if (!round_is_open_) return failed(ExecStage::log_file, 0);
  const auto streams = output_.open_streams(local_rank, Rank(base_rank_.value + local_rank.value));
  if (!streams) {
    log::error(streams.error().detail);
    return failed(ExecStage::log_file, 0);
  }
  const EnvBlock block = environment_->of(local_rank, streams->error_file);
  SpawnRequest request;
  request.executable = spec_.command.executable;
  request.argv = worker_arguments(spec_.command, local_rank);
  request.envp = block.envp();
  request.out = streams->out;
  request.err = streams->err;
  if (!spec_.cpus.empty()) request.cpus = spec_.cpus[static_cast<std::size_t>(local_rank.value)];
  const auto spawned = spawn(request, watched_.epoll());
  output_.close_child_ends(local_rank);
  if (!spawned) {
    const SpawnError& why = spawned.error();
    if (why.stage == ExecStage::exec) {
      const std::string more = explain_exec(request.executable, why.errno_value);
      if (!more.empty()) log::error(more);
    }
    return failed(why.stage, why.errno_value);
  }

  workers_[local_rank].child = std::make_unique<Child>(
      watched_, *spawned, [this, local_rank](ExitStatus status) { on_exit(local_rank, status); });
  if (!watching_oom_) {
    watching_oom_ = true;
    boost::asio::post(io_, [this] { oom_.start(); });  // after the last spawn, not before the first
  }
  feed(SpawnDone{effect.generation, local_rank, static_cast<int>(spawned->pid)});
}

void Driver::apply(const Signal& effect) {
  const auto worker = workers_.find(effect.local_rank);
  if (worker == workers_.end()) return;
  if (effect.signo == SIGKILL) worker->second.killed_by_us = true;
  worker->second.child->signal(effect.signo, effect.target);
}

void Driver::apply(const StopLeftovers& effect) {
  Leftovers::Request request;
  request.signo = effect.signo;
  for (const LocalRank local_rank : effect.told) {
    const auto worker = workers_.find(local_rank);
    if (worker != workers_.end()) request.told.push_back(worker->second.child->pid());
  }
  const LeftoversGone answer{effect.generation, effect.request};
  leftovers_.stop(
      std::move(request), [this] { return living_workers(); }, [this, answer] { feed(answer); });
}

void Driver::apply(const GroupEnded& effect) {
  leftovers_.cancel();
  // Nothing of the round is alive, so what its pipes hold now is all there will ever be.
  output_.close_round();
  flight_summary_ = flight_.close_round(effect.verdict, output_.round_folder());
  for (const std::string& problem : flight_summary_.problems) {
    log::warn("flight record: " + problem);
  }
  // Those of a failure are in its report, unless the job goes on.
  flight_untold_ = effect.verdict.result == GroupResult::failed;
  if (!flight_untold_) tell_flight();
}

void Driver::tell_flight() {
  flight_untold_ = false;
  for (const std::string& line : flight_summary_.lines) log::info("flight record: " + line);
}

void Driver::apply(const Say& effect) {
  switch (effect.severity) {
    case Severity::debug:
      return log::debug(effect.text);
    case Severity::info:
      return log::info(effect.text);
    case Severity::warning:
      return log::warn(effect.text);
    case Severity::error:
      return log::error(effect.text);
  }
}

void Driver::apply(const Finish& effect) {
  verdict_ = effect.verdict;
  // The report is another node's.
  if (flight_untold_ && !verdict_->first_failure) tell_flight();
  leftovers_.cancel();
  io_.stop();
}

void Driver::on_exit(LocalRank local_rank, ExitStatus status) {
  if (auto* killed = std::get_if<KilledBy>(&status); killed != nullptr) {
    RunningWorker& worker = workers_.at(local_rank);
    if (killed->signo == SIGKILL && !worker.killed_by_us) {
      killed->oom_killed = oom_.killed(worker.child->pid());
    }
  }
  output_.worker_exited(local_rank);
  exits_.push_back({local_rank, status});
  // All deaths that this turn of the loop has found go to the core as one event.
  if (exits_.size() == 1) {
    boost::asio::post(io_, [this] {
      take_exits();
      run_inbox();
    });
  }
}

void Driver::take_exits() {
  if (exits_.empty()) return;
  inbox_.push_back(Exited{generation_, std::move(exits_)});
  exits_.clear();
}

void Driver::child_ended() {
  if (orphans_due_) return;
  orphans_due_ = true;
  orphan_timer_.expires_after(kOrphanPause);
  orphan_timer_.async_wait([this](const boost::system::error_code& ec) {
    orphans_due_ = false;
    if (!ec) reap_orphans(living_workers());
  });
}

void Driver::end_everything() {
  const TimePoint deadline = Clock::now() + kEndPatience;
  do {
    if (kill_descendants().empty()) break;
    reap_orphans();
    const timespec pause{0, 1'000'000};
    ::nanosleep(&pause, nullptr);
  } while (Clock::now() < deadline);
}

std::vector<pid_t> Driver::living_workers() const {
  std::vector<pid_t> pids;
  for (const auto& [local_rank, worker] : workers_) {
    if (worker.child->running()) pids.push_back(worker.child->pid());
  }
  return pids;
}

WorkerEnd Driver::describe(const Ending& ending) const {
  WorkerEnd end;
  end.part = ending.part;
  end.rank = ending.rank;
  end.local_rank = ending.local_rank;
  end.host = spec_.host_name;
  end.pid = ending.pid;
  end.status = ending.status;
  end.ended =
      std::chrono::system_clock::now() -
      std::chrono::duration_cast<std::chrono::system_clock::duration>(Clock::now() - ending.at);
  end.error_file = output_.error_file(ending.local_rank);
  if (!end.error_file.empty()) end.error = read_error_file(end.error_file);
  end.last_err = output_.last_lines(ending.local_rank, Output::Stream::err);
  end.last_out = output_.last_lines(ending.local_rank, Output::Stream::out);
  end.err_log = output_.log_file(ending.local_rank, Output::Stream::err);
  end.out_log = output_.log_file(ending.local_rank, Output::Stream::out);
  return end;
}

FailureReport Driver::describe(const GroupVerdict& ended) const {
  FailureReport report;
  report.name = spec_.command.display_name;
  for (const Ending& ending : ended.ends) {
    if (ending.part == Part::succeeded) continue;
    report.ends.push_back(describe(ending));
  }
  report.flight = flight_summary_.lines;
  report.flight_folder = flight_summary_.kept;
  return report;
}

std::optional<FailureReport> Driver::failure_report() const {
  if (!verdict_ || !verdict_->first_failure || !verdict_->last_group) return std::nullopt;
  return describe(*verdict_->last_group);
}

Progress Driver::progress() const {
  Progress progress;
  switch (core_.phase()) {
    case AgentPhase::idle:
    case AgentPhase::joining:
    case AgentPhase::launching:
      progress.phase = Progress::Phase::starting;
      break;
    case AgentPhase::working:
      progress.phase = Progress::Phase::running;
      break;
    case AgentPhase::draining:
    case AgentPhase::done:
      progress.phase = Progress::Phase::stopping;
      break;
  }
  progress.workers = static_cast<int>(living_workers().size());
  progress.nproc = spec_.nproc;
  progress.round = generation_.value;
  progress.elapsed = Clock::now() - began_;
  progress.restarts = core_.restarts();
  progress.max_restarts = spec_.max_restarts;
  return progress;
}

}  // namespace distrun::agent
