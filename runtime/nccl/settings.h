// This backend's settings: an option of create() (`min_ctas`), else the environment's variable
// (DISTRUN_NCCL_MIN_CTAS), else the default here.  A value that makes no sense is an error that
// names it.  NCCL's own variables (NCCL_DEBUG, NCCL_SOCKET_IFNAME, …) are read by NCCL and not by
// us.
#pragma once

#include "runtime/nccl/api.h"

#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace distrun::nccl {

struct Settings {
  using Milliseconds = std::chrono::milliseconds;

  CommConfig comm;
  bool high_priority = false;     // of the group's own stream
  bool blocking_wait = false;     // wait() and synchronous calls block the host until all is done
  int ranks_per_root = 128;       // above it, several meeting points share the work of connecting
  Milliseconds watchdog{100};     // between two looks at what is pending
  Milliseconds store_poll{1000};  // between two looks for another rank's failure; 0: never
  Milliseconds diagnosis{2500};   // after a failure: how long to ask where the others are

  Milliseconds abort_patience{30'000};  // for ncclCommAbort; then callers are released nevertheless

  using Pairs = std::vector<std::pair<std::string, std::string>>;
  // Throws Failed.  `environment` gives a variable's value, or null.
  static Settings from(const Pairs& options, const char* (*environment)(const char* name));
};

}  // namespace distrun::nccl
