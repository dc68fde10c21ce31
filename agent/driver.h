// Driver: runs the Agent core on real processes, timers, signals and a rendezvous.
//
// Feeds events in, carries effects out, decides nothing.  One inbox, never recursive, one time per
// event, and one timer that the core is asked for, so that no deadline can be forgotten.
#pragma once

#include "agent/core/agent.h"
#include "agent/core/worker_env.h"
#include "agent/failure_report.h"
#include "agent/leftovers.h"
#include "agent/process/child.h"
#include "agent/process/flight_records.h"
#include "agent/process/oom.h"
#include "agent/process/output.h"
#include "agent/progress.h"
#include "agent/rendezvous_client.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <csignal>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace distrun::agent {

class Driver {
 public:
  // All references outlive the driver.
  Driver(boost::asio::io_context& io, const Spec& spec, Output& output,
         RendezvousClient& rendezvous, FlightPlace flight);

  void begin();
  // Out of Signals.
  void stop(int signo) { feed(StopRequested{signo}); }
  void stop_for_nobody() { feed(StopRequested{SIGTERM, false}); }
  void notice(int signo) { feed(NoticeSignal{signo}); }
  void child_ended();
  // The guard is dead: kills everything at once, without grace, and returns when it is gone.
  void end_everything();

  // Set once the core has finished; the io_context has been stopped then.
  const std::optional<JobVerdict>& verdict() const { return verdict_; }
  // The last round as the report wants it, if the job failed here; a failure on another node has
  // its report in the verdict.
  std::optional<FailureReport> failure_report() const;

  Progress progress() const;

  // The job's end; removes what of the flight records nobody asked for.
  void finish(bool failure_reported) { flight_.finish(failure_reported); }

 private:
  struct RunningWorker {
    std::unique_ptr<Child> child;
    bool killed_by_us = false;
  };

  void feed(Event event);
  void run_inbox();
  void rearm();

  void apply(const Join& effect);
  void apply(const Leave& effect) { rendezvous_.leave(effect); }
  void apply(const StartGroup& effect);
  void apply(const Spawn& effect);
  void apply(const Signal& effect);
  void apply(const StopLeftovers& effect);
  void apply(const Report& effect) { rendezvous_.report(effect); }
  void apply(const GroupEnded& effect);
  void tell_flight();
  void apply(const Say& effect);
  void apply(const Finish& effect);

  void on_exit(LocalRank local_rank, ExitStatus status);
  void take_exits();  // into the inbox
  std::vector<pid_t> living_workers() const;
  void join(const Join& effect);
  WorkerEnd describe(const Ending& ending) const;
  FailureReport describe(const GroupVerdict& ended) const;

  boost::asio::io_context& io_;
  const Spec& spec_;
  Output& output_;
  RendezvousClient& rendezvous_;

  Agent core_;
  std::deque<Event> inbox_;
  bool busy_ = false;
  boost::asio::steady_timer timer_;
  std::optional<TimePoint> armed_for_;

  Generation generation_;
  Rank base_rank_;
  std::optional<WorkerEnvironment> environment_;
  bool round_is_open_ = false;
  Exits watched_;
  std::map<LocalRank, RunningWorker> workers_;
  std::vector<WorkerExit> exits_;  // seen in this turn of the loop, in the kernel's order
  FlightRecords flight_;
  FlightSummary flight_summary_;  // of the last round that ended
  bool flight_untold_ = false;    // it was a failed one, whose report may never be shown
  Leftovers leftovers_;
  OomWatch oom_;
  bool watching_oom_ = false;
  boost::asio::steady_timer orphan_timer_;
  bool orphans_due_ = false;

  TimePoint began_{};
  std::optional<JobVerdict> verdict_;
};

}  // namespace distrun::agent
