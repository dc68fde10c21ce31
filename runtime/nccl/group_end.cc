// How a group is watched, how it fails, and how it ends.
#include "runtime/base/check.h"
#include "runtime/nccl/group.h"
#include "runtime/nccl/on_device.h"
#include "runtime/nccl/rounds.h"
#include "runtime/nccl/work.h"

#include <algorithm>
#include <utility>

namespace distrun::nccl {
namespace {

using std::chrono::milliseconds;

// How long beyond the diagnosis the store may take.
constexpr milliseconds kReportSlack(3000);

}  // namespace

// ---------------------------------------------------------------------------------------- errors

void Group::cuda(const char* what, CudaResult result) const {
  if (result == CudaResult::success) return;
  api_.take_last_error();
  throw Failed(DRB_BACKEND, std::string(what) + ": " + api_.cuda_error_text(result));
}

void Group::nccl(const char* what, NcclResult result) const {
  if (result == NcclResult::success || result == NcclResult::in_progress) return;
  const char* last = api_.last_error(nullptr);
  throw Failed(DRB_BACKEND, std::string(what) + ": " + api_.error_text(result) +
                                (last && *last ? " (" + std::string(last) + ")" : ""));
}

void Group::give_up(const Communicator::Outcome& outcome) {
  if (!is_open()) throw_failure();
  throw Failed(outcome.timed_out ? DRB_TIMEOUT : DRB_BACKEND, outcome.why);
}

bool Group::is_open() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::open;
}

void Group::throw_if_unusable() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::open) return;
    if (state_ == State::closed) {
      throw Failed(DRB_ARGUMENT, "nccl group " + options_.name + " is closed");
    }
  }
  throw_failure();
}

Failed Group::error_of(const Failure& failure) const {
  return {failure.kind == FailureKind::timeout ? DRB_TIMEOUT : DRB_BACKEND,
          "nccl group " + options_.name + " (this is rank " + std::to_string(options_.rank) +
              "): " + failure.text,
          failure.culprit};
}

void Group::throw_failure() {
  std::unique_lock lock(mutex_);
  const bool over = changed_.wait_for(
      lock, options_.settings.diagnosis + kReportSlack + options_.settings.abort_patience,
      [&] { return state_ != State::failing; });
  Failure failure = failure_;
  if (!over) failure.text += " (ncclCommAbort does not come back: its memory is still in use)";
  throw error_of(failure);
}

void Group::check() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::open || (state_ == State::closed && failure_.text.empty())) return;
  }
  throw_failure();
}

void Group::fail_here(Failure failure, bool bury_it) {
  failure.text = "on rank " + std::to_string(options_.rank) + ": " + failure.text;
  fail(std::move(failure), bury_it);
}

void Group::fail(Failure failure, bool bury_it) {
  std::vector<Pending> settled;
  const std::lock_guard lock(mutex_);
  if (state_ != State::open) return;
  settled = settle(watch_.look(look_at_pending(), TimePoint::min()));
  state_ = State::failing;
  failure_ = std::move(failure);
  if (bury_it) undertaker_ = std::thread([self = shared_from_this()] { self->bury(); });
}

void Group::bury() {
  Failure failure;
  Progress position;
  {
    const std::lock_guard lock(mutex_);
    failure = failure_;
    position = progress_;
    if (position.submitted >= 0) position.last = newest_collective_.text();
  }
  const OnDevice device(api_, device_);
  const milliseconds patience = options_.settings.diagnosis;
  failure = report_in_time(board_, failure, position, patience, patience + kReportSlack);
  std::vector<std::shared_ptr<Lane>> lanes;
  {
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    lanes.reserve(lanes_.size());
    for (const auto& [key, lane] : lanes_) lanes.push_back(lane);
  }
  // All at once: a lane's last kernel may sit behind another's on one stream, and never end before
  // that one is aborted, too.
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < lanes.size(); ++i) {
    others.emplace_back([this, &failure, lane = lanes[i]] {
      const OnDevice here(api_, device_);
      lane->comm.abort(failure.text);
    });
  }
  if (!lanes.empty()) lanes.front()->comm.abort(failure.text);
  for (std::thread& thread : others) thread.join();

  std::vector<Pending> dead;
  std::vector<std::shared_ptr<Work>> newest;
  newest.reserve(lanes.size());
  const std::lock_guard lock(mutex_);
  for (const Pending& pending : pending_) pending.work->state_.store(Work::State::failed);
  dead.swap(pending_);
  watch_ = Watch();
  for (const auto& lane : lanes) newest.push_back(std::move(lane->newest));
  state_ = State::failed;
  changed_.notify_all();
}

// ------------------------------------------------------------------------------------ the watchdog

Event Group::take_event() {
  if (!spare_events_.empty()) {
    const Event event = spare_events_.back();
    spare_events_.pop_back();
    return event;
  }
  Event event = nullptr;
  cuda("cudaEventCreate", api_.event_create(&event));
  return event;
}

void Group::give_event(Event event) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::open) {
      spare_events_.push_back(event);
      return;
    }
  }
  api_.event_destroy(event);
}

Sight Group::look_at_pending() {
  const RelaxedCapture relaxed(api_);
  Sight sight;
  std::vector<const Lane*> busy;  // what is behind an operation that is not done is not done either
  for (const Pending& pending : pending_) {
    Seen seen = Seen::waiting;
    if (pending.work->state_.load() == Work::State::done) {
      seen = Seen::done;
    } else if (std::find(busy.begin(), busy.end(), pending.lane) == busy.end()) {
      const CudaResult end = api_.event_query(pending.work->end_);
      if (end == CudaResult::success) {
        seen = Seen::done;
      } else if (end != CudaResult::not_ready) {
        seen = Seen::broken;
        sight.device_error = api_.cuda_error_text(end);
      } else if (api_.event_query(pending.work->start_) == CudaResult::success) {
        seen = Seen::running;
      }
      if (seen != Seen::done) busy.push_back(pending.lane);
    }
    sight.works.push_back(seen);
  }
  return sight;
}

