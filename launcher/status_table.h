// The answer of a coordinator's /status, as people read it.  Pure.
//
//   train  sealed  round 3  2 nodes of 2:4  restarts 1 of 3
//     last failure: rank 5 (local rank 1, pid 77) on host-b: exited with status 3
//     RANK  HOST    ADDRESS   STATE    WORKERS  LAST BEAT
//     0     host-a  10.0.0.1  working  4        0.3 s ago  hosts the coordinator
//     1     host-b  10.0.0.2  working  4        0.9 s ago  lost 1 time
//     -     host-c  10.0.0.3  waiting  4        0.2 s ago
#pragma once

#include "runtime/base/result.h"

#include <string>
#include <string_view>

namespace distrun::launcher {

// `job`: only that one; empty: all.  Errors: not_found, with the jobs that there are; protocol, if
// the text is not what a coordinator answers.  What it shows holds no control characters.
Result<std::string> status_table(std::string_view json, std::string_view job);
// The same as one line of JSON, as the coordinator wrote it.
Result<std::string> status_json_of(std::string_view json, std::string_view job);

}  // namespace distrun::launcher
