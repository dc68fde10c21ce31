// The engine of a process group: runs calls one after another, synchronous ones in the caller's
// thread if nothing is before them, others in a thread of its own; owns the transport, and turns
// what goes wrong into one failure that every rank words alike.
//
//   open --close()--> closed
//     \--a call failed--> dead      (later calls throw, with the first failure)
#pragma once

#include "runtime/worker/collectives.h"
#include "runtime/worker/group_failure.h"
#include "runtime/worker/transport.h"
#include <distrun/process_group.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace distrun {

struct Work::State {
  Call call;
  Timeout timeout{};
  std::string group;

  mutable std::mutex mutex;
  std::condition_variable completed;
  bool done = false;
  std::exception_ptr exception;

  void complete(std::exception_ptr outcome);
};

class GroupEngine {
 public:
  struct Identity {
    int rank = 0;
    int size = 1;
    std::string name;
    Timeout timeout{};
  };

  // `transport` and `store` may be null in a group of one.
  GroupEngine(Identity identity, std::unique_ptr<Transport> transport,
              std::shared_ptr<Store> store);
  ~GroupEngine();

  const Identity& identity() const { return identity_; }

  // Both throw DistBackendError if the group is dead or closed.
  void run(Call call, Timeout timeout);
  std::shared_ptr<Work::State> start(Call call, Timeout timeout);

  void close(Timeout timeout);
  // In place of close(): the other ranks are told that this one leaves.
  void leave(const std::string& why);

 private:
  std::shared_ptr<Work::State> admit(std::unique_lock<std::mutex>& lock, Call call,
                                     Timeout timeout);
  void enqueue(std::unique_lock<std::mutex>& lock, std::shared_ptr<Work::State> work);
  void execute(Work::State& work);
  void work_off();
  std::exception_ptr perform(const Call& call, Timeout timeout);
  std::exception_ptr failed(const Call& call, GroupFailure failure, bool first_hand);
  std::exception_ptr fall(const GroupFailure& failure);
  std::string late_text(const std::vector<int>& ranks, Timeout timeout);
  void check_open() const;
  void stop_thread();

  const Identity identity_;
  const std::unique_ptr<Transport> transport_;
  const std::shared_ptr<Store> store_;
  std::optional<FailureBoard> board_;
  std::optional<Collectives> collectives_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Work::State>> queue_;
  bool busy_ = false;      // somebody executes
  bool stopping_ = false;  // the thread is to end
  bool closed_ = false;
  std::string dead_;  // the first failure
  std::optional<int> dead_peer_;
  std::uint64_t next_sequence_ = 0;
  std::thread thread_;  // started by the first asynchronous call
};

}  // namespace distrun
