// SlurmEnvironment: what the SLURM_ variables say of where this process runs.  Pure reading; what a
// job makes of it is slurm_step.h's concern.
//
// The trap that this file is for: the batch script, and a shell inside an allocation, have most of
// the variables that a task of srun has, PROCID and NODEID too, always 0.  Only SLURM_STEP_ID tells
// them apart.
#pragma once

#include "launcher/environment.h"
#include "runtime/base/result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace distrun::launcher {

// This process is a task that srun started.
struct SlurmStep {
  std::uint64_t job =
      0;  // of an array's task, and of a heterogeneous job: the number SLURM runs it by
  std::uint64_t step = 0;
  int restarts = 0;                // how often the job was requeued before
  std::vector<std::string> nodes;  // of the step, which may be some of the job's; index: node rank
  int node_rank = 0;
  int tasks_on_node_max = 1;   // on any node of the step
  std::string tasks_per_node;  // the same as SLURM has it, for people
  std::optional<int> cpus;     // of this node, for this step
  std::optional<int> gpus;
};

struct SlurmEnvironment {
  // nullopt: no allocation around us, or one but not as a task of a step.
  std::optional<SlurmStep> step;
  // Not a task, but in a job (its batch script, or the shell of salloc) of so many nodes; 0: no
  // job.
  int job_nodes = 0;
  std::string job;
};

// An error names the variable.
Result<SlurmEnvironment> read_slurm_environment(const Environment& environment);

// The name under which the step's nodes meet.  Not the same after a requeue: what is left of the
// former run, on a node that was cut off, is not let in.
std::string rendezvous_id(const SlurmStep& step);

// Where they meet on the first node.  Two steps of a job have different ports (if fewer than 10007
// lie between them); below the ports that Linux gives out by itself.
std::uint16_t rendezvous_port(const SlurmStep& step);

}  // namespace distrun::launcher
