// Machine: what this computer has that a job may ask for, read at the edge and handed on as a
// value.
//
// Only what is asked for is read: a launch that names its number of workers looks at nothing here.
// All paths are below `root`, so that a test may build a machine in a folder.  No CUDA, ROCm or
// NUMA library is used.
#pragma once

#include "launcher/environment.h"
#include "launcher/gpus.h"
#include "launcher/numa.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

struct Machine {
  std::vector<int> cpus;            // that this process may run on, ascending
  std::optional<double> cpu_quota;  // the tightest cgroup limit above us, in CPUs
  Gpus gpus;
  Topology topology;
  std::string working_folder;
  std::string host_name;
  std::string fresh_id;   // a random UUID
  bool terminal = false;  // both stdout and stderr are terminals
};

struct Wanted {
  bool cpus = false;
  bool gpus = false;
  bool topology = false;
};

Machine read_machine(const Wanted& wanted, const Environment& environment,
                     const std::string& root = "/");

// CPUs that may be used at the same time: those allowed, or as many as the quota pays for if that
// is less.  A quota of 2.5 is 3, and at least 1.
int usable_cpus(const Machine& machine);

// The parts of read_machine(), each with a test of its own.
std::optional<double> read_cpu_quota(const std::string& root);
Topology read_topology(const std::vector<int>& cpus, const std::vector<int>& device_nodes,
                       const std::string& root);

// "0-3,8" as the kernel writes it.  What is not a number is skipped.
std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace distrun::launcher
