// The calls of the CUDA runtime and of NCCL that this backend makes, as one table of pointers: the
// real ones (cuda_api.cc) in the plug-in, a double's in the tests.  No header of CUDA or NCCL is
// needed to compile against it, so that all of this folder but cuda_api.cc builds, and is tested,
// everywhere.
//
// The calls mean what the functions they are named after do.  Null where the library that is loaded
// has none: marked (optional).
#pragma once

#include "runtime/nccl/core/codes.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

// As CUDA and NCCL declare them.
struct CUstream_st;
struct CUevent_st;
struct ncclComm;

namespace distrun::nccl {

using Stream = CUstream_st*;
using Event = CUevent_st*;
using Comm = ncclComm*;

// cudaError_t's values that we tell apart.
enum class CudaResult : int {
  success = 0,
  insufficient_driver = 35,
  no_device = 100,
  not_ready = 600,
};

using UniqueId = std::array<char, 128>;

// What we set of ncclConfig_t, always with blocking = 0; kUnset leaves NCCL's own choice.
struct CommConfig {
  static constexpr int kUnset = INT32_MIN;
  int cga_cluster_size = kUnset;
  int min_ctas = kUnset;
  int max_ctas = kUnset;
  int split_share = kUnset;
  int traffic_class = kUnset;
  std::string net_name;
  std::string comm_name;
};

inline constexpr int kRelaxed = 2;  // cudaStreamCaptureModeRelaxed

struct Api {
  // The CUDA runtime.
  CudaResult (*get_device_count)(int* count);
  CudaResult (*get_device)(int* device);
  CudaResult (*set_device)(int device);
  CudaResult (*runtime_version)(int* version);
  CudaResult (*driver_version)(int* version);
  const char* (*cuda_error_text)(CudaResult result);
  // Takes the error of a launch off the calling thread, so that nobody else finds it.
  CudaResult (*take_last_error)();
  CudaResult (*malloc_device)(void** data, std::size_t bytes);
  CudaResult (*free_device)(void* data);
  CudaResult (*copy_async)(void* to, const void* from, std::size_t bytes, Stream stream);
  CudaResult (*zero_async)(void* data, std::size_t bytes, Stream stream);
  // Non-blocking: not ordered with the default stream.
  CudaResult (*stream_create)(Stream* stream, bool high_priority);
  CudaResult (*stream_destroy)(Stream stream);
  CudaResult (*stream_wait_event)(Stream stream, Event event);
  CudaResult (*stream_is_capturing)(Stream stream, bool* capturing);
  CudaResult (*event_create)(Event* event);  // without timing
  CudaResult (*event_destroy)(Event event);
  CudaResult (*event_record)(Event event, Stream stream);
  CudaResult (*event_query)(Event event);
  // The calling thread's; *mode becomes what it was.  kRelaxed: its queries end no capture that
  // another thread, or itself, has begun.
  CudaResult (*exchange_capture_mode)(int* mode);

  // NCCL.
  NcclResult (*version)(int* version);
  const char* (*error_text)(NcclResult result);
  const char* (*last_error)(Comm comm);
  NcclResult (*get_unique_id)(UniqueId* id);
  NcclResult (*init_rank)(Comm* comm, int world_size, const UniqueId& id, int rank,
                          const CommConfig& config);
  NcclResult (*init_rank_scalable)(Comm* comm, int world_size, int rank,
                                   std::span<const UniqueId> ids,
                                   const CommConfig& config);  // (optional)
  NcclResult (*async_error)(Comm comm, NcclResult* state);
  NcclResult (*finalize)(Comm comm);
  NcclResult (*destroy)(Comm comm);
  NcclResult (*abort)(Comm comm);
  NcclResult (*split)(Comm comm, int colour, int key, Comm* out,
                      const CommConfig& config);  // (optional)
  NcclResult (*shrink)(Comm comm, std::span<int> exclude, Comm* out, const CommConfig& config,
                       bool abort);  // (optional)
  NcclResult (*group_start)();
  NcclResult (*group_end)();
  NcclResult (*all_reduce)(const void* in, void* out, std::size_t count, NcclType type, int op,
                           Comm comm, Stream stream);
  NcclResult (*reduce)(const void* in, void* out, std::size_t count, NcclType type, int op,
                       int root, Comm comm, Stream stream);
  NcclResult (*broadcast)(const void* in, void* out, std::size_t count, NcclType type, int root,
                          Comm comm, Stream stream);
  NcclResult (*all_gather)(const void* in, void* out, std::size_t in_count, NcclType type,
                           Comm comm, Stream stream);
  NcclResult (*reduce_scatter)(const void* in, void* out, std::size_t out_count, NcclType type,
                               int op, Comm comm, Stream stream);
  NcclResult (*send)(const void* in, std::size_t count, NcclType type, int peer, Comm comm,
                     Stream stream);
  NcclResult (*recv)(void* out, std::size_t count, NcclType type, int peer, Comm comm,
                     Stream stream);
  // The factor is read from the host before it returns, or from the device when the operation runs.
  NcclResult (*premul_sum_create)(int* op, const void* factor, NcclType type, bool on_device,
                                  Comm comm);
  NcclResult (*op_destroy)(int op, Comm comm);
  NcclResult (*register_memory)(Comm comm, void* data, std::size_t bytes,
                                void** handle);              // (optional)
  NcclResult (*deregister_memory)(Comm comm, void* handle);  // (optional)
  NcclResult (*allocate)(void** data, std::size_t bytes);    // (optional)
  NcclResult (*deallocate)(void* data);                      // (optional)
};

}  // namespace distrun::nccl
