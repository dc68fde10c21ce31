// `distrun submit`: a batch script out of a few options, handed to SLURM.
//
//   distrun submit --nodes 4 --nproc-per-node 8 --time 2:00:00 --requeue -- train.py --lr 0.1
//
// --dry-run prints the script (submit_script.h); --wait follows the job's output and ends with its
// status.  --from FILE reads the same options as JSON; the command line wins.
#pragma once

#include "launcher/environment.h"
#include "launcher/submit_script.h"
#include "runtime/base/result.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

struct Submission {
  SubmitOptions options;
  bool help = false;
  bool dry_run = false;
  bool wait = false;
};

// `arguments` without "submit".  Reads the file of --from.
Result<Submission> parse_submission(std::span<const std::string_view> arguments);

// For the tests that compare documents with the program.
std::vector<std::string_view> submit_option_names();

// The program's exit status.
int run_submit(std::span<const std::string_view> arguments, const Environment& environment);

}  // namespace distrun::launcher
