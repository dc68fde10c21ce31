// Job: the options of a run brought together with the machine and the environment, checked as a
// whole. After make_job() nothing about the job is open any more, and nothing has been started yet.
//
//   auto options = parse_options(arguments, environment);
//   Machine machine = read_machine(wanted(*options), environment);
//   auto job = make_job(*options, machine, environment);
//
// Errors that the user can mend say so in one sentence; exit_for_start_error() (exit_code.h) gives
// their exit status.
#pragma once

#include "agent/core/spec.h"
#include "agent/remote_rendezvous.h"
#include "launcher/environment.h"
#include "launcher/machine.h"
#include "launcher/options.h"
#include "runtime/base/log.h"
#include "runtime/base/result.h"

#include <optional>
#include <string>
#include <vector>

namespace distrun::launcher {

struct Job {
  agent::Spec spec;
  // How this node meets the others; nullopt: a job of this node alone.
  std::optional<agent::RemoteRendezvousOptions> nodes;
  log::Options log;
  // True: streams that are neither redirected nor teed are the launcher's own, handed to the
  // worker. False: they pass through the launcher as whole lines.
  bool inherit_console = false;
  bool quiet = false;                 // no progress line
  std::vector<std::string> warnings;  // to be logged as such, one sentence each
  std::vector<std::string> notes;     // for -v
};

// What make_job() will want to know about the machine.
Wanted wanted(const Options& options);

// REQUIRES: options.action is Action::run.  Looks at files (does the script exist?), changes
// nothing.
Result<Job> make_job(const Options& options, const Machine& machine,
                     const Environment& environment);

}  // namespace distrun::launcher
