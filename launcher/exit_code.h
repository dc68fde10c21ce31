// The launcher's exit status: one table, the same in the manual page.
//
//   0        every worker ended with 0
//   1…125    the status of the worker that failed first (or 2, below)
//   2        the command line, a PET_ variable or their combination is wrong; nothing was started
//   69       the rendezvous is closed: the job is over; --hosts: a host that it needs is lost
//   70       a bug in distrun
//   71       the operating system refused something: a port, a file, a process; --hosts: ssh failed
//   75       the rendezvous was not complete in time
//   77       the rendezvous refused this node; --hosts: a host has another version
//   126      the program or script exists and cannot be executed
//   127      the script, program or interpreter does not exist
//   128+n    the worker that failed first was killed by signal n; or signal n stopped the launcher
//
// A worker's own status may be any of these numbers.  Which case it was is said on stderr, in the
// final report.  (torchrun: 1 for every failure, 2 for the command line.)
#pragma once

#include "runtime/base/result.h"

namespace distrun::launcher {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitJobOver = 69;
inline constexpr int kExitInternal = 70;
inline constexpr int kExitSystem = 71;
inline constexpr int kExitNotInTime = 75;
inline constexpr int kExitRefused = 77;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

constexpr int exit_for_signal(int signal) {
  return 128 + signal;
}

// For an error of parse_options() or make_job(): nothing was started.
constexpr int exit_for_start_error(Errc code) {
  switch (code) {
    case Errc::not_found:
      return kExitNotFound;
    case Errc::io:
      return kExitNotExecutable;  // the only refusal of the system that they can meet
    case Errc::invalid_argument:
    case Errc::unsupported:
    case Errc::limit:
      return kExitUsage;
    case Errc::timeout:
    case Errc::closed:
    case Errc::protocol:
      break;
  }
  return kExitInternal;
}

}  // namespace distrun::launcher
