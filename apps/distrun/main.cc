// distrun: parse, make a job, run it.  What each step does is in launcher/.
#include "agent/process/spawn.h"
#include "launcher/environment.h"
#include "launcher/exit_code.h"
#include "launcher/flight.h"
#include "launcher/hosts/hosts_launcher.h"
#include "launcher/hosts/remote_command.h"
#include "launcher/hosts/starting_side.h"
#include "launcher/job.h"
#include "launcher/kubernetes_environment.h"
#include "launcher/launcher.h"
#include "launcher/machine.h"
#include "launcher/options.h"
#include "launcher/slurm_commands.h"
#include "launcher/slurm_step.h"
#include "launcher/status.h"
#include "launcher/submit.h"
#include "runtime/base/log.h"

#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <span>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace {

using namespace distrun::launcher;

int explain(const distrun::Error& error) {
  distrun::log::error(error.detail);
  return exit_for_start_error(error.code);
}

int print(const std::string& text) {
  const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written ? kExitSuccess : kExitSystem;
}

// A descriptor of ours must never become number 0, 1 or 2: workers would inherit it as theirs.
void open_closed_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) (void)!::open("/dev/null", O_RDWR);  // takes the lowest number
  }
}

int run_arguments(std::span<const std::string_view> arguments, const Environment& environment,
                  const StartingSide* side) {
  const auto options = parse_options(arguments, environment);
  if (!options) return explain(options.error());
  if (options->action == Action::help) return print(help_text());
  if (options->action == Action::version) return print(version_text());
  if (names_hosts(*options)) return run_on_hosts(*options, arguments, environment);
  auto place = place_in_slurm(*options, arguments, environment, slurm_sources(environment));
  if (!place) return explain(place.error());
  if (!place->step) {
    auto pod = place_in_kubernetes(place->options, arguments, environment);
    if (!pod) return explain(pod.error());
    place->options = std::move(pod->options);
    place->notes.insert(place->notes.end(), pod->notes.begin(), pod->notes.end());
  }
  Machine machine = read_machine(wanted(place->options), environment);
  limit_to_step(*place, machine);
  auto job = make_job(place->options, machine, environment);
  if (!job) return explain(job.error());
  if (place->step) job->spec.repeated_term_is_final = false;
  job->notes.insert(job->notes.begin(), place->notes.begin(), place->notes.end());
  job->warnings.insert(job->warnings.begin(), place->warnings.begin(), place->warnings.end());
  distrun::log::start(job->log);
  return run(*job, environment, side);
}

int real_main(int argc, char** argv) {
  open_closed_streams();
  distrun::agent::prepare_process();
  const Environment environment = read_environment(environ);
  const std::vector<std::string_view> arguments(argv + (argc > 0), argv + argc);
  if (!arguments.empty() && arguments.front() == "status") {
    return run_status(std::span(arguments).subspan(1), environment);
  }
  if (!arguments.empty() && arguments.front() == "flight") {
    return run_flight(std::span(arguments).subspan(1));
  }
  if (!arguments.empty() && arguments.front() == "submit") {
    return run_submit(std::span(arguments).subspan(1), environment);
  }
  if (arguments.size() == 1 && arguments.front() == kFromStdin) {
    return run_from_stdin(
        environment, [](std::span<const std::string_view> ordered, const Environment& own,
                        const StartingSide& side) { return run_arguments(ordered, own, &side); });
  }
  return run_arguments(arguments, environment, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return real_main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "distrun: a bug: %s; please report this\n", error.what());
    return kExitInternal;
  }
}
