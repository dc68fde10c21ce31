// What is executed: from the target on the command line to the argv of a worker.  Looks at the file
// system (does it exist, may it be executed?), so that a typing error is told before anything
// starts.
//
//   -m NAME          interpreter -u -m NAME …
//   --no-python X    X …                          X: a path, or a name in PATH
//   train.py         interpreter -u train.py …
//   ./solver         ./solver …                   an executable file that is not a .py file
//   hostname         hostname …                   no such file here, but a program in PATH
//   anything else that exists: interpreter -u X … (a folder or zip with __main__.py, a plain file)
//
// interpreter: $PYTHON_EXEC; else bin/python of $VIRTUAL_ENV or $CONDA_PREFIX; else python3, then
// python, in PATH.
#pragma once

#include "agent/core/spec.h"
#include "launcher/environment.h"
#include "launcher/options.h"
#include "runtime/base/result.h"

#include <string>
#include <vector>

namespace distrun::launcher {

struct Program {
  agent::Command command;
  std::vector<std::string> warnings;
};

// Errors: not_found, or io for what exists but cannot be executed.
Result<Program> find_program(const Options& options, const Environment& environment,
                             const std::string& working_folder);

}  // namespace distrun::launcher
