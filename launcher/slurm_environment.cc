#include "launcher/slurm_environment.h"

#include "launcher/node_list.h"
#include "launcher/text.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace distrun::launcher {
namespace {

constexpr std::int64_t kNumberMax = std::numeric_limits<std::uint32_t>::max();
// From here on, numbers of steps mean "the batch script", "the shell of salloc" and the like.
constexpr std::int64_t kStepMax = 0xfffffff0 - 1;

Error wrong(std::string_view name, std::string_view value, std::string_view what) {
  return Error{Errc::invalid_argument, std::string(name) + ": " + std::string(what) + ": " +
                                           quote(value) +
                                           "; --standalone ignores SLURM's variables"};
}

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  Result<SlurmEnvironment> run() {
    SlurmEnvironment result;
    const auto job = first_of({"SLURM_JOB_ID", "SLURM_JOBID"});
    if (!job) return result;
    const auto id = parse_int(*job, 0, kNumberMax);
    if (!id) return wrong("SLURM_JOB_ID", *job, "not a number");
    result.job = std::to_string(*id);

    const auto step = first_of({"SLURM_STEP_ID", "SLURM_STEPID"});
    const auto step_id = step ? parse_int(*step, 0, kNumberMax) : std::nullopt;
    if (step && !step_id) return wrong("SLURM_STEP_ID", *step, "not a number");
    if (!step_id || *step_id > kStepMax || !lookup(environment_, "SLURM_PROCID")) {
      const auto nodes = first_of({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"});
      result.job_nodes = static_cast<int>(
          nodes ? parse_int(*nodes, 1, static_cast<std::int64_t>(kNodesMax)).value_or(1) : 1);
      return result;
    }
    SlurmStep found;
    found.job = static_cast<std::uint64_t>(*id);
    found.step = static_cast<std::uint64_t>(*step_id);
    if (const auto done = read_nodes(found); !done) return done.error();
    if (const auto done = read_tasks(found); !done) return done.error();
    if (const auto count = optional_number("SLURM_RESTART_COUNT")) found.restarts = *count;
    found.cpus = optional_number("SLURM_CPUS_ON_NODE");
    found.gpus = optional_number("SLURM_GPUS_ON_NODE");
    result.step = std::move(found);
    return result;
  }

 private:
  std::optional<std::string_view> first_of(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      const auto value = lookup(environment_, name);
      if (value && !value->empty()) return value;
    }
    return std::nullopt;
  }

  // Of use if it is there and readable, and no more than that.
  std::optional<int> optional_number(std::string_view name) const {
    const auto value = first_of({name});
    const auto number = value ? parse_int(*value, 1, 65536) : std::nullopt;
    return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
  }

  Result<void> read_nodes(SlurmStep& step) {
    const auto list = first_of({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
    if (!list) {
      return Error{Errc::invalid_argument,
                   "SLURM_STEP_NODELIST: not set, though SLURM_STEP_ID is; --standalone ignores "
                   "SLURM's variables"};
    }
    auto nodes = expand_node_list(*list);
    if (!nodes) return wrong("SLURM_STEP_NODELIST", *list, nodes.error().detail);
    step.nodes = std::move(*nodes);
    if (const auto count = first_of({"SLURM_STEP_NUM_NODES"})) {
      const auto number = parse_int(*count, 1, static_cast<std::int64_t>(kNodesMax));
      if (!number || static_cast<std::size_t>(*number) != step.nodes.size()) {
        return wrong("SLURM_STEP_NUM_NODES", *count,
                     "but SLURM_STEP_NODELIST has " + std::to_string(step.nodes.size()) +
                         " nodes (" + printable(*list) + ")");
      }
    }
    const auto rank = first_of({"SLURM_NODEID"});
    const auto number =
        rank ? parse_int(*rank, 0, static_cast<std::int64_t>(step.nodes.size()) - 1) : std::nullopt;
    if (!number) {
      return wrong("SLURM_NODEID", rank.value_or(""),
                   "not a place in a list of " + std::to_string(step.nodes.size()) + " nodes");
    }
    step.node_rank = static_cast<int>(*number);
    return {};
  }

  Result<void> read_tasks(SlurmStep& step) {
    const auto tasks = first_of({"SLURM_STEP_TASKS_PER_NODE"});
    if (!tasks) return {};
    const auto counts = expand_counts(*tasks);
    if (!counts) return wrong("SLURM_STEP_TASKS_PER_NODE", *tasks, "not a list of counts");
    step.tasks_on_node_max = *std::max_element(counts->begin(), counts->end());
    step.tasks_per_node = *tasks;
    return {};
  }

  const Environment& environment_;
};

}  // namespace

Result<SlurmEnvironment> read_slurm_environment(const Environment& environment) {
  return Reader(environment).run();
}

std::string rendezvous_id(const SlurmStep& step) {
  std::string id = "slurm-" + std::to_string(step.job) + "." + std::to_string(step.step);
  if (step.restarts > 0) id += "-restart" + std::to_string(step.restarts);
  return id;
}

std::uint16_t rendezvous_port(const SlurmStep& step) {
  constexpr std::uint64_t kFirst = 20000;
  constexpr std::uint64_t kPorts = 10007;  // a prime: up to 32768 is Linux's lowest port of its own
  constexpr std::uint64_t kStepsOfAJob = 131;  // the next job's begin after so many
  return static_cast<std::uint16_t>(kFirst + (step.job * kStepsOfAJob + step.step) % kPorts);
}

}  // namespace distrun::launcher
