// A process group on NCCL: its communicators and their streams, its operations, its end.
//
//   open --a failure, abort()--> failing --reported, aborted--> failed
//     `--close()--> closed
//
// A lane is a communicator with a stream of its own.  Collectives have one, made in create()
// (eager) or at the first operation.  Sends and receives use it, too, if the group is eager or they
// are coalesced; else each pair of ranks has its own lane: the other ranks do not take part in
// them, and so cannot help to make the communicator of all.
//
// Once a group is failing nothing counts as done any more that was not before: aborting makes the
// device stop in the middle, and its events fire.
#pragma once

#include "runtime/nccl/api.h"
#include "runtime/nccl/board.h"
#include "runtime/nccl/communicator.h"
#include "runtime/nccl/core/watch.h"
#include "runtime/nccl/failed.h"
#include "runtime/nccl/schedule.h"
#include "runtime/nccl/settings.h"
#include <distrun/backend_abi.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace distrun::nccl {

class Work;

struct GroupOptions {
  std::string name;
  int rank = 0;
  int world_size = 1;
  int device = -1;
  bool eager = false;
  std::chrono::milliseconds timeout{};
  Settings settings;
};

// A deadline that far away is none.
inline TimePoint after(TimePoint now, std::chrono::milliseconds timeout) {
  return now + std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365));
}

struct CallOptions {
  bool async = false;
  bool batch = false;  // of sends and receives, if only of one
  Stream stream = nullptr;
  std::chrono::milliseconds timeout{};  // 0: the group's
};

class Group : public std::enable_shared_from_this<Group> {
 public:
  static std::shared_ptr<Group> create(const Api& api, GroupOptions options, const drb_store& lent);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // All throw Failed.
  std::shared_ptr<Work> submit(std::span<const drb_op* const> ops, const CallOptions& call);
  // Null for DRB_NO_COLOUR.
  std::shared_ptr<Group> split(int colour, GroupOptions options, const drb_store& lent);
  std::shared_ptr<Group> shrink(std::vector<int> exclude, bool abort, GroupOptions options,
                                const drb_store& lent);
  void close(std::chrono::milliseconds timeout);
  void abort(const std::string& reason, int culprit);
  // What it failed with, as an error; waits for the verdict if it is failing.
  void check();
  Progress progress();

  struct Registration {
    void* data = nullptr;
    std::size_t bytes = 0;
    void* handle = nullptr;  // null: not yet told to NCCL
  };
  Registration* register_memory(void* data, std::size_t bytes);
  void deregister_memory(Registration* registration);

  // A look at what is pending; says when to look again.
  TimePoint watch(TimePoint now);
  // A look for another rank's failure.
  TimePoint listen(TimePoint now);

 private:
  friend class Work;
  enum class State { open, failing, failed, closed };
  struct Lane {
    explicit Lane(const Api& api) : comm(api) {}
    Communicator comm;
    Stream stream = nullptr;
    Event before = nullptr;  // what the caller's stream had when an asynchronous operation came
    std::shared_ptr<Work> newest;
    Stream newest_stream = nullptr;  // where its end is
    void* scratch = nullptr;         // one element, for barriers
    bool of_pair = false;            // a communicator of two ranks, which are 0 and 1 in it
  };
  struct Pending {
    std::uint64_t id;
    std::shared_ptr<Work> work;
    const Lane* lane;
  };

  Group(const Api& api, GroupOptions options, const drb_store& lent);

  // Makes a group usable, and hears of failures already while `connect` runs.
  static void start(const std::shared_ptr<Group>& group, const std::function<void()>& connect);

  Lane& lane_for(const Plan& plan, bool batch, TimePoint deadline);
  Lane& collective_lane(TimePoint deadline);
  // `members`: the group's ranks, in the order of the communicator's.
  Lane& connect(const std::string& key, const std::vector<int>& members, TimePoint deadline);
  void adopt(Comm comm, TimePoint deadline);
  Lane& new_lane(const std::string& key);
  void furnish(Lane& lane);
  Lane* ready_collective_lane();

  std::shared_ptr<Work> launch(const Plan& plan, const Label& label, const CallOptions& call,
                               TimePoint now, TimePoint deadline);
  NcclResult issue(const Plan& plan, const Lane& lane, Comm comm, Stream stream,
                   const std::vector<int>& ops) const;
  std::vector<int> make_ops(const Plan& plan, Lane& lane);
  void watch_from_now(const std::shared_ptr<Work>& work, const Lane& lane, TimePoint submitted,
                      TimePoint deadline);

  using Derive = std::function<NcclResult(Comm comm, Comm* child)>;
  // The communicator that `call` makes from the collectives'; null: this rank is not part of it.
  Comm derive(const Derive& call, bool in_peace, TimePoint deadline);
  std::shared_ptr<Group> raise(Comm child, GroupOptions options, const drb_store& lent,
                               TimePoint deadline);
  void want_device(const char* what) const;
  void drain(TimePoint deadline);

  // A step of a communicator went wrong: so the group has failed.
  [[noreturn]] void give_up(const Communicator::Outcome& outcome);
  // Runs what other ranks depend on: any error in it is the group's failure.
  template <class F>
  auto or_fail(const std::string& what, F&& f) -> decltype(f());
  void cuda(const char* what, CudaResult result) const;
  void nccl(const char* what, NcclResult result) const;

  bool is_open() const;
  void throw_if_unusable();
  [[noreturn]] void throw_failure();
  Failed error_of(const Failure& failure) const;
  // The first one counts.  Then bury() is called, by a thread of its own, or else by the caller.
  void fail(Failure failure, bool bury_it = true);
  void fail_here(Failure failure, bool bury_it = true);  // found by this rank, which it names
  void bury();

  // With mutex_ held:
  Sight look_at_pending();
  // What is done is marked so, and comes back to be let go of after mutex_ is released.
  std::vector<Pending> settle(const Verdict& verdict);
  void note_done(const Label& label);
  Event take_event();
  void give_event(Event event);  // takes mutex_

  void close_lanes(TimePoint deadline);
  // Whether it is closed or has failed: nobody visits it any more, and nothing of it is left on the
  // device.
  void leave();
  void release_device_things();

  const Api& api_;
  const GroupOptions options_;
  const std::shared_ptr<Board> board_;
  std::mutex order_;  // one submit, split or close at a time; taken before mutex_

  // Guarded by order_:
  std::int64_t collectives_ = 0;
  std::int64_t transfers_ = 0;
  std::uint64_t next_id_ = 0;
  std::list<Registration> registrations_;

  std::atomic<int> device_;  // written with order_ held, once

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  State state_ = State::open;
  Failure failure_;
  std::thread undertaker_;
  Watch watch_;
  std::vector<Pending> pending_;  // in step with watch_.works()
  Progress progress_;             // without `last`…
  Label newest_collective_;       // …which this is
  std::map<std::string, std::shared_ptr<Lane>> lanes_;
  std::vector<Event> spare_events_;
};

template <class F>
auto Group::or_fail(const std::string& what, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Failed& failed) {
    if (!is_open()) throw;
    fail_here({.kind = failed.status() == DRB_TIMEOUT ? FailureKind::timeout : FailureKind::backend,
               .culprit = failed.culprit(),
               .text = what + ": " + failed.what(),
               .ask_others = true});
  }
  throw_failure();
}

}  // namespace distrun::nccl
