#include "launcher/launcher.h"

#include "agent/driver.h"
#include "agent/failure_report.h"
#include "agent/local_rendezvous.h"
#include "agent/process/console.h"
#include "agent/process/guard.h"
#include "agent/process/output.h"
#include "agent/process/signals.h"
#include "launcher/exit_code.h"
#include "runtime/base/log.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <string>
#include <unistd.h>

namespace distrun::launcher {
namespace {

// How long a console that does not take our last bytes may keep us at the end.
constexpr Duration kConsolePatience = std::chrono::seconds(30);
constexpr auto kProgressPause = std::chrono::seconds(1);

class Launcher {
 public:
  Launcher(const Job& job, const Environment& environment, const std::vector<int>& signals,
           int guard_fd)
      : job_(job),
        environment_(environment),
        console_(io_),
        output_(io_, job.spec, console_,
                job.inherit_console ? agent::ConsoleMode::inherit : agent::ConsoleMode::lines),
        rendezvous_(io_, job.spec),
        driver_(io_, job.spec, output_, rendezvous_),
        signals_(io_, guard_fd, signals, job.spec.stop_signals,
                 {.stop = [this](int signo, int) { driver_.stop(signo); },
                  .notice = [this](int signo) { driver_.notice(signo); },
                  .child_ended = [this] { driver_.child_ended(); },
                  .guard_lost = [this] { die_with_the_guard(); }}),
        progress_timer_(io_) {}

  int run() {
    log::set_sink([this](std::string_view line) { console_.write_log(line); });
    const int status = run_job();
    // The console is gone below: what is logged later goes to fd 2 directly.
    if (!console_.finish(kConsolePatience)) {
      log::set_sink({});
      log::warn("the console took no output for " + agent::to_text(kConsolePatience) +
                "; what was left is lost");
    }
    log::set_sink({});
    return status;
  }

 private:
  int run_job() {
    if (const auto started = signals_.start(); !started) {
      log::error(started.error().detail);
      return kExitSystem;
    }
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
    output_.finish();
    return driver_.verdict()->exit_code;
  }

  void report() {
    const agent::JobVerdict& verdict = *driver_.verdict();
    if (verdict.result == agent::JobResult::no_round) log::error(verdict.why);
    const auto report = driver_.failure_report();
    if (!report) return;
    console_.write_log(agent::to_text(*report));
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
      console_.set_status_line(agent::to_line(driver_.progress()));
      show_progress();
    });
  }

  [[noreturn]] void die_with_the_guard() {
    driver_.end_everything();
    output_.finish();
    console_.finish(std::chrono::milliseconds(200));
    ::_exit(exit_for_signal(9));
  }

  const Job& job_;
  const Environment& environment_;
  boost::asio::io_context io_{1};
  agent::Console console_;
  agent::Output output_;
  agent::LocalRendezvous rendezvous_;
  agent::Driver driver_;
  agent::Signals signals_;
  boost::asio::steady_timer progress_timer_;
};

}  // namespace

int run(const Job& job, const Environment& environment) {
  for (const std::string& warning : job.warnings) log::warn(warning);
  for (const std::string& note : job.notes) log::debug(note);
  const std::vector<int> signals = agent::guarded_signals(job.spec.stop_signals);
  return agent::run_guarded(
      signals, [&](int guard_fd) { return Launcher(job, environment, signals, guard_fd).run(); });
}

}  // namespace distrun::launcher
