#include "runtime/nccl/work.h"

#include "runtime/nccl/failed.h"
#include "runtime/nccl/on_device.h"

#include <algorithm>
#include <sched.h>
#include <thread>
#include <utility>

namespace distrun::nccl {
namespace {

using namespace std::chrono_literals;

// A wait on the host first looks often, since most operations take microseconds.
constexpr int kEagerLooks = 200;
constexpr Duration kLongestPause = 1ms;

}  // namespace

Work::Work(std::shared_ptr<Group> group, const Label& label)
    : group_(std::move(group)), label_(label) {}

Work::~Work() {
  if (start_) group_->give_event(start_);
  if (end_) group_->give_event(end_);
}

Work::State Work::test() {
  if (const State state = state_.load(); state != State::pending) return state;
  if (captured_) {
    throw Failed(DRB_UNSUPPORTED, label_.text() + " is part of a CUDA graph: it has no state");
  }
  const RelaxedCapture relaxed(group_->api_);
  const OnDevice device(group_->api_, group_->device_);
  const std::lock_guard lock(group_->mutex_);
  // Aborting makes events fire: from then on, what was not done is not.
  if (group_->state_ == Group::State::open && state_.load() == State::pending &&
      group_->api_.event_query(end_) == CudaResult::success) {
    state_.store(State::done);
  }
  return state_.load();
}

void Work::wait(Stream stream, std::chrono::milliseconds timeout, bool host) {
  if (!captured_) {
    if (host || barrier_ || group_->options_.settings.blocking_wait) wait_on_host(timeout);
    switch (state_.load()) {
      case State::done:
        return;
      case State::failed:
        group_->throw_failure();
      case State::pending:
        group_->throw_if_unusable();
    }
  }
  group_->cuda("cudaStreamWaitEvent", group_->api_.stream_wait_event(stream, end_));
}

void Work::wait_on_host(std::chrono::milliseconds timeout) {
  const TimePoint deadline = timeout.count() > 0 ? Clock::now() + timeout : TimePoint::max();
  Duration pause = 20us;
  for (int look = 0;; ++look) {
    switch (test()) {
      case State::done:
        return;
      case State::failed:
        group_->throw_failure();
      case State::pending:
        // Failing: throw_failure() waits for the verdict, but not for ever.
        if (!group_->is_open() && state_.load() == State::pending) group_->throw_failure();
        break;
    }
    if (Clock::now() >= deadline) {
      throw Failed(DRB_TIMEOUT, label_.text() + ": not done within " + duration_text(timeout) +
                                    "; it goes on nevertheless");
    }
    if (look < kEagerLooks) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, kLongestPause);
    }
  }
}

}  // namespace distrun::nccl
