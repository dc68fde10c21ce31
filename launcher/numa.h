// NUMA binding: which CPUs each worker may run on, by --numa-binding.  Pure: the machine's layout
// comes in as a value (topology.h reads it), the CPUs per local rank go out.
//
//   node          all CPUs of the NUMA node that the worker's device hangs on
//   socket        all CPUs of the processor package of that node
//   exclusive     the node's physical cores, divided evenly over its devices; the first devices get
//                 one more each when it does not come out even
//   core-complex  one group of cores that share the last-level cache; the node's devices take the
//                 groups in turn, largest group first
//
// Worker i uses device i.  Where there are no GPUs, workers themselves are spread over the NUMA
// nodes in blocks and stand in for devices (torchrun: GPUs only).
#pragma once

#include "runtime/base/result.h"

#include <map>
#include <string_view>
#include <vector>

namespace distrun::launcher {

enum class NumaBinding { node, socket, exclusive, core_complex };

std::string_view to_string(NumaBinding binding);

// Only CPUs that this process may use are in it.
struct Topology {
  struct Cpu {
    int id = 0;
    int node = 0;
    int package = 0;
    int core = 0;   // lowest id among its SMT siblings: names the physical core
    int cache = 0;  // lowest id among those that share its last-level cache
    bool operator==(const Cpu&) const = default;
  };
  std::vector<Cpu> cpus;          // by id
  std::vector<int> device_nodes;  // NUMA node of each visible GPU, in the order CUDA numbers them
  bool operator==(const Topology&) const = default;
};

// One ascending CPU list per local rank.
Result<std::vector<std::vector<int>>> bind_workers(NumaBinding binding, int nproc,
                                                   const Topology& topology);

}  // namespace distrun::launcher
