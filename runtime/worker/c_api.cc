// The C interface in terms of the C++ one: checks what C cannot, and turns exceptions into codes.
#include "runtime/worker/reduction.h"
#include <distrun/backend.h>
#include <distrun/distrun.h>
#include <distrun/process_group.h>

#include <cstring>
#include <functional>
#include <limits>
#include <utility>

struct distrun_group_s {
  std::shared_ptr<distrun::ProcessGroup> group;
  distrun::Device device = {};  // of the memory of its calls
  void* stream = nullptr;
};
struct distrun_work_s {
  distrun::Work work;
};
struct distrun_buffer_s {
  distrun::Buffer buffer;
};

namespace distrun {
namespace {

thread_local std::string last_error;
thread_local int last_error_rank = -1;

distrun_result code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return DISTRUN_INVALID_ARGUMENT;
    case ErrorKind::unsupported:
      return DISTRUN_UNSUPPORTED;
    case ErrorKind::store:
    case ErrorKind::queue_empty:
      return DISTRUN_STORE;
    case ErrorKind::timeout:
      return DISTRUN_TIMEOUT;
    case ErrorKind::network:
      return DISTRUN_NETWORK;
    case ErrorKind::backend:
      return DISTRUN_BACKEND;
  }
  return DISTRUN_INTERNAL;
}

template <class F>
distrun_result guarded(F f) {
  last_error_rank = -1;
  try {
    f();
    last_error.clear();
    return DISTRUN_SUCCESS;
  } catch (const DistError& error) {
    last_error = error.what();
    last_error_rank = error.peer_rank().value_or(-1);
    return code_of(error.kind());
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an exception of another kind";
  }
  return DISTRUN_INTERNAL;
}

ProcessGroup& group_of(distrun_group group) {
  if (group == nullptr) throw DistArgumentError("a null group");
  return *group->group;
}

DType dtype_of_code(distrun_dtype dtype) {
  if (dtype < 0 || dtype >= kDTypes)
    throw DistArgumentError("an unknown dtype: " + std::to_string(dtype));
  return static_cast<DType>(dtype);
}

ReduceOp op_of(distrun_op op) {
  if (op < 0 || op > DISTRUN_BXOR)
    throw DistArgumentError("an unknown reduce operation: " + std::to_string(op));
  return static_cast<ReduceOp>(op);
}
static_assert(static_cast<int>(ReduceOp::bxor) == DISTRUN_BXOR);
static_assert(static_cast<int>(DType::complex128) == DISTRUN_COMPLEX128);

Timeout timeout_of(std::int64_t milliseconds) {
  if (milliseconds < 0)
    throw DistArgumentError("a negative timeout: " + std::to_string(milliseconds) + " ms");
  return Timeout(milliseconds);
}

Device device_of(distrun_group group) {
  group_of(group);
  return group->device;
}

CallOptions options_of(distrun_group group, const distrun_work* work) {
  return {.async_op = work != nullptr, .stream = group->stream};
}

void give(Work result, distrun_work* work) {
  if (work != nullptr) *work = new distrun_work_s{std::move(result)};
}

// Of `ranks` times `count` elements, whose size is then a number, too.
void check(const void* data, std::size_t count, DType dtype, int ranks = 1) {
  if (data == nullptr && count > 0)
    throw DistArgumentError("a null pointer to " + std::to_string(count) + " elements");
  if (count >
      std::numeric_limits<std::size_t>::max() / size_of(dtype) / static_cast<std::size_t>(ranks))
    throw DistArgumentError("a count that no memory can hold: " + std::to_string(count));
}

// In place is what the C++ calls do.  Nothing is written before all is checked.
void copy(void* to, const void* from, std::size_t count, DType dtype, Device device) {
  check(to, count, dtype);
  check(from, count, dtype);
  if (to != from && count > 0 && !is_host_memory(device))
    throw DistUnsupportedError("on " + to_string(device) +
                               " a reduction is in place: give one pointer for send and recv");
  if (to != from && count > 0) std::memmove(to, from, count * size_of(dtype));
}

// A device's backend has its own table.
void check_reduction(DType dtype, Reduction reduction, Device device) {
  if (!is_host_memory(device)) return;
  if (const std::string why = why_no_reduction(dtype, reduction.op()); !why.empty())
    throw DistArgumentError(why);
}

