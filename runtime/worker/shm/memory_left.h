// How much memory this process may still take before the kernel refuses it or ends somebody: the
// machine's, and that of its control groups (v1 and v2; a container, a SLURM job, a service).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace distrun::shm {

struct MemoryLeft {
  std::uint64_t bytes = 0;
  std::string whose;  // "this machine", "the control group /user/4711"
};

// The least of all that have a limit.  nullopt: nobody tells.  `proc` and `groups`: where the
// kernel's files are.
// Source: Linux, Documentation/filesystems/proc.rst and admin-guide/cgroup-v1/memory.rst,
// cgroup-v2.rst.
std::optional<MemoryLeft> memory_left(const std::filesystem::path& proc = "/proc",
                                      const std::filesystem::path& groups = "/sys/fs/cgroup");

}  // namespace distrun::shm
