// A breakpoint in a job of many ranks: one of them stops for a debugger, the others wait for it.
//
//   distrun::breakpoint(*world, 2);
//
//   distrun: rank 2 of process group "0" has stopped for a debugger:
//   distrun:     gdb -p 4711        (on node3; "continue" goes on, and so do the other ranks)
//
// Needs no terminal in the job.  Every rank of the group calls it.
#pragma once

#include <distrun/process_group.h>
#include <distrun/store.h>

#include <chrono>

namespace distrun {

struct BreakpointOptions {
  // So long the rank waits for a debugger, and the others for the rank.  The group's timeout does
  // not count meanwhile.
  Timeout timeout = std::chrono::hours(1);
};

// Rank `rank` of the group prints to standard error how to attach to it, waits until a debugger is
// attached, and raises SIGTRAP there, so that the debugger shows this place.  Once the debugger
// lets it go on, all ranks return.  One that is traced already raises SIGTRAP at once.
//
// Throws DistTimeoutError if no debugger came in time, or the rank was not let go on in time; the
// group is of no more use then.
void breakpoint(ProcessGroup& group, int rank, const BreakpointOptions& options = {});

}  // namespace distrun
