// Groups made from groups, and memory registered with them.
#include "runtime/nccl/group.h"
#include "runtime/nccl/on_device.h"
#include "runtime/nccl/rounds.h"
#include "runtime/nccl/work.h"

#include <algorithm>
#include <utility>

namespace distrun::nccl {

using std::chrono::milliseconds;

void Group::drain(TimePoint deadline) {
  for (;;) {
    std::vector<std::shared_ptr<Work>> works;
    {
      const std::lock_guard lock(mutex_);
      for (const Pending& pending : pending_) works.push_back(pending.work);
    }
    const auto busy = std::find_if(works.begin(), works.end(), [](const auto& work) {
      return work->test() == Work::State::pending;
    });
    if (!is_open()) throw_failure();
    if (busy == works.end()) return;
    if (Clock::now() >= deadline) {
      throw Failed(DRB_TIMEOUT, "an earlier operation is not done: " + (*busy)->label().text());
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

Comm Group::derive(const Derive& call, bool in_peace, TimePoint deadline) {
  const OnDevice device(api_, device_);
  cuda("cudaSetDevice", device.result());
  Lane& lane = collective_lane(deadline);
  // NCCL wants nothing pending on the parent.
  if (in_peace) drain(deadline);
  const auto outcome = lane.comm.derive(call, deadline);
  if (outcome.ok) return lane.comm.child();
  throw Failed(outcome.timed_out ? DRB_TIMEOUT : DRB_BACKEND, outcome.why);
}

std::shared_ptr<Group> Group::raise(Comm child, GroupOptions options, const drb_store& lent,
                                    TimePoint deadline) {
  options.device = device_;
  options.eager = true;
  std::shared_ptr<Group> group;
  try {
    group.reset(new Group(api_, std::move(options), lent));
  } catch (...) {
    api_.abort(child);
    throw;
  }
  start(group, [&] {
    const OnDevice device(api_, device_);
    group->or_fail("create", [&] { group->adopt(child, deadline); });
  });
  return group;
}

void Group::want_device(const char* what) const {
  if (device_ >= 0) return;
  throw Failed(DRB_ARGUMENT,
               std::string(what) + ": group " + options_.name +
                   " has no device yet: name one in create(), or do a collective first");
}

std::shared_ptr<Group> Group::split(int colour, GroupOptions options, const drb_store& lent) {
  if (!api_.split) {
    throw Failed(DRB_UNSUPPORTED, "split: this NCCL has no ncclCommSplit (2.18 and newer have)");
  }
  const TimePoint deadline = after(Clock::now(), options.timeout);
  const std::lock_guard order(order_);
  throw_if_unusable();
  want_device("split");
  const CommConfig config = options.settings.comm;
  Comm child = or_fail("split", [&] {
    return derive(
        [&](Comm comm, Comm* place) {
          return api_.split(comm, colour, colour < 0 ? 0 : options.rank, place, config);
        },
        true, deadline);
  });
  if (colour < 0) return nullptr;
  return raise(child, std::move(options), lent, deadline);
}

std::shared_ptr<Group> Group::shrink(std::vector<int> exclude, bool abort, GroupOptions options,
                                     const drb_store& lent) {
  if (!api_.shrink) {
    throw Failed(DRB_UNSUPPORTED, "shrink: this NCCL has no ncclCommShrink (2.27 and newer have)");
  }
  for (const int rank : exclude) {
    if (rank < 0 || rank >= options_.world_size) {
      throw Failed(DRB_ARGUMENT,
                   "shrink: " + std::to_string(rank) + " is not a rank of group " + options_.name);
    }
    if (rank == options_.rank) {
      throw Failed(DRB_ARGUMENT, "shrink is for the ranks that stay, and this one is to leave");
    }
  }
  const TimePoint deadline = after(Clock::now(), options.timeout);
  const std::lock_guard order(order_);
  throw_if_unusable();
  want_device("shrink");
  const CommConfig config = options.settings.comm;
  const auto call = [&](Comm comm, Comm* place) {
    return api_.shrink(comm, exclude, place, config, abort);
  };
  Comm child = nullptr;
  if (!abort) {
    child = or_fail("shrink", [&] { return derive(call, true, deadline); });
  } else {
    // What is pending ends in NCCL's hands: it must not count as done.
    fail_here({.text = "given up for a smaller group"}, false);
    std::optional<Failed> error;
    try {
      child = derive(call, false, deadline);
    } catch (const Failed& failed) {
      error = failed;
    }
    {
      const std::lock_guard lock(mutex_);
      undertaker_ = std::thread([self = shared_from_this()] { self->bury(); });
    }
    if (error) throw Failed(*error);
  }
  return raise(child, std::move(options), lent, deadline);
}

Group::Registration* Group::register_memory(void* data, std::size_t bytes) {
  if (!api_.register_memory) {
    throw Failed(DRB_UNSUPPORTED,
                 "register: this NCCL has no ncclCommRegister (2.19 and newer have)");
  }
  if (!data || bytes == 0) throw Failed(DRB_ARGUMENT, "register: there is no memory to register");
  const std::lock_guard order(order_);
  throw_if_unusable();
  registrations_.push_back({data, bytes, nullptr});
  Registration& made = registrations_.back();
  if (Lane* lane = ready_collective_lane()) {
    const auto told = lane->comm.local(
        [&](Comm comm) { return api_.register_memory(comm, data, bytes, &made.handle); });
    if (!told.ok) {
      registrations_.pop_back();
      throw Failed(DRB_BACKEND, "ncclCommRegister: " + told.why);
    }
  }
  return &made;
}

void Group::deregister_memory(Registration* registration) {
  const std::lock_guard order(order_);
  const auto found = std::find_if(registrations_.begin(), registrations_.end(),
                                  [&](const Registration& r) { return &r == registration; });
  if (found == registrations_.end()) {
    throw Failed(DRB_ARGUMENT,
                 "deregister: that memory is not registered with group " + options_.name);
  }
  const Registration gone = *found;
  registrations_.erase(found);
  Lane* lane = ready_collective_lane();
  if (!gone.handle || !lane) return;
  const auto told =
      lane->comm.local([&](Comm comm) { return api_.deregister_memory(comm, gone.handle); });
  if (!told.ok) throw Failed(DRB_BACKEND, "ncclCommDeregister: " + told.why);
}

}  // namespace distrun::nccl
