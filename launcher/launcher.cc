#include "launcher/launcher.h"

#include "agent/driver.h"
#include "agent/failure_report.h"
#include "agent/local_rendezvous.h"
#include "agent/process/console.h"
#include "agent/process/guard.h"
#include "agent/process/output.h"
#include "agent/process/signals.h"
#include "agent/remote_rendezvous.h"
#include "launcher/exit_code.h"
#include "runtime/base/log.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>

namespace distrun::launcher {
namespace {

constexpr auto kProgressPause = std::chrono::seconds(1);
// For the last words to other nodes.
constexpr Duration kFarewell = std::chrono::seconds(5);
// For a reader that takes nothing, once the job was told to stop.
constexpr Duration kReaderPatience = std::chrono::seconds(5);

class Launcher {
 public:
  Launcher(const Job& job, const Environment& environment, const std::vector<int>& signals,
           int guard_fd, const StartingSide* side, const agent::FlightPlace& flight)
      : job_(job),
        environment_(environment),
        side_(side),
        console_(io_),
        output_(io_, job.spec, console_,
                job.inherit_console ? agent::ConsoleMode::inherit : agent::ConsoleMode::lines),
        remote_(job.nodes ? std::make_unique<agent::RemoteRendezvous>(io_, job.spec, *job.nodes)
                          : nullptr),
        local_(job.nodes ? nullptr : std::make_unique<agent::LocalRendezvous>(io_, job.spec)),
        driver_(io_, job.spec, output_,
                remote_ ? static_cast<agent::RendezvousClient&>(*remote_) : *local_, flight),
        signals_(io_, guard_fd, signals, job.spec.stop_signals,
                 {.stop = [this](int signo) { stop(signo); },
                  .notice = [this](int signo) { driver_.notice(signo); },
                  .child_ended = [this] { driver_.child_ended(); },
                  .guard_lost = [this] { die_with_the_guard(); }}),
        progress_timer_(io_) {}

  int run() {
    log::set_sink([this](std::string_view line) { write_own("log", line); });
    const int status = run_job();
    tell_the_others();
    console_.wind_up();
    const bool all_written = wait_for_the_reader() && !console_.lost_output();
    log::set_sink({});
    return all_written || status != kExitSuccess ? status : kExitSystem;
  }

 private:
  // What workers wrote is not ours to drop: as long as somebody holds the other end of our stdout
  // and stderr, it is waited for.  A stop signal says that nobody will read it.  One that came
  // while the job ran was for the job: whoever reads is given what there is, as long as it takes
  // some.
  bool wait_for_the_reader() {
    if (console_.empty() || nobody_reads_) return console_.empty();
    console_.on_empty([this] { io_.stop(); });
    io_.restart();
    if (!told_to_stop_) {
      io_.run();
      return console_.empty();
    }
    std::size_t waiting = console_.waiting();
    TimePoint until = Clock::now() + kReaderPatience;
    while (!io_.stopped() && Clock::now() < until) {
      io_.run_one_until(until);
      if (console_.waiting() >= waiting) continue;
      waiting = console_.waiting();
      until = Clock::now() + kReaderPatience;
    }
    return console_.empty();
  }

  // The other nodes hear how the job ended, those that this node's coordinator serves among them.
  void tell_the_others() {
    if (!remote_) return;
    const TimePoint deadline = Clock::now() + kFarewell;
    io_.restart();
    while (!remote_->idle() && Clock::now() < deadline && !io_.stopped()) {
      io_.run_one_for(std::chrono::milliseconds(20));
    }
    remote_->close();  // what follows may wait for whoever reads our output
  }

  void stop(int signo) {
    told_to_stop_ = true;
    if (!driver_.verdict()) return driver_.stop(signo);
    io_.stop();
  }

  // Log and report, told from workers' lines for who started us from elsewhere.
  void write_own(std::string_view kind, std::string_view lines) {
    console_.write_log(side_ == nullptr ? std::string(lines) : marked(side_->mark, kind, lines));
  }

