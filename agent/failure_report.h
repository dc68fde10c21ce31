// The failure report: who failed first and why, in the layout of torchrun's summary, extended by
// the first failure's own last lines and by who was only a victim.
//
// The text is made by a pure function out of what the agent saw; the error files that Python
// workers write (torch.distributed.elastic's `record`) are read and copied by the two functions
// below it.
#pragma once

#include "agent/core/events.h"
#include "agent/core/exit_status.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace distrun::agent {

// What a worker left in its error file.
struct ErrorFile {
  bool exists = false;         // there, and not empty
  std::string problem;         // why it could not be understood; empty: it could
  std::string message;         // "ValueError: ..."
  std::string traceback;       // the call stack; empty: none given
  std::int64_t timestamp = 0;  // seconds; 0: none given
  std::string text;            // the file's bytes
};

// How one worker ended, with all that helps to find out why.
struct WorkerEnd {
  Part part = Part::first_failure;
  Rank rank;
  LocalRank local_rank;
  std::string host;
  int pid = 0;
  ExitStatus status;
  std::chrono::system_clock::time_point ended;
  std::string error_file;  // its path; empty: none was given to the worker
  ErrorFile error;
  std::vector<std::string> last_err;  // last lines of its stderr and stdout, oldest first
  std::vector<std::string> last_out;
  std::string err_log;  // file with all of its stderr and stdout; empty: there is none
  std::string out_log;
};

struct FailureReport {
  std::string name;             // Command::display_name
  std::vector<WorkerEnd> ends;  // in the kernel's order of exits; one is Part::first_failure
  std::vector<std::string> flight = {};  // what the flight records say; empty: nothing
  std::string flight_folder = {};        // where they are; empty: nowhere
};

// The report, ending in a newline.  Times are shown in the zone of TZ.
std::string to_text(const FailureReport& report);

// As PyTorch counts: negative for a signal.
int elastic_exit_code(const ExitStatus& status);

// Reads at most 1 MiB.  Never fails: what is wrong with the file is in `problem`.
ErrorFile read_error_file(const std::string& path);

// Writes the root cause into the launcher's own error file (its TORCHELASTIC_ERROR_FILE), in the
// same schema with the exit code added, for whoever launched the launcher.  Replaces what is there.
Result<bool> write_root_cause(const FailureReport& report, const std::string& path);

}  // namespace distrun::agent
