#include "launcher/slurm_step.h"

#include "launcher/endpoint.h"
#include "launcher/mpi_environment.h"
#include "launcher/text.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace distrun::launcher {
namespace {

// A worker that is deaf in a dead collective would delay each restart by the whole of it.
constexpr Duration kGraceMax = std::chrono::seconds(120);
constexpr Duration kKillWaitOfSlurm = std::chrono::seconds(30);  // its default

std::string seconds(Duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", std::chrono::duration<double>(time).count());
  return text;
}

class Placer {
 public:
  Placer(const Options& options, std::span<const std::string_view> arguments,
         const Environment& environment, const SlurmSources& sources)
      : given_(options), arguments_(arguments), environment_(environment), sources_(sources) {}

  Result<SlurmPlace> run() {
    place_.options = given_;
    if (given_.standalone) return place_;
    // Inside an allocation, too: of SLURM's step these know only what mpirun made of it.
    if (started_by_mpirun(environment_)) return take_mpi();
    auto slurm = read_slurm_environment(environment_);
    if (!slurm) return slurm.error();
    if (!slurm->step) {
      if (auto mpi = read_mpi_environment(environment_); !mpi || *mpi) return take_mpi();
      if (slurm->job_nodes > 1 && !says_nodes()) {
        place_.warnings.push_back(
            "SLURM job " + slurm->job + " has " + std::to_string(slurm->job_nodes) +
            " nodes, and this one alone takes part: only tasks of srun know of each other; start "
            "it with srun --ntasks-per-node=1, or say --nnodes 1");
      }
      return place_;
    }
    place_.step = std::move(slurm->step);
    return take_step(*place_.step);
  }

 private:
  bool says_meeting_place() const {
    return given_.endpoint.has_value() || given_.master_addr.has_value();
  }

  // --nnodes 1 looks like no --nnodes: tell them apart by what a default would do.
  bool says_nodes() const {
    Environment probe = environment_;
    probe.emplace("PET_NNODES", "2");
    const auto parsed = parse_options(arguments_, probe);
    return parsed && parsed->min_nodes == given_.min_nodes && parsed->max_nodes == given_.max_nodes;
  }

  Result<SlurmPlace> take_mpi() {
    const auto task = read_mpi_environment(environment_);
    if (!task) return task.error();
    if (!*task) return place_;
    auto mpi = place_in_mpi(**task, given_, arguments_, environment_);
    if (!mpi) return mpi.error();
    place_.options = std::move(mpi->options);
    place_.notes = std::move(mpi->notes);
    return place_;
  }

