// Spec: everything an agent is told before it starts, checked and final.
//
// The launcher makes it out of the command line (launcher/job.h); the agent's cores and edges only
// read it.  Nothing here asks the machine: counts, paths and CPU sets are already resolved.
#pragma once

#include "runtime/base/time.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace distrun::agent {

// Which of a worker's two streams: torchrun's digits 0 none, 1 stdout, 2 stderr, 3 both.
struct StreamSet {
  bool out = false;
  bool err = false;
  bool operator==(const StreamSet&) const = default;
};

// What a worker executes.  In the arguments from `first_script_argument` on, ${local_rank} is
// replaced (worker_env.h); those before are the interpreter and its options and stay as they are.
struct Command {
  std::string executable;  // path of the program; argv[0] is how it was called
  std::vector<std::string> argv;
  std::size_t first_script_argument = 1;
  std::string display_name;  // in titles and logs: the script, module or program
  bool operator==(const Command&) const = default;
};

// Where workers' output goes.  Vectors have one entry per local rank.
struct LogSpec {
  std::string base_dir;                  // empty: a fresh folder under TMPDIR when one is needed
  std::vector<StreamSet> redirects;      // to the file only
  std::vector<StreamSet> tee;            // to the file and, with a prefix, to the console
  std::vector<bool> on_console;          // --local-ranks-filter: false keeps a rank off the console
  std::vector<std::string> out_filters;  // --duplicate-stdout-filters
  std::vector<std::string> err_filters;  // --duplicate-stderr-filters
  std::string prefix_template;           // --log-line-prefix-template; empty: "[role local_rank]:"
  bool operator==(const LogSpec&) const = default;
};

struct Spec {
  std::string run_id = "none";
  std::string role = "default";
  Command command;
  int nproc = 1;
  int max_restarts = 0;
  std::optional<Duration>
      restart_window;  // count only restarts within it; nullopt: all of the job's
  Duration grace = std::chrono::seconds(30);  // between the stop signal and SIGKILL, in every stop

  // The environment that workers inherit, as NAME and value; worker_env.h lays its own over it.
  std::vector<std::pair<std::string, std::string>> environment;
  bool virtual_local_rank = false;

  // CPUs that a worker may use, one list per local rank; empty: as the launcher itself.
  std::vector<std::vector<int>> cpus;

  // Signals that stop the job (--signals-to-handle), by number.  USR1, USR2 and CONT that are not
  // in the list are passed through to the workers.
  std::vector<int> stop_signals;

  // A second SIGTERM ends the grace, as a second SIGINT does.  false: SLURM repeats its own, and
  // kills by itself when its time is over.
  bool repeated_term_is_final = true;

  // Where the workers' store listens: the address they are told (MASTER_ADDR) and its port, 0: any.
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 0;

  // This machine's name, for people: in reports and prefixes.  Nothing is looked up by it.
  std::string host_name;

  LogSpec log;
};

}  // namespace distrun::agent
