#include "launcher/mpi_environment.h"

#include "launcher/text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

namespace distrun::launcher {
namespace {

constexpr std::int64_t kNumberMax = std::numeric_limits<std::int32_t>::max();

// Who sets which variables; an empty name: it has none for that.
struct Family {
  std::string_view rank;
  std::string_view size;
  std::string_view on_node;
};

constexpr std::array kFamilies{
    Family{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    Family{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"},  // MVAPICH2
    Family{"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},  // MPICH, Intel MPI; srun --mpi=pmi2
    Family{"PMIX_RANK", "", ""},                        // prun; srun --mpi=pmix
};

constexpr std::string_view kStandalone =
    "--standalone, which ignores these variables, if each distrun is to run a job of its own";

// nullopt: not set.
Result<std::optional<int>> number(const Environment& environment, std::string_view name,
                                  std::int64_t least, std::string& seen) {
  const auto text = name.empty() ? std::nullopt : lookup(environment, name);
  if (!text) return std::optional<int>();
  const auto value = parse_int(*text, least, kNumberMax);
  if (!value) {
    return Error{Errc::invalid_argument, std::string(name) + ": not a whole number from " +
                                             std::to_string(least) + " up: " + quote(*text) +
                                             "; give " + std::string(kStandalone)};
  }
  seen += (seen.empty() ? "" : ", ") + std::string(name) + "=" + std::to_string(*value);
  return std::optional(static_cast<int>(*value));
}

}  // namespace

Result<std::optional<MpiTask>> read_mpi_environment(const Environment& environment) {
  for (const Family& family : kFamilies) {
    MpiTask task;
    const auto rank = number(environment, family.rank, 0, task.seen);
    if (!rank) return rank.error();
    const auto size = number(environment, family.size, 1, task.seen);
    if (!size) return size.error();
    if (!*rank || (!*size && !family.size.empty())) continue;  // left over from something else
    const auto on_node = number(environment, family.on_node, 1, task.seen);
    if (!on_node) return on_node.error();
    task.rank = **rank;
    task.size = *size;
    task.on_node = *on_node;
    return std::optional(std::move(task));
  }
  return std::optional<MpiTask>();
}

bool started_by_mpirun(const Environment& environment) {
  // srun sets PMI_ and PMIX_ variables, too, but not these.
  return std::any_of(kFamilies.begin(), kFamilies.end(), [&](const Family& family) {
    return !family.on_node.empty() && lookup(environment, family.on_node);
  });
}

Result<MpiPlace> place_in_mpi(const MpiTask& task, const Options& options,
                              std::span<const std::string_view> arguments,
                              const Environment& environment) {
  MpiPlace place{options, {}};
  if (task.size == 1) return place;
  const bool says_meeting_place = options.endpoint || options.master_addr;
  if (says_meeting_place && options.max_nodes > 1 &&
      (options.node_rank || options.backend != Backend::fixed)) {
    place.notes.push_back("started by MPI (" + task.seen + "), and told who takes part and where");
    return place;
  }
  const std::string what = "distrun was started as an MPI program (" + task.seen + ")";
  if (!task.on_node || !task.size) {
    return Error{Errc::invalid_argument,
                 what +
                     ", which does not say how many run on this node. One distrun on each node "
                     "starts all of its workers: start it so and give --nnodes, --node-rank and "
                     "--rdzv-endpoint HOST:PORT; or give " +
                     std::string(kStandalone)};
  }
  if (*task.on_node > 1) {
    const std::string count = std::to_string(*task.on_node);
    const std::string instead =
        *task.on_node == *task.size
            ? "leave mpirun out and use distrun --nproc-per-node " + count
            : "use mpirun --map-by ppr:1:node (Open MPI) or -ppn 1 (MPICH) and distrun "
              "--nproc-per-node " +
                  count + " --rdzv-endpoint HOST:PORT";
    return Error{Errc::invalid_argument,
                 what + " with " + count +
                     " on this node. One distrun on each node starts all of "
                     "its workers: " +
                     instead + "; or give " + std::string(kStandalone)};
  }
  Environment taken = environment;
  taken.emplace("PET_NNODES", std::to_string(*task.size));
  taken.emplace("PET_NODE_RANK", std::to_string(task.rank));
  auto parsed = parse_options(arguments, taken);
  if (!parsed) return parsed.error();
  if (parsed->max_nodes == 1) return place;  // told so: nobody to meet
  if (!says_meeting_place) {
    return Error{Errc::invalid_argument,
                 what + ", one on each of " + std::to_string(*task.size) +
                     " nodes, but that does not say where they can meet: give --rdzv-endpoint "
                     "HOST:PORT, HOST being the node of rank 0 (number of nodes and node rank are "
                     "taken from MPI); or give " +
                     std::string(kStandalone)};
  }
  place.options = std::move(*parsed);
  place.notes.push_back("started by MPI (" + task.seen + "): node " + std::to_string(task.rank) +
                        " of " + std::to_string(*task.size));
  return place;
}

}  // namespace distrun::launcher
