// What is behind a Work: an operation under way, whoever carries it out: the group's engine
// (Queued, below) or a device's backend (device_group.h).
#pragma once

#include "runtime/base/time.h"
#include "runtime/worker/call.h"
#include "runtime/worker/flight_log.h"
#include "runtime/worker/point_to_point.h"
#include <distrun/process_group.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace distrun {

struct Work::State {
  State() = default;
  virtual ~State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Returns once it is done, or false at the deadline; throws what it failed with.
  virtual bool wait_until(TimePoint deadline) = 0;
  // See Work::wait_on().
  virtual void wait_on(void* stream) = 0;
  virtual bool is_completed() const = 0;
  virtual std::exception_ptr exception() const = 0;
  virtual std::optional<int> source_rank() const = 0;
  virtual std::optional<std::uint64_t> sequence_number() const = 0;
  // False: it is done, and `what` will not be called.
  virtual bool add_then(std::function<void()> what) = 0;
  // "process group "0": all_reduce 5 (float32 x 1000, sum)"
  virtual std::string name() const = 0;
};

// How an operation ended, once it has; and who wants to hear of it.
class Outcome {
 public:
  // The first call counts.
  void set(std::exception_ptr exception);
  // Calls what was added by then.  REQUIRES: it is set.
  void tell();
  bool wait_until(TimePoint deadline) const;  // false: at the deadline not yet
  bool is_set() const;
  std::exception_ptr exception() const;
  bool add_then(std::function<void()> what);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool set_ = false;
  std::exception_ptr exception_;
  std::vector<std::function<void()>> then_;
};

// An operation that waits for its turn in a group's engine.
struct QueuedWork final : Work::State {
  std::vector<Call> calls;  // one after another; none: see p2p
  std::optional<P2PCall> p2p;
  std::vector<FlightLog::Entry> records;  // of the calls
  Timeout timeout{};
  std::string group;
  std::function<void()> finish;  // after the calls, if all went well
  std::optional<int> source;     // of a receive; written before the outcome is set
  Outcome outcome;

  bool wait_until(TimePoint deadline) override { return outcome.wait_until(deadline); }
  void wait_on(void* stream) override;
  bool is_completed() const override { return outcome.is_set(); }
  std::exception_ptr exception() const override { return outcome.exception(); }
  std::optional<int> source_rank() const override;
  std::optional<std::uint64_t> sequence_number() const override;
  bool add_then(std::function<void()> what) override { return outcome.add_then(std::move(what)); }
  std::string name() const override;
};

}  // namespace distrun
