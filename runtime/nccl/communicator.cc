#include "runtime/nccl/communicator.h"

#include <sched.h>
#include <thread>

namespace distrun::nccl {
namespace {

// How long abort() waits for a call into NCCL that is under way.
constexpr auto kCallPatience = std::chrono::seconds(10);

bool has_error(NcclResult result) {
  return result != NcclResult::success && result != NcclResult::in_progress;
}

}  // namespace

Communicator::~Communicator() {
  abort("let go of without being closed");
}

std::optional<NcclResult> Communicator::guarded(const std::function<NcclResult()>& call) {
  {
    const std::lock_guard lock(mutex_);
    switch (life_.phase()) {
      case Phase::absent:
      case Phase::closed:
      case Phase::failed:
      case Phase::aborted:
        return std::nullopt;
      case Phase::joining:
      case Phase::ready:
      case Phase::enqueuing:
      case Phase::deriving:
      case Phase::closing:
        break;
    }
    ++calls_;
  }
  const NcclResult result = call();
  const std::lock_guard lock(mutex_);
  --calls_;
  returned_.notify_all();
  return result;
}

NcclResult Communicator::poll() {
  NcclResult state = NcclResult::success;
  const NcclResult result = api_.async_error(comm_, &state);
  return result == NcclResult::success ? state : result;
}

std::string Communicator::words_for(NcclResult result) {
  std::string text = api_.error_text(result);
  const char* last = api_.last_error(comm_);
  if (last && *last) text += " (" + std::string(last) + ")";
  return text;
}

Communicator::Outcome Communicator::run(Step step, TimePoint deadline,
                                        const std::function<NcclResult()>& first) {
  {
    const std::lock_guard lock(mutex_);
    const Order order = life_.begin(step, Clock::now(), deadline);
    if (order.todo != Todo::call) return {.why = order.why};
  }
  std::string words;
  // NCCL's words are asked for in the same breath: afterwards the communicator may be gone.
  const auto ask = [&](const std::function<NcclResult()>& call) {
    return guarded([&] {
      const NcclResult result = call();
      if (has_error(result)) words = words_for(result);
      return result;
    });
  };
  std::optional<NcclResult> result = ask(first);
  for (;;) {
    Order order;
    {
      const std::lock_guard lock(mutex_);
      if (!result) return {.why = life_.why()};
      order = life_.answer(*result, words, Clock::now());
    }
    switch (order.todo) {
      case Todo::poll_soon:
        ::sched_yield();
        break;
      case Todo::poll_later:
        std::this_thread::sleep_for(Life::kPollPause);
        break;
      case Todo::destroy: {
        std::unique_lock lock(mutex_);  // look() may be asking just now
        returned_.wait_for(lock, kCallPatience, [&] { return calls_ == 0; });
        lock.unlock();
        api_.destroy(comm_);
        return {.ok = true, .why = {}};
      }
      case Todo::done:
      case Todo::call:
        return {.ok = true, .why = {}};
      case Todo::fail:
        return {.failed_now = true, .timed_out = order.timed_out, .why = order.why};
      case Todo::refuse:
        return {.why = order.why};
    }
    result = ask([this] { return poll(); });
  }
}

Communicator::Outcome Communicator::join(const std::function<NcclResult(Comm* place)>& init,
                                         TimePoint deadline) {
  return run(Step::join, deadline, [&] {
    const NcclResult result = init(&comm_);
    // Never seen, but everything after it would be a call with a null communicator.
    return !comm_ && !has_error(result) ? NcclResult::internal_error : result;
  });
}

Communicator::Outcome Communicator::adopt(Comm comm, TimePoint deadline) {
  return run(Step::join, deadline, [&] {
    comm_ = comm;
    return poll();
  });
}

Communicator::Outcome Communicator::enqueue(const Calls& calls, TimePoint deadline) {
  return run(Step::enqueue, deadline, [&] { return calls(comm_); });
}

Communicator::Outcome Communicator::derive(
    const std::function<NcclResult(Comm comm, Comm* place)>& call, TimePoint deadline) {
  return run(Step::derive, deadline, [&] {
    child_ = nullptr;
    return call(comm_, &child_);
  });
}

Communicator::Outcome Communicator::close(TimePoint deadline) {
  return run(Step::close, deadline, [&] { return api_.finalize(comm_); });
}

Communicator::Outcome Communicator::local(const Calls& call) {
  {
    const std::lock_guard lock(mutex_);
    if (life_.phase() != Phase::ready) {
      return {.why = life_.why().empty() ? "it is " + std::string(to_string(life_.phase()))
                                         : life_.why()};
    }
  }
  std::string words;
  const auto result = guarded([&] {
    const NcclResult answer = call(comm_);
    if (has_error(answer)) words = words_for(answer);
    return answer;
  });
  return {.ok = result == NcclResult::success, .why = words};
}

std::optional<std::string> Communicator::look() {
  {
    const std::lock_guard lock(mutex_);
    // During the other steps somebody polls.
    if (life_.phase() != Phase::ready) return std::nullopt;
  }
  std::optional<std::string> words;
  guarded([&] {
    const NcclResult state = poll();
    if (has_error(state)) words = words_for(state);
    return state;
  });
  return words;
}

void Communicator::abort(const std::string& why) {
  std::unique_lock lock(mutex_);
  life_.fail(why);
  if (!life_.start_abort()) return;
  returned_.wait_for(lock, kCallPatience, [&] { return calls_ == 0; });
  lock.unlock();
  if (comm_) api_.abort(comm_);
}

Phase Communicator::phase() const {
  const std::lock_guard lock(mutex_);
  return life_.phase();
}

}  // namespace distrun::nccl
