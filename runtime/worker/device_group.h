// The part of a process group that moves memory of another device, by way of a backend
// (backend_library.h): calls become the ABI's operations, its works become Work, and what it fails
// with becomes the group's failure.
//
// A thread looks at what is under way, every few milliseconds while there is anything: for the
// flight record, for Work::then(), and so that a failure ends the group though nobody waits.
#pragma once

#include "runtime/worker/backend_library.h"
#include "runtime/worker/call.h"
#include "runtime/worker/flight_log.h"
#include "runtime/worker/group_engine.h"
#include "runtime/worker/point_to_point.h"
#include "runtime/worker/work.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace distrun {

class DeviceWork;

class DeviceGroup {
 public:
  struct Options {
    DeviceType device = DeviceType::cuda;
    std::optional<int> index;                                   // connect at once, on that one
    std::vector<std::pair<std::string, std::string>> settings;  // the backend's own
  };

  // `store`: of this group and backend alone; null if it has but one rank, which needs none.
  // `failed`: called with each failure of an operation, from any thread.
  // `look`: asked now and then while it is made, from any thread; throws if there is no use in
  // going on.
  // `parent`: split off it, in a call of all its ranks; null: made anew.
  DeviceGroup(const BackendLibrary& library, const GroupEngine::Identity& identity,
              const std::shared_ptr<Store>& store, const Options& options,
              const std::vector<int>& global_ranks,
              std::function<void(const GroupFailure& failure)> failed, std::function<void()> look,
              DeviceGroup* parent);
  ~DeviceGroup();
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  const BackendLibrary& library() const { return library_; }
  const Options& options() const { return options_; }
  bool takes(DeviceType device) const { return device == options_.device; }

  // All ranks have carried out a collective on it.
  bool is_used() const;

  // Several calls are one operation.  Throws what the backend says.
  std::shared_ptr<DeviceWork> submit(std::span<const Call> calls, Timeout timeout,
                                     const CallOptions& options);
  // `batch`: of batch_isend_irecv, if only of one.
  std::shared_ptr<DeviceWork> submit(std::span<const P2PCall> calls, Timeout timeout,
                                     const CallOptions& options, bool batch);
  // Returns when this rank's operations are done, or at the deadline.
  void wait_for_pending(TimePoint deadline);

  // While other ranks split a group off this one: this rank is not in it.
  void stay_out_of_split(Timeout timeout);

  // Waits for what was submitted, and until all ranks have come.
  void close(Timeout timeout);
  void abort(const std::string& why, std::optional<int> culprit) noexcept;
  // Ends its thread.  REQUIRES: nobody submits.
  void stop_watching();

 private:
  friend class DeviceWork;
  struct Ops;
  class Entry;

  template <class AnyCall>
  std::shared_ptr<DeviceWork> submit_any(std::span<const AnyCall> calls, Timeout timeout,
                                         const CallOptions& options, std::uint32_t flags);
  void watch_all();
  bool settle(DeviceWork& work) noexcept;
  // If the group is of no more use since: tells so.
  void look_at(const std::exception_ptr& error);

  const BackendLibrary& library_;
  const Options options_;
  const GroupEngine::Identity identity_;
  const std::function<void(const GroupFailure& failure)> failed_;
  FlightLog log_;
  drb_group* group_ = nullptr;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<DeviceWork>> pending_;
  bool stopping_ = false;
  bool closed_ = false;
  bool used_ = false;
  int submitting_ = 0;
  std::uint64_t next_sequence_ = 0;  // of collectives
  std::thread watcher_;
};

class DeviceWork final : public Work::State {
 public:
  DeviceWork(const BackendLibrary& library, std::string name, bool waits_on_host)
      : library_(library), name_(std::move(name)), waits_on_host_(waits_on_host) {}
  ~DeviceWork() override;

  bool wait_until(TimePoint deadline) override;
  void wait_on(void* stream) override;
  bool is_completed() const override;
  std::exception_ptr exception() const override;
  std::optional<int> source_rank() const override;
  std::optional<std::uint64_t> sequence_number() const override { return sequence_; }
  bool add_then(std::function<void()> what) override { return outcome_.add_then(std::move(what)); }
  std::string name() const override { return name_; }

  // Looks whether it is done, and keeps how it ended.
  bool poll() const noexcept;
  // It is part of something that is carried out later, perhaps often.
  bool cannot_be_watched() const { return unseen_; }

 private:
  friend class DeviceGroup;
  std::exception_ptr failure() const noexcept;

  const BackendLibrary& library_;
  const std::string name_;
  const bool waits_on_host_;  // a barrier
  drb_work* work_ = nullptr;
  std::optional<std::uint64_t> sequence_;
  std::optional<int> source_;
  std::vector<FlightLog::Entry> records_;
  mutable Outcome outcome_;  // told by the group's watcher alone
  mutable std::atomic<bool> unseen_ = false;
};

}  // namespace distrun
