// Work, and the names of what groups do.
#include "runtime/worker/work.h"

#include "runtime/worker/deadline.h"

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

// ---- what the handle does ----------------------------------------------------------------------

void Work::wait() {
  if (state_) state_->wait_until(TimePoint::max());
}

void Work::wait(Timeout timeout) {
  const TimePoint deadline = deadline_after(timeout, "Work::wait");
  if (state_ && !state_->wait_until(deadline))
    throw DistTimeoutError(state_->name() + ": not completed after " + to_string(timeout) +
                           "; it goes on, and its tensors are still in use");
}

void Work::wait_on(void* stream) {
  if (state_) state_->wait_on(stream);
}

bool Work::is_completed() const {
  return !state_ || state_->is_completed();
}

bool Work::is_success() const {
  return !state_ || (state_->is_completed() && !state_->exception());
}

std::exception_ptr Work::exception() const {
  return state_ ? state_->exception() : nullptr;
}

std::optional<int> Work::source_rank() const {
  return state_ ? state_->source_rank() : std::nullopt;
}

void Work::then(std::function<void(const Work& work)> what) {
  const auto call = [what = std::move(what), state = std::weak_ptr(state_)] {
    what(Work(state.lock()));
  };
  if (!state_ || !state_->add_then(call)) call();
}

std::optional<std::uint64_t> Work::sequence_number() const {
  return state_ ? state_->sequence_number() : std::nullopt;
}

// ---- how it ended ------------------------------------------------------------------------------

void Outcome::set(std::exception_ptr exception) {
  const std::lock_guard lock(mutex_);
  if (set_) return;
  exception_ = std::move(exception);
  set_ = true;
  changed_.notify_all();
}

void Outcome::tell() {
  std::vector<std::function<void()>> next;
  {
    const std::lock_guard lock(mutex_);
    next.swap(then_);
  }
  for (const auto& what : next) what();
}

bool Outcome::wait_until(TimePoint deadline) const {
  std::unique_lock lock(mutex_);
  // Not to be told of time_point::max(): libstdc++ adds to it.
  if (deadline == TimePoint::max())
    changed_.wait(lock, [this] { return set_; });
  else if (!changed_.wait_until(lock, deadline, [this] { return set_; }))
    return false;
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

bool Outcome::is_set() const {
  const std::lock_guard lock(mutex_);
  return set_;
}

std::exception_ptr Outcome::exception() const {
  const std::lock_guard lock(mutex_);
  return exception_;
}

bool Outcome::add_then(std::function<void()> what) {
  const std::lock_guard lock(mutex_);
  if (set_) return false;
  then_.push_back(std::move(what));
  return true;
}

// ---- in the engine's queue ---------------------------------------------------------------------

void QueuedWork::wait_on(void* /*stream*/) {
  outcome.wait_until(TimePoint::max());
}

std::optional<int> QueuedWork::source_rank() const {
  if (!p2p || p2p->op != OpType::recv || !outcome.is_set() || outcome.exception())
    return std::nullopt;
  return source;
}

std::optional<std::uint64_t> QueuedWork::sequence_number() const {
  if (calls.empty()) return std::nullopt;
  return calls.front().sequence;
}

std::string QueuedWork::name() const {
  return "process group \"" + group + "\": " + (p2p ? to_string(*p2p) : to_string(calls.front()));
}

}  // namespace distrun
