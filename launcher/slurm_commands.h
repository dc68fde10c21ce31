// What SLURM's own commands and files say: the edge of slurm_step.h and submit.h.
//
// A command runs as a child without a shell, with a limit of time and of output; it is killed when
// it passes one.  Nothing is left running, and no thread is started.
#pragma once

#include "launcher/environment.h"
#include "launcher/slurm_step.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

struct CommandResult {
  int status = 0;  // as a shell has it: 128+n for signal n
  std::string out;
};

// Its stderr is ours if `show_errors`, else nobody's.  An error: it could not be started, or took
// too long.
Result<CommandResult> run_command(const std::vector<std::string>& argv, Duration limit,
                                  bool show_errors = false);

// The real ones.
SlurmSources slurm_sources(const Environment& environment);

// The value of NodeAddr in the output of `scontrol show node NAME --oneliner`; empty: none.
std::string node_address_in(std::string_view text);

// KillWait in the text of a slurm.conf.
std::optional<Duration> kill_wait_in(std::string_view text);

}  // namespace distrun::launcher
