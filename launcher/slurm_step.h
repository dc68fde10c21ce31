// SlurmStep → Options: a job inside `srun` needs no flags about nodes.
//
//   srun --ntasks-per-node=1 distrun train.py
//
// What the user says wins, each option for itself; where the nodes meet (backend and endpoint) is
// one thing and is taken from SLURM only if nothing was said of it:
//
//   nnodes, node-rank        the step's nodes
//   rdzv-id                  job, step, and how often requeued
//   rdzv-backend, -endpoint  c10d at the step's first node, at a port of this step's own
//   shutdown-timeout         a little less than what SLURM leaves from TERM to KILL (KillWait)
//   nproc-per-node auto      no more than the GPUs or CPUs that the step has on this node
//
// Outside of a step (batch script, shell of salloc) nothing is taken.  Tasks of mpirun take what
// mpi_environment.h says.
#pragma once

#include "launcher/environment.h"
#include "launcher/machine.h"
#include "launcher/options.h"
#include "launcher/slurm_environment.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

// What is not in the environment.  Asked only if needed.
struct SlurmSources {
  std::function<bool(const std::string& name)> resolves;
  // scontrol's NodeAddr of a node; empty: not to be had.
  std::function<std::string(const std::string& node)> node_address;
  // slurm.conf's KillWait; nullopt: not to be had.
  std::function<std::optional<Duration>()> kill_wait;
};

struct SlurmPlace {
  Options options;
  std::optional<SlurmStep> step;
  std::vector<std::string> notes;  // for -v
  std::vector<std::string> warnings;
};

// `options` is what `arguments` and `environment` alone gave.
Result<SlurmPlace> place_in_slurm(const Options& options,
                                  std::span<const std::string_view> arguments,
                                  const Environment& environment, const SlurmSources& sources);

// What the step may use of the machine.  Of use to --nproc-per-node auto, gpu and cpu.
void limit_to_step(const SlurmPlace& place, Machine& machine);

// From the stop signal to SIGKILL, so that we are done before SLURM kills.
Duration grace_within(Duration kill_wait);

}  // namespace distrun::launcher
