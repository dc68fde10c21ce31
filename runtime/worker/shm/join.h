// How the ranks of one host come to share memory.  Through the store they find that they are on
// one host, and rank 0's socket; over it everything else goes, so that all come to one verdict:
//
//   rank r ──hello: my memory, my CPUs, my process──────────► rank 0
//   rank r ◄─welcome: everyone's memory, how to go about it── rank 0     or: no, and why
//   rank r ◄─heaps: everyone's, if everyone has one────────── rank 0
//   rank r ──ready, or what went wrong──────────────────────► rank 0
//   rank r ◄─verdict, the same for all─────────────────────── rank 0
//
// Then the sockets are closed.  Both sides look at the other's user, and rank 0 at a random number
// that only the store knows: others on this host, and earlier runs, are turned away.
#pragma once

#include "runtime/worker/shm/lockstep.h"
#include "runtime/worker/shm/runner.h"
#include <distrun/store.h>

#include <optional>
#include <string>

namespace distrun::shm {

struct Joined {
  std::optional<Membership> membership;
  Tuning tuning;
  std::string why_not;  // on all ranks alike; empty if there is a membership
};

// Uses the store's keys that begin with "shm/".  Throws DistError if a rank does not come by the
// deadline, or is lost on the way.  `host` is this_host(); tests have others.
struct HostIdentity;
Joined join(Store& store, int rank, int size, const HostIdentity& host, TimePoint deadline);

}  // namespace distrun::shm
