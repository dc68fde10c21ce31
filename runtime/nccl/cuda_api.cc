// The real calls, behind Api.  The only file that sees CUDA's and NCCL's headers.
#include "runtime/nccl/cuda_api.h"

#include <nccl.h>

#include <algorithm>
#include <cuda_runtime_api.h>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
#error "NCCL 2.18 or newer is needed (non-blocking communicators, split)"
#endif
#define DISTRUN_NCCL_AT_LEAST(minor) (NCCL_VERSION_CODE >= NCCL_VERSION(2, minor, 0))

// A library that is older than the header lacks these: they are then null, instead of nobody being
// able to load the plug-in.
#pragma weak ncclCommSplit
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommInitRankScalable
#pragma weak ncclCommShrink

namespace distrun::nccl {
namespace {

template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(same(NcclResult::success, ncclSuccess));
static_assert(same(NcclResult::unhandled_cuda_error, ncclUnhandledCudaError));
static_assert(same(NcclResult::invalid_usage, ncclInvalidUsage));
static_assert(same(NcclResult::remote_error, ncclRemoteError));
static_assert(same(NcclResult::in_progress, ncclInProgress));
static_assert(same(NcclType::int8, ncclInt8) && same(NcclType::uint8, ncclUint8));
static_assert(same(NcclType::int32, ncclInt32) && same(NcclType::uint32, ncclUint32));
static_assert(same(NcclType::int64, ncclInt64) && same(NcclType::uint64, ncclUint64));
static_assert(same(NcclType::float16, ncclFloat16) && same(NcclType::float32, ncclFloat32));
static_assert(same(NcclType::float64, ncclFloat64) && same(NcclType::bfloat16, ncclBfloat16));
#if DISTRUN_NCCL_AT_LEAST(24)
static_assert(same(NcclType::float8e4m3, ncclFloat8e4m3));
static_assert(same(NcclType::float8e5m2, ncclFloat8e5m2));
#endif
static_assert(same(NcclOp::sum, ncclSum) && same(NcclOp::product, ncclProd));
static_assert(same(NcclOp::max, ncclMax) && same(NcclOp::min, ncclMin));
static_assert(same(NcclOp::avg, ncclAvg));
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(std::is_same_v<Stream, cudaStream_t> && std::is_same_v<Event, cudaEvent_t>);
static_assert(std::is_same_v<Comm, ncclComm_t>);
static_assert(same(CudaResult::insufficient_driver, cudaErrorInsufficientDriver));
static_assert(same(CudaResult::no_device, cudaErrorNoDevice));
static_assert(same(CudaResult::not_ready, cudaErrorNotReady));

CudaResult ours(cudaError_t result) {
  return static_cast<CudaResult>(result);
}
NcclResult ours(ncclResult_t result) {
  return static_cast<NcclResult>(result);
}
ncclDataType_t theirs(NcclType type) {
  return static_cast<ncclDataType_t>(type);
}
ncclRedOp_t theirs(int op) {
  return static_cast<ncclRedOp_t>(op);
}

// A copy that stays: how long NCCL keeps the pointer is not documented.
const char* for_ever(const std::string& text) {
  static std::mutex mutex;
  static auto* const all = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return all->insert(text).first->c_str();
}

ncclConfig_t theirs(const CommConfig& config) {
  ncclConfig_t out = NCCL_CONFIG_INITIALIZER;
  out.blocking = 0;
  const auto set = [](int& field, int value) {
    if (value != CommConfig::kUnset) field = value;
  };
  set(out.cgaClusterSize, config.cga_cluster_size);
  set(out.minCTAs, config.min_ctas);
  set(out.maxCTAs, config.max_ctas);
  if (!config.net_name.empty()) out.netName = for_ever(config.net_name);
  set(out.splitShare, config.split_share);
#if DISTRUN_NCCL_AT_LEAST(27)
  set(out.trafficClass, config.traffic_class);
  if (!config.comm_name.empty()) out.commName = for_ever(config.comm_name);
#endif
  return out;
}

ncclUniqueId theirs(const UniqueId& id) {
  ncclUniqueId out;
  std::copy(id.begin(), id.end(), out.internal);
  return out;
}

CudaResult get_device_count(int* count) {
  return ours(cudaGetDeviceCount(count));
}
CudaResult get_device(int* device) {
  return ours(cudaGetDevice(device));
}
CudaResult set_device(int device) {
  return ours(cudaSetDevice(device));
}
CudaResult runtime_version(int* version) {
  return ours(cudaRuntimeGetVersion(version));
}
CudaResult driver_version(int* version) {
  return ours(cudaDriverGetVersion(version));
}
const char* cuda_error_text(CudaResult result) {
  return cudaGetErrorString(static_cast<cudaError_t>(result));
}
CudaResult take_last_error() {
  return ours(cudaGetLastError());
}
CudaResult malloc_device(void** data, std::size_t bytes) {
  return ours(cudaMalloc(data, bytes));
}
CudaResult free_device(void* data) {
  return ours(cudaFree(data));
}
CudaResult copy_async(void* to, const void* from, std::size_t bytes, Stream stream) {
  return ours(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}
CudaResult zero_async(void* data, std::size_t bytes, Stream stream) {
  return ours(cudaMemsetAsync(data, 0, bytes, stream));
}
CudaResult stream_create(Stream* stream, bool high_priority) {
  int least = 0;
  int greatest = 0;
  if (const auto result = cudaDeviceGetStreamPriorityRange(&least, &greatest);
      result != cudaSuccess) {
    return ours(result);
  }
  return ours(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking,
                                           high_priority ? greatest : least));
}
CudaResult stream_destroy(Stream stream) {
  return ours(cudaStreamDestroy(stream));
}
CudaResult stream_wait_event(Stream stream, Event event) {
  return ours(cudaStreamWaitEvent(stream, event, 0));
}
CudaResult stream_is_capturing(Stream stream, bool* capturing) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const auto result = cudaStreamIsCapturing(stream, &status);
  *capturing = status != cudaStreamCaptureStatusNone;
  return ours(result);
}
CudaResult event_create(Event* event) {
  return ours(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
}
CudaResult event_destroy(Event event) {
  return ours(cudaEventDestroy(event));
}
CudaResult event_record(Event event, Stream stream) {
  return ours(cudaEventRecord(event, stream));
}
CudaResult event_query(Event event) {
  return ours(cudaEventQuery(event));
}
static_assert(kRelaxed == cudaStreamCaptureModeRelaxed);
CudaResult exchange_capture_mode(int* mode) {
  auto native = static_cast<cudaStreamCaptureMode>(*mode);
  const CudaResult result = ours(cudaThreadExchangeStreamCaptureMode(&native));
  *mode = native;
  return result;
}

NcclResult version(int* out) {
  return ours(ncclGetVersion(out));
}
const char* error_text(NcclResult result) {
  return ncclGetErrorString(static_cast<ncclResult_t>(result));
}
const char* last_error(Comm comm) {
  return ncclGetLastError(comm);
}
NcclResult get_unique_id(UniqueId* id) {
  ncclUniqueId theirs_id;
  const auto result = ncclGetUniqueId(&theirs_id);
  if (result == ncclSuccess) {
    std::copy(theirs_id.internal, theirs_id.internal + id->size(), id->begin());
  }
  return ours(result);
}
NcclResult init_rank(Comm* comm, int world_size, const UniqueId& id, int rank,
                     const CommConfig& config) {
  ncclConfig_t native = theirs(config);
  return ours(ncclCommInitRankConfig(comm, world_size, theirs(id), rank, &native));
}
#if DISTRUN_NCCL_AT_LEAST(23)
NcclResult init_rank_scalable(Comm* comm, int world_size, int rank, std::span<const UniqueId> ids,
                              const CommConfig& config) {
  ncclConfig_t native = theirs(config);
  std::vector<ncclUniqueId> native_ids;
  native_ids.reserve(ids.size());
  for (const UniqueId& id : ids) native_ids.push_back(theirs(id));
  return ours(ncclCommInitRankScalable(comm, world_size, rank, static_cast<int>(ids.size()),
                                       native_ids.data(), &native));
}
#endif
NcclResult async_error(Comm comm, NcclResult* state) {
  ncclResult_t native = ncclSuccess;
  const auto result = ncclCommGetAsyncError(comm, &native);
  *state = ours(native);
  return ours(result);
}
NcclResult finalize(Comm comm) {
  return ours(ncclCommFinalize(comm));
}
NcclResult destroy(Comm comm) {
  return ours(ncclCommDestroy(comm));
}
NcclResult abort(Comm comm) {
  return ours(ncclCommAbort(comm));
}
NcclResult split(Comm comm, int colour, int key, Comm* out, const CommConfig& config) {
  ncclConfig_t native = theirs(config);
  return ours(ncclCommSplit(comm, colour < 0 ? NCCL_SPLIT_NOCOLOR : colour, key, out, &native));
}
#if DISTRUN_NCCL_AT_LEAST(27)
NcclResult shrink(Comm comm, std::span<int> exclude, Comm* out, const CommConfig& config,
                  bool abort_first) {
  ncclConfig_t native = theirs(config);
  return ours(ncclCommShrink(comm, exclude.data(), static_cast<int>(exclude.size()), out, &native,
                             abort_first ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT));
}
#endif
NcclResult group_start() {
  return ours(ncclGroupStart());
}
NcclResult group_end() {
  return ours(ncclGroupEnd());
}
NcclResult all_reduce(const void* in, void* out, std::size_t count, NcclType type, int op,
                      Comm comm, Stream stream) {
  return ours(ncclAllReduce(in, out, count, theirs(type), theirs(op), comm, stream));
}
NcclResult reduce(const void* in, void* out, std::size_t count, NcclType type, int op, int root,
                  Comm comm, Stream stream) {
  return ours(ncclReduce(in, out, count, theirs(type), theirs(op), root, comm, stream));
}
NcclResult broadcast(const void* in, void* out, std::size_t count, NcclType type, int root,
                     Comm comm, Stream stream) {
  return ours(ncclBroadcast(in, out, count, theirs(type), root, comm, stream));
}
NcclResult all_gather(const void* in, void* out, std::size_t in_count, NcclType type, Comm comm,
                      Stream stream) {
  return ours(ncclAllGather(in, out, in_count, theirs(type), comm, stream));
}
NcclResult reduce_scatter(const void* in, void* out, std::size_t out_count, NcclType type, int op,
                          Comm comm, Stream stream) {
  return ours(ncclReduceScatter(in, out, out_count, theirs(type), theirs(op), comm, stream));
}
NcclResult send(const void* in, std::size_t count, NcclType type, int peer, Comm comm,
                Stream stream) {
  return ours(ncclSend(in, count, theirs(type), peer, comm, stream));
}
NcclResult recv(void* out, std::size_t count, NcclType type, int peer, Comm comm, Stream stream) {
  return ours(ncclRecv(out, count, theirs(type), peer, comm, stream));
}
NcclResult premul_sum_create(int* op, const void* factor, NcclType type, bool on_device,
                             Comm comm) {
  ncclRedOp_t native{};
  const auto result =
      ncclRedOpCreatePreMulSum(&native, const_cast<void*>(factor), theirs(type),
                               on_device ? ncclScalarDevice : ncclScalarHostImmediate, comm);
  *op = static_cast<int>(native);
  return ours(result);
}
NcclResult op_destroy(int op, Comm comm) {
  return ours(ncclRedOpDestroy(theirs(op), comm));
}
#if DISTRUN_NCCL_AT_LEAST(19)
NcclResult register_memory(Comm comm, void* data, std::size_t bytes, void** handle) {
  return ours(ncclCommRegister(comm, data, bytes, handle));
}
NcclResult deregister_memory(Comm comm, void* handle) {
  return ours(ncclCommDeregister(comm, handle));
}
NcclResult allocate(void** data, std::size_t bytes) {
  return ours(ncclMemAlloc(data, bytes));
}
NcclResult deallocate(void* data) {
  return ours(ncclMemFree(data));
}
#endif

Api make_api() {
  Api api{
      .get_device_count = get_device_count,
      .get_device = get_device,
      .set_device = set_device,
      .runtime_version = runtime_version,
      .driver_version = driver_version,
      .cuda_error_text = cuda_error_text,
      .take_last_error = take_last_error,
      .malloc_device = malloc_device,
      .free_device = free_device,
      .copy_async = copy_async,
      .zero_async = zero_async,
      .stream_create = stream_create,
      .stream_destroy = stream_destroy,
      .stream_wait_event = stream_wait_event,
      .stream_is_capturing = stream_is_capturing,
      .event_create = event_create,
      .event_destroy = event_destroy,
      .event_record = event_record,
      .event_query = event_query,
      .exchange_capture_mode = exchange_capture_mode,
      .version = version,
      .error_text = error_text,
      .last_error = last_error,
      .get_unique_id = get_unique_id,
      .init_rank = init_rank,
      .init_rank_scalable = nullptr,
      .async_error = async_error,
      .finalize = finalize,
      .destroy = destroy,
      .abort = abort,
      .split = nullptr,
      .shrink = nullptr,
      .group_start = group_start,
      .group_end = group_end,
      .all_reduce = all_reduce,
      .reduce = reduce,
      .broadcast = broadcast,
      .all_gather = all_gather,
      .reduce_scatter = reduce_scatter,
      .send = send,
      .recv = recv,
      .premul_sum_create = premul_sum_create,
      .op_destroy = op_destroy,
      .register_memory = nullptr,
      .deregister_memory = nullptr,
      .allocate = nullptr,
      .deallocate = nullptr,
  };
  if (&ncclCommSplit != nullptr) api.split = split;
#if DISTRUN_NCCL_AT_LEAST(19)
  if (&ncclCommRegister != nullptr) {
    api.register_memory = register_memory;
    api.deregister_memory = deregister_memory;
  }
  if (&ncclMemAlloc != nullptr) {
    api.allocate = allocate;
    api.deallocate = deallocate;
  }
#endif
#if DISTRUN_NCCL_AT_LEAST(23)
  if (&ncclCommInitRankScalable != nullptr) api.init_rank_scalable = init_rank_scalable;
#endif
#if DISTRUN_NCCL_AT_LEAST(27)
  if (&ncclCommShrink != nullptr) api.shrink = shrink;
#endif
  return api;
}

}  // namespace

const Api& cuda_api() {
  static const Api api = make_api();
  return api;
}

}  // namespace distrun::nccl
