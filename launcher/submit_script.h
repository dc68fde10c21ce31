// SubmitOptions → the batch script of `distrun submit`.  Pure: the script is a function of the
// options alone, and meant to be read and edited by people.
#pragma once

#include "runtime/base/result.h"

#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

struct SubmitOptions {
  int nodes = 1;
  int min_nodes = 0;  // 0: all of `nodes`
  int spares = 0;     // more nodes in the allocation, that wait to take a lost one's place
  std::string nproc_per_node = "1";
  int cpus_per_node = 0;      // 0: not said
  std::string gpus_per_node;  // as SLURM has it: 8, or a100:8
  int max_restarts = 0;
  std::string job_name;  // empty: the program's name
  std::string partition;
  std::string time;
  std::string log_dir;  // empty: slurm-JOB.out in the folder, no files of ranks
  bool requeue = false;
  int notice = 120;         // seconds before the time limit; with requeue
  std::string save_signal;  // USR1 or USR2: what workers get first; empty: SIGTERM alone
  int max_requeues = 20;
  std::string setup;                          // a file that the script sources first
  std::vector<std::string> slurm;             // further options of sbatch, one each
  std::vector<std::string> launcher_options;  // further options of distrun, one each
  std::string launcher;                       // how distrun is called
  std::vector<std::string> command;
};

// An error names the option.
Result<std::string> to_batch_script(const SubmitOptions& options);

// Where the job's output goes, %j for its number.
std::string output_path(const SubmitOptions& options);

// As one word of a POSIX shell.
std::string shell_word(std::string_view text);

}  // namespace distrun::launcher
