// Work, and the names of what groups do.
#include "runtime/worker/deadline.h"
#include "runtime/worker/group_engine.h"
#include <distrun/process_group.h>

#include <utility>

namespace distrun {

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::avg:
      return "avg";
    case ReduceOp::product:
      return "product";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    case ReduceOp::band:
      return "band";
    case ReduceOp::bor:
      return "bor";
    case ReduceOp::bxor:
      return "bxor";
    case ReduceOp::premul_sum:
      return "premul_sum";
  }
  return "?";
}

std::string_view to_string(OpType op) {
  switch (op) {
    case OpType::broadcast:
      return "broadcast";
    case OpType::all_reduce:
      return "all_reduce";
    case OpType::reduce:
      return "reduce";
    case OpType::all_gather:
      return "all_gather";
    case OpType::gather:
      return "gather";
    case OpType::scatter:
      return "scatter";
    case OpType::reduce_scatter:
      return "reduce_scatter";
    case OpType::all_to_all:
      return "all_to_all";
    case OpType::barrier:
      return "barrier";
    case OpType::send:
      return "send";
    case OpType::recv:
      return "recv";
  }
  return "?";
}

void Work::wait() {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  state_->completed.wait(lock, [this] { return state_->done; });
  if (state_->exception) std::rethrow_exception(state_->exception);
}

void Work::wait(Timeout timeout) {
  const TimePoint deadline = deadline_after(timeout, "Work::wait");
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  if (!state_->completed.wait_until(lock, deadline, [this] { return state_->done; }))
    throw DistTimeoutError("process group \"" + state_->group + "\": " + state_->name() +
                           ": not completed after " + to_string(timeout) +
                           "; it goes on, and its tensors are still in use");
  if (state_->exception) std::rethrow_exception(state_->exception);
}

bool Work::is_completed() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

bool Work::is_success() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->done && !state_->exception;
}

std::exception_ptr Work::exception() const {
  if (!state_) return nullptr;
  const std::lock_guard lock(state_->mutex);
  return state_->exception;
}

std::optional<int> Work::source_rank() const {
  if (!state_ || !state_->p2p || state_->p2p->op != OpType::recv) return std::nullopt;
  const std::lock_guard lock(state_->mutex);
  if (!state_->done || state_->exception) return std::nullopt;
  return state_->p2p->peer;
}

void Work::then(std::function<void(const Work& work)> what) {
  if (state_) {
    std::unique_lock lock(state_->mutex);
    if (!state_->done) {
      state_->then.emplace_back(
          [what = std::move(what), state = std::weak_ptr(state_)] { what(Work(state.lock())); });
      return;
    }
  }
  what(*this);
}

std::optional<std::uint64_t> Work::sequence_number() const {
  if (!state_ || state_->calls.empty()) return std::nullopt;
  return state_->calls.front().sequence;
}

}  // namespace distrun