  Result<SlurmPlace> take_step(const SlurmStep& step) {
    const int nodes = static_cast<int>(step.nodes.size());
    const std::string name =
        "SLURM step " + std::to_string(step.job) + "." + std::to_string(step.step);
    if (step.tasks_on_node_max > 1 && !says_meeting_place()) {
      return Error{
          Errc::invalid_argument,
          "srun started up to " + std::to_string(step.tasks_on_node_max) +
              " tasks on a node (SLURM_STEP_TASKS_PER_NODE=" + printable(step.tasks_per_node) +
              "); one distrun on each node starts all of its workers: use srun "
              "--ntasks-per-node=1 and distrun --nproc-per-node, or --standalone if each "
              "task is to be a job of its own"};
    }

    // As PET_ variables: what was said on the command line, or in such a variable, wins.
    Environment taken = environment_;
    taken.emplace("PET_NNODES", std::to_string(nodes));
    if (!says_meeting_place()) taken.emplace("PET_RDZV_BACKEND", "c10d");
    taken.emplace("PET_NODE_RANK", std::to_string(step.node_rank));
    const Duration kill_wait = sources_.kill_wait().value_or(kKillWaitOfSlurm);
    if (!lookup(environment_, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT")) {
      taken.emplace("PET_SHUTDOWN_TIMEOUT", seconds(grace_within(kill_wait)));
    }
    auto options = parse_options(arguments_, taken);
    if (!options) return options.error();
    place_.options = std::move(*options);
    Options& result = place_.options;
    if (result.shutdown_timeout && *result.shutdown_timeout >= kill_wait) {
      place_.notes.push_back("the grace is " + duration_text(*result.shutdown_timeout) +
                             ", but SLURM kills " + duration_text(kill_wait) +
                             " (KillWait) after its SIGTERM");
    }
    if (result.max_nodes == 1) {  // one node, or told so: nobody to meet
      place_.notes.push_back(name + ": a job of this node alone");
      return place_;
    }
    if (says_meeting_place() && result.max_nodes > nodes) {
      // Several steps make up one job: neither our number nor our name holds there.
      result.node_rank = given_.node_rank;
      place_.notes.push_back(name + ": a part of a job of more nodes");
      return place_;
    }
    // More nodes than take part: a spare has no rank until it takes a lost node's.
    if (!given_.node_rank && result.backend != Backend::fixed &&
        step.node_rank >= result.max_nodes) {
      result.node_rank.reset();
    }
    if (!result.rdzv_id) result.rdzv_id = rendezvous_id(step);
    if (!says_meeting_place()) {
      if (auto done = meet_at_first_node(step, name); !done) return done.error();
    }
    place_.notes.push_back(name + ": node " + std::to_string(step.node_rank) + " of " +
                           std::to_string(nodes) + " (" + step.nodes[index(step)] +
                           "), rendezvous " + *result.rdzv_id);
    if (result.shutdown_timeout) {
      place_.notes.push_back(
          "from a stop signal to SIGKILL: " + duration_text(*result.shutdown_timeout) +
          "; SLURM's KillWait: " + duration_text(kill_wait));
    }
    if (result.min_nodes < nodes) {
      place_.notes.push_back(
          "fewer nodes would do: SLURM ends the whole step when it finds a node dead, unless srun "
          "and sbatch are told --no-kill (and srun --kill-on-bad-exit=0)");
    }
    return place_;
  }

  static std::size_t index(const SlurmStep& step) {
    return static_cast<std::size_t>(step.node_rank);
  }

  Result<void> meet_at_first_node(const SlurmStep& step, const std::string& name) {
    Options& result = place_.options;
    const int nodes = static_cast<int>(step.nodes.size());
    if (result.min_nodes > nodes) {
      return Error{Errc::invalid_argument,
                   "--nnodes: " + std::to_string(result.min_nodes) + ", but " + name + " has " +
                       std::to_string(nodes) +
                       " nodes; for nodes of several steps give --rdzv-endpoint and --rdzv-id"};
    }
    const std::string& head = step.nodes.front();
    std::string address = head;
    if (!sources_.resolves(head)) {
      address = sources_.node_address(head);
      if (address.empty()) {
        return Error{Errc::not_found,
                     "the first node of " + name + ", " + quote(head) +
                         ", has a name that does not resolve here, and scontrol does not tell its "
                         "address; give --rdzv-endpoint ADDRESS:PORT"};
      }
      place_.notes.push_back(quote(head) + " does not resolve; scontrol says " + address);
    }
    auto host = parse_host(address);
    if (!host) return host.error();
    // With static, --master-port is where the nodes meet.
    const bool fixed = result.backend == Backend::fixed;
    Endpoint endpoint;
    endpoint.host = std::move(*host);
    endpoint.port = fixed && result.master_port ? *result.master_port : rendezvous_port(step);
    place_.notes.push_back("the nodes meet at " + endpoint.host + ":" +
                           std::to_string(*endpoint.port) + ", the first node of " + name);
    result.endpoint = std::move(endpoint);
    if (!result.rdzv_conf.is_host) result.rdzv_conf.is_host = step.node_rank == 0;
    return {};
  }

  const Options& given_;
  std::span<const std::string_view> arguments_;
  const Environment& environment_;
  const SlurmSources& sources_;
  SlurmPlace place_;
};

}  // namespace

Result<SlurmPlace> place_in_slurm(const Options& options,
                                  std::span<const std::string_view> arguments,
                                  const Environment& environment, const SlurmSources& sources) {
  return Placer(options, arguments, environment, sources).run();
}

void limit_to_step(const SlurmPlace& place, Machine& machine) {
  if (!place.step) return;
  if (const auto gpus = place.step->gpus;
      gpus && (machine.gpus.count == 0 || *gpus < machine.gpus.count)) {
    machine.gpus.count = *gpus;
    machine.gpus.found = "SLURM_GPUS_ON_NODE is " + std::to_string(*gpus);
  }
  if (const auto cpus = place.step->cpus; cpus && *cpus < machine.cpu_quota.value_or(*cpus + 1)) {
    machine.cpu_quota = *cpus;
  }
}

Duration grace_within(Duration kill_wait) {
  // For us to say what happened, and for SLURM's own messages.
  const Duration margin = std::max<Duration>(std::chrono::seconds(1), kill_wait / 10);
  const Duration least = kill_wait / 2;
  return std::min(std::max(kill_wait - margin, least), kGraceMax);
}

}  // namespace distrun::launcher