template <class Pointer, class View>
std::vector<View> parts_of(Pointer* data, const std::size_t* counts, DType dtype, int size,
                           Device device) {
  if (counts == nullptr) throw DistArgumentError("null counts");
  std::vector<View> parts;
  using Byte = std::conditional_t<std::is_const_v<Pointer>, const std::byte, std::byte>;
  auto* at = static_cast<Byte*>(data);
  for (int rank = 0; rank < size; ++rank) {
    check(data, counts[rank], dtype, size);
    parts.emplace_back(at, counts[rank], dtype, device);
    if (at != nullptr) at += counts[rank] * size_of(dtype);
  }
  return parts;
}

distrun_result all_reduce(const void* send, void* recv, std::size_t count, distrun_dtype dtype,
                          const std::function<Reduction()>& reduction, distrun_group group,
                          distrun_work* work) {
  return guarded([&] {
    ProcessGroup& g = group_of(group);
    const DType type = dtype_of_code(dtype);
    const Reduction how = reduction();
    check_reduction(type, how, group->device);
    copy(recv, send, count, type, group->device);
    give(g.all_reduce(Tensor(recv, count, type, group->device), how, options_of(group, work)),
         work);
  });
}

}  // namespace
}  // namespace distrun

using namespace distrun;

const char* distrun_last_error(void) {
  return last_error.c_str();
}

int32_t distrun_last_error_rank(void) {
  return last_error_rank;
}

// ---- groups ------------------------------------------------------------------------------------

distrun_result distrun_init(const distrun_config* config, distrun_group* group) {
  return guarded([&] {
    if (config == nullptr || group == nullptr)
      throw DistArgumentError("distrun_init: a null pointer");
    if (config->size < sizeof(distrun_config))
      throw DistArgumentError("distrun_init: a config of " + std::to_string(config->size) +
                              " bytes; begin with DISTRUN_CONFIG_INITIALIZER");
    *group = nullptr;
    GroupOptions options;
    options.rank = config->rank;
    options.world_size = config->world_size;
    if (config->timeout_ms != 0) options.timeout = timeout_of(config->timeout_ms);
    if (config->init_method != nullptr) options.init_method = config->init_method;
    if (config->name != nullptr) options.name = config->name;
    *group = new distrun_group_s{
        init_process_group(config->backend == nullptr ? "gloo" : config->backend, options)};
  });
}

distrun_result distrun_register_backend(const char* name, const char* library, drb_entry entry) {
  return guarded([&] {
    if (name == nullptr || (library == nullptr) == (entry == nullptr))
      throw DistArgumentError(
          "distrun_register_backend: wants a name, and a library or an entry function");
    library != nullptr ? register_backend(name, std::string(library))
                       : register_backend(name, entry);
  });
}

distrun_result distrun_new_group(distrun_group parent, const int32_t* ranks, size_t n,
                                 int64_t timeout_ms, distrun_group* group) {
  return guarded([&] {
    if ((ranks == nullptr && n > 0) || group == nullptr)
      throw DistArgumentError("distrun_new_group: a null pointer");
    *group = nullptr;
    SubgroupOptions options;
    options.timeout = timeout_of(timeout_ms);
    auto made = group_of(parent).new_group(std::span<const int>(ranks, n), options);
    if (made) *group = new distrun_group_s{std::move(made), parent->device, parent->stream};
  });
}

int32_t distrun_rank(distrun_group group) {
  return group == nullptr ? -1 : group->group->rank();
}

int32_t distrun_size(distrun_group group) {
  return group == nullptr ? -1 : group->group->size();
}

distrun_result distrun_use_device(distrun_group group, distrun_device device, int32_t index,
                                  void* stream) {
  return guarded([&] {
    group_of(group);
    if (device != DISTRUN_CPU && device != DISTRUN_CUDA && device != DISTRUN_CUDA_HOST &&
        device != DISTRUN_ROCM)
      throw DistArgumentError("an unknown device: " + std::to_string(device));
    group->device = {static_cast<DeviceType>(device), index};
    group->stream = stream;
  });
}

distrun_result distrun_close(distrun_group group, int64_t timeout_ms) {
  return guarded([&] {
    ProcessGroup& g = group_of(group);
    g.close(timeout_ms == 0 ? g.timeout() : timeout_of(timeout_ms));
  });
}

distrun_result distrun_abort(distrun_group group, const char* why) {
  return guarded([&] { group_of(group).abort(why == nullptr ? "it was told to" : why); });
}

void distrun_free(distrun_group group) {
  delete group;
}

// ---- memory ------------------------------------------------------------------------------------

