// The backend over any Api, as the ABI has it.
#pragma once

#include "runtime/nccl/api.h"
#include <distrun/backend_abi.h>

namespace distrun::nccl {

// One Api a process: the entries of the table are plain functions.  REQUIRES: called with the same
// one each time.
const drb_backend* backend_over(const Api& api);

}  // namespace distrun::nccl
