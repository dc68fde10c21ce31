// Which ranks are on one host: those whose processes can reach each other's shared memory.
//
// Names of hosts prove nothing (containers share them, clones keep them).  What counts is one
// kernel, one network namespace (where the sockets are named over which memory is handed on) and
// one user.  Namespaces of files and IPC do not matter, since nothing of it has a name there.
#pragma once

#include "runtime/base/time.h"
#include <distrun/store.h>

#include <span>
#include <string>
#include <vector>

namespace distrun::shm {

struct HostIdentity {
  std::string text;     // equal on ranks of one host, and only there
  std::string why_not;  // no shared memory is to be had here: empty `text`
};
// DISTRUN_SHARED_MEMORY=0 in the environment: `why_not` says so.
HostIdentity this_host();

// Each rank's host, counted in the order of their first ranks: {"x", "y", "x"} -> {0, 1, 0}.
// An empty identity is a host of its own.
std::vector<int> number_hosts(std::span<const std::string> identities);

// The same on all ranks, each of which gives its own.  Throws DistError, naming the ranks that have
// not come by the deadline.
std::vector<int> exchange_hosts(Store& store, int rank, int size, const std::string& identity,
                                TimePoint deadline);

// Of each rank 1 to size - 1, what it has set under `prefix` + its number.
std::vector<std::string> collect(Store& store, const std::string& prefix, int size,
                                 TimePoint deadline);

}  // namespace distrun::shm
