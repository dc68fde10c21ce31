// The border: C structs in, C structs out, no exception across.
#include "runtime/nccl/plugin.h"

#include "runtime/base/check.h"
#include "runtime/nccl/failed.h"
#include "runtime/nccl/group.h"
#include "runtime/nccl/work.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

struct drb_group {
  std::shared_ptr<distrun::nccl::Group> group;
};
struct drb_work {
  std::shared_ptr<distrun::nccl::Work> work;
};

namespace distrun::nccl {
namespace {

static_assert(static_cast<int>(OpKind::barrier) == DRB_BARRIER && kOpKinds == DRB_BARRIER + 1);
static_assert(static_cast<int>(OpKind::all_to_all) == DRB_ALL_TO_ALL);
static_assert(static_cast<int>(OpKind::send) == DRB_SEND);
static_assert(static_cast<int>(ReduceOp::premul_sum) == DRB_PREMUL_SUM);
static_assert(static_cast<int>(ReduceOp::max) == DRB_MAX);
static_assert(kReduceOps == DRB_PREMUL_SUM + 1);

const Api* the_api = nullptr;

struct LastError {
  std::string text;
  int culprit = -1;
};
LastError& last() {
  thread_local LastError error;
  return error;
}

// Runs `f`; whatever it throws becomes a status and this thread's last error.
template <class F>
drb_status at_border(F&& f) noexcept {
  drb_status status = DRB_BACKEND;
  try {
    try {
      f();
      return DRB_OK;
    } catch (const Failed& failed) {
      status = failed.status();
      last() = {failed.what(), failed.culprit()};
    } catch (const std::exception& error) {
      last() = {error.what(), -1};
    }
  } catch (...) {
    // Not even memory for the text.
  }
  return status;
}

void want(bool condition, const char* what) {
  if (!condition) throw Failed(DRB_ARGUMENT, what);
}

const char* environment(const char* name) {
  return std::getenv(name);
}

GroupOptions options_from(const drb_group_options* given) {
  want(given && given->size >= sizeof(drb_group_options), "group options of another ABI");
  GroupOptions options;
  options.name = given->name ? given->name : "";
  options.rank = given->rank;
  options.world_size = given->world_size;
  options.device = given->device_index;
  options.eager = (given->flags & DRB_GROUP_EAGER) != 0;
  options.timeout = std::chrono::milliseconds(given->timeout_ms);
  want(options.timeout.count() > 0, "a group's timeout must be greater than 0");
  Settings::Pairs pairs;
  for (std::uint32_t i = 0; i < given->n_options; ++i) {
    pairs.emplace_back(given->options[i].key, given->options[i].value);
  }
  options.settings = Settings::from(pairs, environment);
  options.settings.comm.comm_name = options.name;
  return options;
}

GroupOptions member_options_from(const drb_group_options* given) {
  GroupOptions options = options_from(given);
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    throw Failed(DRB_ARGUMENT, "rank " + std::to_string(options.rank) + " of a group of " +
                                   std::to_string(options.world_size));
  }
  const drb_store* store = given->store;
  want(store && store->size >= sizeof(drb_store) && store->set && store->get && store->wait &&
           store->add && store->last_error && store->clone && store->release,
       "a group needs a store with all its functions");
  return options;
}

std::string version_text(int version, int major, int minor) {
  return std::to_string(version / major) + "." + std::to_string(version % major / minor);
}

// CUDA writes 13000 for 13.0, NCCL 22809 for 2.28.9.
std::string cuda_version(int version) {
  return version_text(version, 1000, 10);
}
std::string nccl_version(int version) {
  return version_text(version, 10000, 100) + "." + std::to_string(version % 100);
}

void probe_or_throw(std::string& text) {
  const Api& api = *the_api;
  int runtime = 0;
  int driver = 0;
  int nccl = 0;
  api.runtime_version(&runtime);
  api.driver_version(&driver);
  api.version(&nccl);
  text = "NCCL " + nccl_version(nccl) + ", CUDA runtime " + cuda_version(runtime) + ", driver " +
         (driver == 0 ? std::string("none") : cuda_version(driver));
  int count = 0;
  const CudaResult result = api.get_device_count(&count);
  if (result != CudaResult::success) {
    api.take_last_error();
    std::string why = api.cuda_error_text(result);
    if (result == CudaResult::insufficient_driver && driver == 0) why += " (there is no driver)";
    throw Failed(DRB_UNSUPPORTED, "no use of a GPU here: " + why + "; " + text);
  }
  if (count == 0) throw Failed(DRB_UNSUPPORTED, "no GPU is visible; " + text);
  text = std::to_string(count) + (count == 1 ? " GPU; " : " GPUs; ") + text;
}

drb_status probe(char* text, std::uint64_t capacity) {
  std::string words;
  const drb_status status = at_border([&] { probe_or_throw(words); });
  if (status != DRB_OK) words = last().text;
  if (text && capacity > 0) {
    const std::size_t n = std::min<std::size_t>(words.size(), capacity - 1);
    std::memcpy(text, words.data(), n);
    text[n] = '\0';
  }
  return status;
}

const char* last_error() {
  return last().text.c_str();
}
std::int32_t last_error_rank() {
  return last().culprit;
}

drb_group* handle_of(std::shared_ptr<Group> group) {
  return group ? new drb_group{std::move(group)} : nullptr;
}

drb_status create(const drb_group_options* given, drb_group** out) {
  return at_border([&] {
    *out = nullptr;
    GroupOptions options = member_options_from(given);
    *out = handle_of(Group::create(*the_api, std::move(options), *given->store));
  });
}

drb_status destroy(drb_group* group, std::int64_t timeout_ms) {
  return at_border([&] {
    want(group != nullptr, "no group");
    const std::unique_ptr<drb_group> gone(group);
    gone->group->close(std::chrono::milliseconds(std::max<std::int64_t>(timeout_ms, 0)));
  });
}

drb_status abort_group(drb_group* group, const char* reason, std::int32_t culprit) {
  return at_border([&] {
    want(group && reason, "no group, or no reason");
    group->group->abort(reason, culprit);
  });
}

drb_status check(drb_group* group) {
  return at_border([&] {
    want(group != nullptr, "no group");
    group->group->check();
  });
}

drb_status progress(drb_group* group, drb_progress* out) {
  return at_border([&] {
    want(group && out && out->size >= sizeof(drb_progress), "no group, or no place to write to");
    const Progress progress = group->group->progress();
    out->submitted = progress.submitted;
    out->completed = progress.completed;
  });
}

drb_status submit(drb_group* group, const drb_op* const* ops, std::uint32_t n, const drb_call* call,
                  drb_work** work) {
  return at_border([&] {
    if (work) *work = nullptr;
    want(group && ops && n > 0, "no group, or no operations");
    want(call && call->size >= sizeof(drb_call), "a call of another ABI");
    CallOptions options;
    options.async = (call->flags & DRB_CALL_ASYNC) != 0;
    options.batch = (call->flags & DRB_CALL_BATCH) != 0;
    options.stream = static_cast<Stream>(call->stream);
    options.timeout = std::chrono::milliseconds(call->timeout_ms);
    auto made = group->group->submit({ops, n}, options);
    if (work) *work = new drb_work{std::move(made)};
  });
}

drb_status work_test(drb_work* work, drb_work_state* state) {
  return at_border([&] {
    want(work && state, "no work, or no place to write to");
    switch (work->work->test()) {
      case Work::State::pending:
        *state = DRB_WORK_PENDING;
        break;
      case Work::State::done:
        *state = DRB_WORK_DONE;
        break;
      case Work::State::failed:
        *state = DRB_WORK_FAILED;
        break;
    }
  });
}

drb_status work_wait(drb_work* work, void* stream, std::int64_t timeout_ms, std::uint32_t flags) {
  return at_border([&] {
    want(work != nullptr, "no work");
    want(timeout_ms >= 0, "the timeout is negative");
    work->work->wait(static_cast<Stream>(stream), std::chrono::milliseconds(timeout_ms),
                     (flags & DRB_WAIT_HOST) != 0);
  });
}

drb_status work_abort(drb_work* work, const char* reason) {
  return at_border([&] {
    want(work && reason, "no work, or no reason");
    work->work->group()->abort(work->work->label().text() + ": " + reason, -1);
  });
}

std::int64_t work_sequence(drb_work* work) {
  return work ? work->work->label().sequence : -1;
}

void work_release(drb_work* work) {
  delete work;
}

drb_status split(drb_group* parent, std::int32_t colour, const drb_group_options* given,
                 drb_group** out) {
  return at_border([&] {
    *out = nullptr;
    want(parent != nullptr, "no group");
    want(colour >= DRB_NO_COLOUR, "a colour is 0 or more");
    GroupOptions options = colour < 0 ? options_from(given) : member_options_from(given);
    *out = handle_of(parent->group->split(colour, std::move(options),
                                          given->store ? *given->store : drb_store{}));
  });
}

drb_status shrink(drb_group* parent, const std::int32_t* exclude, std::uint32_t n,
                  std::uint32_t flags, const drb_group_options* given, drb_group** out) {
  return at_border([&] {
    *out = nullptr;
    want(parent && exclude && n > 0, "no group, or nobody to leave");
    GroupOptions options = member_options_from(given);
    *out = handle_of(parent->group->shrink(std::vector<int>(exclude, exclude + n),
                                           (flags & DRB_SHRINK_ABORT) != 0, std::move(options),
                                           *given->store));
  });
}

drb_status register_memory(drb_group* group, void* data, std::uint64_t bytes,
                           drb_registration** out) {
  return at_border([&] {
    *out = nullptr;
    want(group != nullptr, "no group");
    *out = reinterpret_cast<drb_registration*>(group->group->register_memory(data, bytes));
  });
}

drb_status deregister_memory(drb_group* group, drb_registration* registration) {
  return at_border([&] {
    want(group != nullptr, "no group");
    group->group->deregister_memory(reinterpret_cast<Group::Registration*>(registration));
  });
}

drb_status allocate(std::uint64_t bytes, void** out) {
  return at_border([&] {
    *out = nullptr;
    if (!the_api->allocate) {
      throw Failed(DRB_UNSUPPORTED, "this NCCL has no ncclMemAlloc (2.19 and newer have)");
    }
    const NcclResult result = the_api->allocate(out, bytes);
    if (result == NcclResult::success) return;
    throw Failed(DRB_BACKEND, "ncclMemAlloc of " + std::to_string(bytes) +
                                  " bytes: " + the_api->error_text(result));
  });
}

drb_status deallocate(void* data) {
  return at_border([&] {
    if (!the_api->deallocate) throw Failed(DRB_UNSUPPORTED, "this NCCL has no ncclMemFree");
    const NcclResult result = the_api->deallocate(data);
    if (result == NcclResult::success) return;
    throw Failed(DRB_BACKEND, std::string("ncclMemFree: ") + the_api->error_text(result));
  });
}

drb_backend make_backend(const Api& api) {
  std::uint32_t can = DRB_CAN_COALESCE | DRB_IS_STREAM_ORDERED;
  if (api.split) can |= DRB_CAN_SPLIT;
  if (api.shrink) can |= DRB_CAN_SHRINK;
  if (api.register_memory) can |= DRB_CAN_REGISTER;
  if (api.allocate) can |= DRB_CAN_ALLOCATE;
  return {.size = sizeof(drb_backend),
          .abi = DRB_ABI,
          .name = "nccl",
          .devices = "cuda",
          .capabilities = can,
          .device_type = 2,
          .default_timeout_ms = 600'000,
          .probe = probe,
          .last_error = last_error,
          .last_error_rank = last_error_rank,
          .create = create,
          .destroy = destroy,
          .abort = abort_group,
          .check = check,
          .progress = progress,
          .submit = submit,
          .work_test = work_test,
          .work_wait = work_wait,
          .work_abort = work_abort,
          .work_sequence = work_sequence,
          .work_release = work_release,
          .split = split,
          .shrink = shrink,
          .register_memory = register_memory,
          .deregister_memory = deregister_memory,
          .allocate = allocate,
          .deallocate = deallocate};
}

}  // namespace

const drb_backend* backend_over(const Api& api) {
  static const drb_backend backend = [&] {
    the_api = &api;
    return make_backend(api);
  }();
  DISTRUN_CHECK(the_api == &api);
  return &backend;
}

}  // namespace distrun::nccl
