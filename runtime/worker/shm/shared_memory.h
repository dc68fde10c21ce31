// Collectives through memory that the ranks of one host share.
//
//   SharedMemory shared = connect_shared_memory(store, rank, size, deadline);
//   if (shared.runner) shared.runner->run(call, deadline);   // else shared.why_not, on all ranks
//
// README.md tells how it works, and what it defends itself against.
#pragma once

#include "runtime/base/time.h"
#include "runtime/worker/call.h"
#include <distrun/buffer.h>
#include <distrun/store.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace distrun {

struct SharedMemory {
  std::unique_ptr<CallRunner> runner;
  std::string why_not;  // if there is none; the same on all ranks
};

// For a group whose ranks are all on one host, or may be; each rank calls it, with a store that is
// theirs alone (a PrefixStore).  No runner and a reason: there is no shared memory to be had with
// these ranks (other hosts, users or containers; a sandbox; DISTRUN_SHARED_MEMORY=0 on any of
// them).  Throws DistError only if joining itself fails: a rank is late or lost.
SharedMemory connect_shared_memory(Store& store, int rank, int size, TimePoint deadline);

// Memory for a user's tensors, of zeros: where this process shares memory with other ranks, such as
// they can read; else, and where there is no more of that, ordinary memory.  Throws
// DistUnsupportedError: there is not so much memory.
Buffer allocate_buffer(std::size_t bytes);

// Each rank's host, counted in the order of their first ranks, the same on all: {0, 0, 1, 1}.
// A rank that cannot share memory is a host of its own.  As above; uses other keys.
std::vector<int> host_of(Store& store, int rank, int size, TimePoint deadline);

}  // namespace distrun
