// What a worker is given: its environment and its arguments, as torchrun gives them.
//
//   WorkerEnvironment environment(spec, assignment);          // once a round
//   EnvBlock block = environment.of(local_rank, error_file);  // once a worker: a handful of
//   strings execvpe(argv…, block.envp());
#pragma once

#include "agent/core/events.h"
#include "agent/core/spec.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

#include <optional>
#include <string>
#include <vector>

namespace distrun::agent {

// One worker's environment.  Borrows from its WorkerEnvironment, which must outlive it.
class EnvBlock {
 public:
  EnvBlock(EnvBlock&&) = default;  // moving keeps the strings where they are; a copy would not
  EnvBlock& operator=(EnvBlock&&) = default;

  // NAME=value, in no promised order, ended by nullptr.
  const char* const* envp() const { return pointers_.data(); }
  std::size_t size() const { return pointers_.size() - 1; }

 private:
  friend class WorkerEnvironment;
  EnvBlock() = default;
  std::vector<std::string> own_;
  std::vector<const char*> pointers_;
};

class WorkerEnvironment {
 public:
  // `flight_folder`: where workers may leave flight records; empty: none is told to them.
  // REQUIRES: no virtual_rank_problem(spec).
  WorkerEnvironment(const Spec& spec, const Assignment& assignment,
                    const std::string& flight_folder = {});
  WorkerEnvironment(const WorkerEnvironment&) = delete;
  WorkerEnvironment& operator=(const WorkerEnvironment&) = delete;

  // `error_file`: where the worker may leave its exception; empty: nowhere.
  EnvBlock of(LocalRank local_rank, const std::string& error_file) const;

 private:
  Assignment assignment_;
  bool virtual_local_rank_;
  std::vector<std::string> devices_;  // virtual mode: CUDA_VISIBLE_DEVICES by local rank
  std::vector<std::string> shared_;   // what all workers of the node have
};

// Virtual local rank shows each worker one device of the launcher's CUDA_VISIBLE_DEVICES: the error
// if that list is shorter than nproc.
std::optional<Error> virtual_rank_problem(const Spec& spec);

// The command's argv for one worker: ${local_rank} and $local_rank are replaced in the script's
// arguments, under the rules of Python's string.Template, but `$$` stays `$$`.
std::vector<std::string> worker_arguments(const Command& command, LocalRank local_rank);

}  // namespace distrun::agent
