// MpiTask: what mpirun, or another starter that speaks PMI, says of this process.  Pure.
//
// distrun is not an MPI program: it starts the workers of its node itself, so it must be started
// once on each node.  Started once for each rank it would become as many launchers beside each
// other, each with all the workers.  So the variables are read, to take the nodes from them where
// they tell enough and to refuse in words where they do not.
//
//   mpirun --map-by ppr:1:node distrun --nproc-per-node 8 --rdzv-endpoint HOST:PORT train.py
#pragma once

#include "launcher/environment.h"
#include "launcher/options.h"
#include "runtime/base/result.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

struct MpiTask {
  std::string seen;  // the variables and their values, for people
  int rank = 0;
  std::optional<int> size;     // nullopt: not told
  std::optional<int> on_node;  // how many of them run on this node; nullopt: not told
};

// nullopt: nothing of the kind.  An error names the variable.
Result<std::optional<MpiTask>> read_mpi_environment(const Environment& environment);

// Whether mpirun itself started this, and not srun, whose own variables tell more.
bool started_by_mpirun(const Environment& environment);

struct MpiPlace {
  Options options;
  std::vector<std::string> notes;  // for -v
};

// --nnodes and --node-rank from `task`, each unless it is given.  Where the nodes meet has to be
// given: mpirun does not tell.
Result<MpiPlace> place_in_mpi(const MpiTask& task, const Options& options,
                              std::span<const std::string_view> arguments,
                              const Environment& environment);

}  // namespace distrun::launcher
