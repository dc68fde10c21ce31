// What libdistrun_nccl.so exports.
#include "runtime/nccl/cuda_api.h"
#include "runtime/nccl/plugin.h"

extern "C" __attribute__((visibility("default"))) const drb_backend* distrun_backend_entry(
    uint32_t host_abi) {
  // Later hosts know this ABI, since it only grows.
  if (host_abi < DRB_ABI) return nullptr;
  return distrun::nccl::backend_over(distrun::nccl::cuda_api());
}
