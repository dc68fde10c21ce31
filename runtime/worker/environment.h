// The launcher's variables as a WorkerInfo, from any source of variables, so that tests need not
// change the process's own environment.
#pragma once

#include <distrun/worker.h>

#include <functional>
#include <optional>
#include <string>

namespace distrun {

using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

WorkerInfo worker_info_from(const Lookup& variable);

// The part that joining a process group needs: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT must be
// set; the rest of the WorkerInfo has its defaults.
WorkerInfo rendezvous_info_from(const Lookup& variable);

Lookup process_environment();

}  // namespace distrun