distrun_result distrun_allocate(distrun_group group, size_t bytes, distrun_buffer* buffer) {
  return guarded([&] {
    if (buffer == nullptr) throw DistArgumentError("no place for the buffer");
    *buffer = nullptr;
    *buffer = new distrun_buffer_s{group_of(group).allocate(bytes)};
  });
}

void* distrun_buffer_data(distrun_buffer buffer) {
  return buffer == nullptr ? nullptr : buffer->buffer.data();
}

int32_t distrun_buffer_is_registered(distrun_buffer buffer) {
  return buffer != nullptr && buffer->buffer.is_registered() ? 1 : 0;
}

void distrun_buffer_free(distrun_buffer buffer) {
  delete buffer;
}

// ---- collectives -------------------------------------------------------------------------------

distrun_result distrun_broadcast(void* data, size_t count, distrun_dtype dtype, int32_t root,
                                 distrun_group group, distrun_work* work) {
  return guarded([&] {
    const Tensor tensor(data, count, dtype_of_code(dtype), device_of(group));
    give(group_of(group).broadcast(tensor, root, options_of(group, work)), work);
  });
}

distrun_result distrun_all_reduce(const void* send, void* recv, size_t count, distrun_dtype dtype,
                                  distrun_op op, distrun_group group, distrun_work* work) {
  return all_reduce(
      send, recv, count, dtype, [&] { return Reduction(op_of(op)); }, group, work);
}

distrun_result distrun_all_reduce_premul_sum(const void* send, void* recv, size_t count,
                                             distrun_dtype dtype, double factor,
                                             distrun_group group, distrun_work* work) {
  return all_reduce(
      send, recv, count, dtype, [&] { return Reduction::premul_sum(factor); }, group, work);
}

distrun_result distrun_reduce(const void* send, void* recv, size_t count, distrun_dtype dtype,
                              distrun_op op, int32_t root, distrun_group group,
                              distrun_work* work) {
  return guarded([&] {
    ProcessGroup& g = group_of(group);
    const DType type = dtype_of_code(dtype);
    const Reduction how = op_of(op);
    check_reduction(type, how, group->device);
    // Only the root's is written to.
    const bool gets = g.rank() == root;
    if (gets) copy(recv, send, count, type, group->device);
    const Tensor data(gets ? recv : const_cast<void*>(send), count, type, group->device);
    give(g.reduce(data, root, how, options_of(group, work)), work);
  });
}

distrun_result distrun_all_gather(const void* send, void* recv, size_t count, distrun_dtype dtype,
                                  distrun_group group, distrun_work* work) {
  return guarded([&] {
    ProcessGroup& g = group_of(group);
    const DType type = dtype_of_code(dtype);
    check(recv, count, type, g.size());
    const Tensor out(recv, count * static_cast<std::size_t>(g.size()), type, group->device);
    give(g.all_gather_into_tensor(out, ConstTensor(send, count, type, group->device),
                                  options_of(group, work)),
         work);
  });
}

distrun_result distrun_all_gather_v(const void* send, void* recv, const size_t* recv_counts,
                                    distrun_dtype dtype, distrun_group group, distrun_work* work) {
  return guarded([&] {
    ProcessGroup& g = group_of(group);
    const DType type = dtype_of_code(dtype);
    const auto outs = parts_of<void, Tensor>(recv, recv_counts, type, g.size(), group->device);
    const ConstTensor in(send, recv_counts[g.rank()], type, group->device);
    give(g.all_gather(outs, in, options_of(group, work)), work);
  });
}

distrun_result distrun_gather(const void* send, void* recv, size_t count, distrun_dtype dtype,
                              int32_t root, distrun_group group, distrun_work* work) {
  return guarded([&] {
    ProcessGroup& g = group_of(group);
    const DType type = dtype_of_code(dtype);
    const std::vector<std::size_t> counts(static_cast<std::size_t>(g.size()), count);
    std::vector<Tensor> outs;
    if (g.rank() == root)
      outs = parts_of<void, Tensor>(recv, counts.data(), type, g.size(), group->device);
    give(g.gather(ConstTensor(send, count, type, group->device), outs, root,
                  options_of(group, work)),
         work);
  });
}

distrun_result distrun_scatter(const void* send, void* recv, size_t count, distrun_dtype dtype,
                               int32_t root, distrun_group group, distrun_work* work) {
  return guarded([&] {
    ProcessGroup& g = group_of(group);
    const DType type = dtype_of_code(dtype);
    const std::vector<std::size_t> counts(static_cast<std::size_t>(g.size()), count);
    std::vector<ConstTensor> ins;
    if (g.rank() == root)
      ins = parts_of<const void, ConstTensor>(send, counts.data(), type, g.size(), group->device);
    give(g.scatter(Tensor(recv, count, type, group->device), ins, root, options_of(group, work)),
         work);
  });
}

