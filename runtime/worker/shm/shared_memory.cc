#include "runtime/worker/shm/shared_memory.h"

#include "runtime/worker/shm/heap.h"
#include "runtime/worker/shm/host.h"
#include "runtime/worker/shm/join.h"
#include "runtime/worker/shm/runner.h"
#include <distrun/error.h>

#include <cerrno>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <utility>

namespace distrun {

SharedMemory connect_shared_memory(Store& store, int rank, int size, TimePoint deadline) {
  shm::Joined joined = shm::join(store, rank, size, shm::this_host(), deadline);
  if (!joined.membership) return {nullptr, std::move(joined.why_not)};
  return {std::make_unique<shm::Runner>(std::move(*joined.membership), joined.tuning), ""};
}

Buffer allocate_buffer(std::size_t bytes) {
  if (bytes == 0) return {};
  if (shm::Heap* const heap = shm::Heap::if_made())
    if (std::byte* const data = heap->allocate(bytes))
      return {data, bytes, true, [](std::byte* its, std::size_t size) {
                // Not what a child has from before its fork: that is its parent's.
                shm::Heap* const from = shm::Heap::if_made();
                if (from != nullptr && from->offset_of(its, size)) from->release(its, size);
              }};
  void* const data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    throw DistUnsupportedError("no memory for a buffer of " + std::to_string(bytes) +
                               " bytes: " + std::generic_category().message(errno));
  return {static_cast<std::byte*>(data), bytes, false,
          [](std::byte* its, std::size_t size) { ::munmap(its, size); }};
}

std::vector<int> host_of(Store& store, int rank, int size, TimePoint deadline) {
  return shm::exchange_hosts(store, rank, size, shm::this_host().text, deadline);
}

}  // namespace distrun
