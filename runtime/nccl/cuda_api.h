// The real CUDA runtime and NCCL, as an Api.
#pragma once

#include "runtime/nccl/api.h"

namespace distrun::nccl {

const Api& cuda_api();

}  // namespace distrun::nccl