distrun_result distrun_reduce_scatter(const void* send, void* recv, size_t count,
                                      distrun_dtype dtype, distrun_op op, distrun_group group,
                                      distrun_work* work) {
  return guarded([&] {
    ProcessGroup& g = group_of(group);
    const DType type = dtype_of_code(dtype);
    check(send, count, type, g.size());
    const ConstTensor in(send, count * static_cast<std::size_t>(g.size()), type, group->device);
    give(g.reduce_scatter_tensor(Tensor(recv, count, type, group->device), in, op_of(op),
                                 options_of(group, work)),
         work);
  });
}

distrun_result distrun_all_to_all(const void* send, void* recv, size_t count, distrun_dtype dtype,
                                  distrun_group group, distrun_work* work) {
  return guarded([&] {
    ProcessGroup& g = group_of(group);
    const DType type = dtype_of_code(dtype);
    check(send, count, type, g.size());
    const std::size_t all = count * static_cast<std::size_t>(g.size());
    give(g.all_to_all_single(Tensor(recv, all, type, group->device),
                             ConstTensor(send, all, type, group->device), {}, {},
                             options_of(group, work)),
         work);
  });
}

distrun_result distrun_all_to_all_v(const void* send, const size_t* send_counts, void* recv,
                                    const size_t* recv_counts, distrun_dtype dtype,
                                    distrun_group group, distrun_work* work) {
  return guarded([&] {
    ProcessGroup& g = group_of(group);
    const DType type = dtype_of_code(dtype);
    const auto outs = parts_of<void, Tensor>(recv, recv_counts, type, g.size(), group->device);
    const auto ins =
        parts_of<const void, ConstTensor>(send, send_counts, type, g.size(), group->device);
    give(g.all_to_all(outs, ins, options_of(group, work)), work);
  });
}

distrun_result distrun_barrier(distrun_group group, distrun_work* work) {
  return guarded([&] { give(group_of(group).barrier(options_of(group, work)), work); });
}

// ---- between two ranks -------------------------------------------------------------------------

distrun_result distrun_send(const void* data, size_t count, distrun_dtype dtype, int32_t to,
                            int32_t tag, distrun_group group, distrun_work* work) {
  return guarded([&] {
    ProcessGroup& g = group_of(group);
    const ConstTensor tensor(data, count, dtype_of_code(dtype), group->device);
    const CallOptions options = options_of(group, work);
    if (work == nullptr) return g.send(tensor, to, tag, options);
    give(g.isend(tensor, to, tag, options), work);
  });
}

distrun_result distrun_recv(void* data, size_t count, distrun_dtype dtype, int32_t from,
                            int32_t tag, distrun_group group, int32_t* source, distrun_work* work) {
  return guarded([&] {
    ProcessGroup& g = group_of(group);
    const Tensor tensor(data, count, dtype_of_code(dtype), group->device);
    const auto whom = from == DISTRUN_ANY_SOURCE ? std::nullopt : std::optional<int>(from);
    const CallOptions options = options_of(group, work);
    if (work != nullptr) return give(g.irecv(tensor, whom, tag, options), work);
    const int sender = g.recv(tensor, whom, tag, options);
    if (source != nullptr) *source = sender;
  });
}

// ---- works -------------------------------------------------------------------------------------

distrun_result distrun_work_wait(distrun_work work, int64_t timeout_ms) {
  return guarded([&] {
    if (work == nullptr) throw DistArgumentError("a null work");
    timeout_ms == 0 ? work->work.wait() : work->work.wait(timeout_of(timeout_ms));
  });
}

distrun_result distrun_work_wait_on(distrun_work work, void* stream) {
  return guarded([&] {
    if (work == nullptr) throw DistArgumentError("a null work");
    work->work.wait_on(stream);
  });
}

distrun_result distrun_work_test(distrun_work work, int32_t* done) {
  return guarded([&] {
    if (work == nullptr || done == nullptr) throw DistArgumentError("a null work");
    *done = work->work.is_completed() ? 1 : 0;
  });
}

int32_t distrun_work_source(distrun_work work) {
  return work == nullptr ? -1 : work->work.source_rank().value_or(-1);
}

void distrun_work_free(distrun_work work) {
  delete work;
}
