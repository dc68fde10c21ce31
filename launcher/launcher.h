// Launcher: builds everything that a job needs, connects it, and runs it.  The composition root:
// the only place that knows all parts.
//
//   guard process ── Launcher: Signals, LocalRendezvous, Output, Driver(Agent core)
//
// main() is parse, make a job, run.
#pragma once

#include "launcher/environment.h"
#include "launcher/hosts/starting_side.h"
#include "launcher/job.h"

namespace distrun::launcher {

// Runs the job under a guard process and returns the exit status for the program (exit_code.h).
// `side`: another machine started it; it is told what happens, and its end is the job's here.
// Call with no other thread in the process.
int run(const Job& job, const Environment& environment, const StartingSide* side = nullptr);

}  // namespace distrun::launcher
