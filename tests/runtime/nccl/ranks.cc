#include "tests/runtime/nccl/ranks.h"

#include <exception>
#include <mutex>
#include <thread>

namespace distrun::nccl::testing {

Answer answer_of(const drb_backend& backend, drb_status status) {
  if (status == DRB_OK) return {};
  return {status, backend.last_error(), backend.last_error_rank()};
}

const drb_op* Op::get() {
  raw.size = sizeof raw;
  raw.inputs = inputs.data();
  raw.outputs = outputs.data();
  raw.n_inputs = static_cast<std::uint32_t>(inputs.size());
  raw.n_outputs = static_cast<std::uint32_t>(outputs.size());
  raw.input_splits = input_splits.empty() ? nullptr : input_splits.data();
  raw.output_splits = output_splits.empty() ? nullptr : output_splits.data();
  return &raw;
}

Answer TestWork::wait_on(void* stream) const {
  return answer_of(*backend_, backend_->work_wait(work_, stream, 0, 0));
}
Answer TestWork::wait(std::int64_t timeout_ms) const {
  return answer_of(*backend_, backend_->work_wait(work_, nullptr, timeout_ms, DRB_WAIT_HOST));
}
drb_work_state TestWork::state() const {
  drb_work_state state = -1;
  backend_->work_test(work_, &state);
  return state;
}
void TestWork::reset() {
  if (work_) backend_->work_release(std::exchange(work_, nullptr));
}

Answer TestGroup::submit(Op op, Call call, TestWork* work) const {
  std::vector<Op> ops;
  ops.push_back(std::move(op));
  return submit_all(std::move(ops), call, work);
}

Answer TestGroup::submit_all(std::vector<Op> ops, Call call, TestWork* work) const {
  std::vector<const drb_op*> pointers;
  pointers.reserve(ops.size());
  for (Op& op : ops) pointers.push_back(op.get());
  const drb_call raw{.size = sizeof raw,
                     .flags = static_cast<std::uint32_t>(call.async ? DRB_CALL_ASYNC : 0),
                     .stream = call.stream,
                     .timeout_ms = call.timeout_ms};
  drb_work* made = nullptr;
  const drb_status status =
      backend_->submit(group_, pointers.data(), static_cast<std::uint32_t>(pointers.size()), &raw,
                       work ? &made : nullptr);
  Answer answer = answer_of(*backend_, status);
  if (work) *work = made ? TestWork(*backend_, made) : TestWork();
  return answer;
}

Answer TestGroup::close(std::int64_t timeout_ms) {
  if (!group_) return {};
  return answer_of(*backend_, backend_->destroy(std::exchange(group_, nullptr), timeout_ms));
}

drb_group_options GroupSpec::raw(MemoryStore& store) {
  pairs.clear();
  for (const auto& [key, value] : options) pairs.push_back({key.c_str(), value.c_str()});
  return {.size = sizeof(drb_group_options),
          .flags = static_cast<std::uint32_t>(eager ? DRB_GROUP_EAGER : 0),
          .rank = rank,
          .world_size = world_size,
          .device_index = device == -2 ? rank : device,
          .n_options = static_cast<std::uint32_t>(pairs.size()),
          .timeout_ms = timeout_ms,
          .name = name.c_str(),
          .store = store.lend(name + "/"),
          .options = pairs.data()};
}

Made make_group(const drb_backend& backend, MemoryStore& store, GroupSpec spec) {
  const drb_group_options options = spec.raw(store);
  drb_group* group = nullptr;
  Answer answer = answer_of(backend, backend.create(&options, &group));
  return {std::move(answer), TestGroup(backend, group)};
}

Made split_group(const drb_backend& backend, MemoryStore& store, const TestGroup& parent,
                 int colour, GroupSpec spec) {
  const drb_group_options options = spec.raw(store);
  drb_group* group = nullptr;
  Answer answer = answer_of(backend, backend.split(parent.raw(), colour, &options, &group));
  return {std::move(answer), TestGroup(backend, group)};
}

Made shrink_group(const drb_backend& backend, MemoryStore& store, const TestGroup& parent,
                  const std::vector<std::int32_t>& exclude, bool abort, GroupSpec spec) {
  const drb_group_options options = spec.raw(store);
  drb_group* group = nullptr;
  Answer answer = answer_of(
      backend,
      backend.shrink(parent.raw(), exclude.data(), static_cast<std::uint32_t>(exclude.size()),
                     static_cast<std::uint32_t>(abort ? DRB_SHRINK_ABORT : 0), &options, &group));
  return {std::move(answer), TestGroup(backend, group)};
}

void run_ranks(int n, const std::function<void(int rank)>& f) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(n));
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        f(rank);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace distrun::nccl::testing