  void watch_the_starting_side() {
    if (side_ == nullptr) return;
    write_own("running", "yes");
    starting_line_.emplace(
        io_, *side_,
        StartingLine::Handlers{.signal =
                                   [this](int signo) {
                                     const auto& stops = job_.spec.stop_signals;
                                     const bool stops_it = std::find(stops.begin(), stops.end(),
                                                                     signo) != stops.end();
                                     stops_it ? stop(signo) : driver_.notice(signo);
                                   },
                               .lost =
                                   [this](const std::string& why) {
                                     nobody_reads_ = true;
                                     log::warn(why + "; stopping as for SIGTERM");
                                     driver_.verdict() ? io_.stop() : driver_.stop_for_nobody();
                                   }});
  }

  int run_job() {
    if (const auto started = signals_.start(); !started) {
      log::error(started.error().detail);
      return kExitSystem;
    }
    watch_the_starting_side();
    show_progress();
    driver_.begin();
    io_.run();
    if (!driver_.verdict()) {
      log::error("the event loop ended before the job did; please report this");
      driver_.end_everything();
      return kExitInternal;
    }
    console_.set_status_line("");
    report();
    output_.finish(driver_.verdict()->first_failure.has_value());
    driver_.finish(driver_.verdict()->first_failure.has_value());
    return driver_.verdict()->exit_code;
  }

  void report() {
    const agent::JobVerdict& verdict = *driver_.verdict();
    if (verdict.result == agent::JobResult::no_round) log::error(verdict.why);
    if (!verdict.report.empty()) {  // of the first failure, on another node
      if (job_.log.format == log::Format::json) {
        log::error(job_.spec.command.display_name + " FAILED", {{"report", verdict.report}});
      } else {
        write_own("report", verdict.report);
      }
    }
    const auto report = driver_.failure_report();
    if (!report) return;
    if (job_.log.format == log::Format::json) {
      log::error(report->name + " FAILED", {{"report", agent::to_text(*report)}});
    } else {
      write_own("report", agent::to_text(*report));
    }
    const auto own = lookup(environment_, "TORCHELASTIC_ERROR_FILE");
    if (!own || own->empty()) return;
    if (const auto written = agent::write_root_cause(*report, std::string(*own)); !written) {
      log::warn(written.error().detail);
    }
  }

  void show_progress() {
    if (job_.quiet || !console_.on_terminal()) return;
    progress_timer_.expires_after(kProgressPause);
    progress_timer_.async_wait([this](const boost::system::error_code& ec) {
      if (ec) return;
      console_.set_status_line(remote_ && !remote_->waiting_for().empty()
                                   ? remote_->waiting_for()
                                   : agent::to_line(driver_.progress()));
      show_progress();
    });
  }

  [[noreturn]] void die_with_the_guard() {
    driver_.end_everything();
    output_.finish(false);
    driver_.finish(false);
    console_.finish(std::chrono::milliseconds(200));
    ::_exit(exit_for_signal(9));
  }

  const Job& job_;
  const Environment& environment_;
  const StartingSide* side_;
  boost::asio::io_context io_{1};
  agent::Console console_;
  agent::Output output_;
  std::unique_ptr<agent::RemoteRendezvous> remote_;  // one of these two
  std::unique_ptr<agent::LocalRendezvous> local_;
  agent::Driver driver_;
  agent::Signals signals_;
  boost::asio::steady_timer progress_timer_;
  std::optional<StartingLine> starting_line_;
  bool nobody_reads_ = false;
  bool told_to_stop_ = false;
};

}  // namespace

int run(const Job& job, const Environment& environment, const StartingSide* side) {
  for (const std::string& warning : job.warnings) log::warn(warning);
  for (const std::string& note : job.notes) log::debug(note);
  const std::vector<int> signals = agent::guarded_signals(job.spec.stop_signals);
  const agent::FlightPlace flight = agent::flight_place(job.spec);
  const int status = agent::run_guarded(signals, [&](int guard_fd) {
    return Launcher(job, environment, signals, guard_fd, side, flight).run();
  });
  agent::remove_records(flight);  // an agent that was killed could not
  return status;
}

}  // namespace distrun::launcher