std::vector<Group::Pending> Group::settle(const Verdict& verdict) {
  std::vector<Pending> settled;
  std::vector<Pending> left;
  for (Pending& pending : pending_) {
    if (!std::binary_search(verdict.done.begin(), verdict.done.end(), pending.id)) {
      left.push_back(std::move(pending));
      continue;
    }
    pending.work->state_.store(Work::State::done);
    note_done(pending.work->label_);
    settled.push_back(std::move(pending));
  }
  pending_ = std::move(left);
  return settled;
}

void Group::note_done(const Label& label) {
  if (label.kind == OpKind::send || label.kind == OpKind::recv) return;
  progress_.completed = std::max(progress_.completed, label.sequence);
}

TimePoint Group::watch(TimePoint now) {
  const RelaxedCapture relaxed(api_);
  const OnDevice device(api_, device_);
  std::vector<std::shared_ptr<Lane>> lanes;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::open) return TimePoint::max();
    for (const auto& [key, lane] : lanes_) lanes.push_back(lane);
  }
  std::optional<std::string> comm_error;
  for (const auto& lane : lanes) {
    if (!comm_error) comm_error = lane->comm.look();
  }
  TimePoint next = now + options_.settings.watchdog * 10;  // idle: errors only
  std::optional<Failure> failure;
  std::vector<Pending> settled;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::open) return TimePoint::max();
    Sight sight = look_at_pending();
    sight.comm_error = comm_error;
    const Verdict verdict = watch_.look(sight, now);
    settled = settle(verdict);
    failure = verdict.failure;
    if (!pending_.empty()) {
      next = std::min(now + options_.settings.watchdog, *watch_.next_deadline());
    }
  }
  if (!failure) return next;
  fail_here(*failure);
  return TimePoint::max();
}

TimePoint Group::listen(TimePoint now) {
  const milliseconds pause = options_.settings.store_poll;
  if (pause.count() == 0 || !is_open()) return TimePoint::max();
  try {
    if (const auto failure = board_->failure()) {
      fail(*failure);
      return TimePoint::max();
    }
  } catch (const Failed& failed) {
    // A store that is gone fails no group: its operations do not need it.
    if (failed.status() == DRB_BACKEND) {
      fail({.text = failed.what()});
      return TimePoint::max();
    }
  }
  return now + pause;
}

Progress Group::progress() {
  const std::lock_guard lock(mutex_);
  Progress progress = progress_;
  if (progress.submitted >= 0) progress.last = newest_collective_.text();
  return progress;
}

// -------------------------------------------------------------------------------------- the end

void Group::abort(const std::string& reason, int culprit) {
  fail_here({.culprit = culprit, .text = "aborted: " + reason});
}

void Group::close_lanes(TimePoint deadline) {
  const OnDevice device(api_, device_);
  Lane* all = ready_collective_lane();
  for (const Registration& registration : registrations_) {
    if (!all || !registration.handle) continue;
    all->comm.local([&](Comm comm) { return api_.deregister_memory(comm, registration.handle); });
  }
  registrations_.clear();
  std::vector<std::shared_ptr<Lane>> lanes;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, lane] : lanes_) lanes.push_back(lane);
  }
  // In the order of their keys, which is the same everywhere: no two ranks wait for each other.
  for (const auto& lane : lanes) {
    const auto outcome = lane->comm.close(deadline);
    if (!outcome.ok) give_up(outcome);
  }
}

void Group::close(milliseconds timeout) {
  const TimePoint deadline = after(Clock::now(), timeout);
  const std::lock_guard order(order_);
  std::optional<Failed> error;
  try {
    throw_if_unusable();
    or_fail("destroy", [&] { close_lanes(deadline); });
  } catch (const Failed& failed) {
    error.emplace(failed);
  }
  leave();
  if (error) throw Failed(*error);
}

void Group::leave() {
  Rounds::watchdog().remove(this);
  Rounds::listener().remove(this);

  std::vector<Pending> settled;
  std::thread undertaker;
  bool stuck = false;
  {
    const std::lock_guard lock(mutex_);
    stuck = state_ == State::failing;
    if (state_ == State::open) {
      // Closing has flushed them.
      for (const Pending& pending : pending_) {
        pending.work->state_.store(Work::State::done);
        note_done(pending.work->label_);
      }
      settled.swap(pending_);
      watch_ = Watch();
      state_ = State::closed;
    }
    undertaker = std::move(undertaker_);
  }
  if (undertaker.joinable()) stuck ? undertaker.detach() : undertaker.join();
  // An abort that does not come back still uses them.
  if (!stuck) release_device_things();
}

void Group::release_device_things() {
  std::map<std::string, std::shared_ptr<Lane>> lanes;
  std::vector<Event> events;
  {
    const std::lock_guard lock(mutex_);
    lanes.swap(lanes_);
    events.swap(spare_events_);
  }
  if (lanes.empty() && events.empty()) return;
  const OnDevice device(api_, device_);
  for (const auto& [key, lane] : lanes) {
    lane->newest.reset();
    lane->comm.abort("let go of without being closed");
    if (lane->stream) api_.stream_destroy(lane->stream);
    if (lane->before) api_.event_destroy(lane->before);
    if (lane->scratch) api_.free_device(lane->scratch);
  }
  for (const Event event : events) api_.event_destroy(event);
}

}  // namespace distrun::nccl
