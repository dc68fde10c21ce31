#include "runtime/worker/shm/shared_memory.h"

#include "runtime/worker/shm/host.h"
#include "runtime/worker/shm/join.h"
#include "runtime/worker/shm/runner.h"

#include <utility>

namespace distrun {

SharedMemory connect_shared_memory(Store& store, int rank, int size, TimePoint deadline) {
  shm::Joined joined = shm::join(store, rank, size, shm::this_host(), deadline);
  if (!joined.membership) return {nullptr, std::move(joined.why_not)};
  return {std::make_unique<shm::Runner>(std::move(*joined.membership), joined.tuning), ""};
}

std::vector<int> host_of(Store& store, int rank, int size, TimePoint deadline) {
  return shm::exchange_hosts(store, rank, size, shm::this_host().text, deadline);
}

}  // namespace distrun
