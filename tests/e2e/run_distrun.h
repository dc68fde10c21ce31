// Runs the real distrun with scripted workers (tests/support/scripted_worker.cc).
#pragma once

#include "tests/support/run_program.h"

#include <string>
#include <vector>

namespace distrun::test {

// {DISTRUN, options…, SCRIPTED_WORKER, script…}
inline std::vector<std::string> distrun_with(const std::vector<std::string>& options,
                                             const std::vector<std::string>& script) {
  std::vector<std::string> argv{DISTRUN};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.push_back(SCRIPTED_WORKER);
  argv.insert(argv.end(), script.begin(), script.end());
  return argv;
}

inline Ran run_distrun(const std::vector<std::string>& options,
                       const std::vector<std::string>& script, RunOptions run = {}) {
  // What a surrounding torchrun or distrun may have set is not part of the test.
  for (const char* name : {"RANK", "LOCAL_RANK", "TORCHELASTIC_ERROR_FILE", "OMP_NUM_THREADS"}) {
    if (!run.environment.contains(name)) run.unset.push_back(name);
  }
  return run_program(distrun_with(options, script), run);
}

}  // namespace distrun::test
