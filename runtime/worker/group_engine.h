// The engine of a process group: runs collectives one after another, synchronous ones in the
// caller's thread if nothing is before them, others in a thread of its own; runs sends and receives
// beside them; and turns what goes wrong into one failure that every rank words alike.
//
//   open --close()--> closed
//     \--a call failed, leave()--> dead      (later calls throw, with the first failure)
#pragma once

#include "runtime/worker/call.h"
#include "runtime/worker/collectives.h"
#include "runtime/worker/flight_log.h"
#include "runtime/worker/group_failure.h"
#include "runtime/worker/lanes.h"
#include "runtime/worker/point_to_point.h"
#include "runtime/worker/transport.h"
#include "runtime/worker/work.h"
#include <distrun/process_group.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace distrun {

class GroupEngine {
 public:
  struct Identity {
    int rank = 0;
    int size = 1;
    std::string name;
    std::string description;
    Timeout timeout{};
    bool deterministic = false;  // see GroupOptions
  };
  // Null in a group of one.
  struct Links {
    std::unique_ptr<Transport> transport;
    std::shared_ptr<Store> store;
    // Each rank's host; empty: nothing is known of hosts, or no two ranks share one.
    std::vector<int> host_of;
    // Of the ranks of this rank's host; null: it shares no memory with another.
    std::unique_ptr<CallRunner> host;
  };

  // `global_ranks`: of the group, in its order; for the flight record only.
  GroupEngine(Identity identity, Links links, const std::vector<int>& global_ranks);
  ~GroupEngine();

  const Identity& identity() const { return identity_; }

  // All throw DistBackendError if the group is dead or closed.
  void run(Call&& call, Timeout timeout);
  // `finish`: after it, by whoever ran it, if it went well.
  std::shared_ptr<QueuedWork> start(std::vector<Call> calls, Timeout timeout,
                                    std::function<void()> finish = nullptr);
  // Returns the peer.
  int run(const P2PCall& call, Timeout timeout);
  std::shared_ptr<QueuedWork> start(const P2PCall& call, Timeout timeout);

  void close(Timeout timeout);
  // In place of close(): the other ranks are told that this one leaves.
  void leave(const std::string& why);
  // Something beside it has failed: as if one of its own operations had.
  void fail(const GroupFailure& failure);
  // `what` is called once, from whatever thread finds the first failure, with the rank to blame.
  // Before any operation.
  void on_failure(std::function<void(const std::string& text, std::optional<int> culprit)> what) {
    on_failure_ = std::move(what);
  }
  // Throws if it is dead or closed.
  void ensure_open();
  // Throws also if it has failed on another rank; asks the store.
  void look_for_failure();
  // Ends its threads.  REQUIRES: it is closed or dead.
  void stop_threads();

 private:
  void admit(std::unique_lock<std::mutex>& lock);
  void number(Call& call) { call.sequence = next_sequence_++; }
  void work_off();
  std::exception_ptr refusal() noexcept;
  // REQUIRES: the group was open when this operation's turn came.
  std::exception_ptr perform(const Call& call, Timeout timeout);
  void perform(QueuedWork& work);
  std::exception_ptr perform(P2PCall& call, Timeout timeout);
  template <class Any, class Step>
  std::exception_ptr guarded(const Any& call, Timeout timeout, Step step) noexcept;
  template <class Any, class Step>
  std::exception_ptr attempt(const Any& call, Timeout timeout, Step step);
  void abandon() noexcept;
  [[noreturn]] void refuse(const P2PCall& call) const;
  std::exception_ptr failed(const std::string& name, GroupFailure failure, bool first_hand);
  std::exception_ptr fall(const GroupFailure& failure);
  bool die(const std::string& text, std::optional<int> peer, std::optional<int> culprit);
  std::string late_text(const std::vector<int>& ranks, Timeout timeout);
  void close_links();
  void check_open() const;

  const Identity identity_;
  FlightLog log_;
  Links links_;
  std::optional<FailureBoard> board_;
  std::optional<Collectives> flat_;
  std::unique_ptr<CallRunner> runner_;  // null in a group of one
  std::optional<PointToPoint> p2p_;
  Lanes lanes_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<QueuedWork>> queue_;
  bool busy_ = false;      // somebody executes a collective
  bool stopping_ = false;  // the thread is to end
  bool closing_ = false;
  bool closed_ = false;
  std::string dead_;  // the first failure
  std::optional<int> dead_peer_;
  std::function<void(const std::string& text, std::optional<int> peer)> on_failure_;
  std::uint64_t next_sequence_ = 0;
  std::thread thread_;  // started by the first asynchronous collective
};

}  // namespace distrun
