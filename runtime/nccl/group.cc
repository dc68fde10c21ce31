#include "runtime/nccl/group.h"

#include "runtime/base/check.h"
#include "runtime/nccl/rounds.h"
#include "runtime/nccl/work.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace distrun::nccl {
namespace {

using std::chrono::milliseconds;

const std::string kAll = "all";  // the lane of collectives

// How long beyond the diagnosis the store may take, and how long beyond that an abort.
constexpr milliseconds kReportSlack(3000);
constexpr milliseconds kAbortPatience(30'000);
constexpr milliseconds kLongest(std::chrono::hours(24 * 365));

TimePoint after(TimePoint now, milliseconds timeout) {
  return now + std::min(timeout, kLongest);
}

// The calling thread's device, for as long as this lives.
class OnDevice {
 public:
  OnDevice(const Api& api, int device) : api_(api) {
    int current = -1;
    if (device < 0) return;
    result_ = api.get_device(&current);
    if (result_ != CudaResult::success || current == device) return;
    result_ = api.set_device(device);
    before_ = current;
  }
  ~OnDevice() {
    if (before_ >= 0) api_.set_device(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  CudaResult result() const { return result_; }

 private:
  const Api& api_;
  int before_ = -1;
  CudaResult result_ = CudaResult::success;
};

}  // namespace

Group::Group(const Api& api, GroupOptions options, const drb_store& lent)
    : api_(api),
      options_(std::move(options)),
      board_(std::make_shared<Board>(lent, options_.rank, options_.world_size)),
      device_(options_.device) {}

Group::~Group() {
  if (undertaker_.joinable()) {
    // It holds a reference while it works, and may be the one to let go of the last.
    if (undertaker_.get_id() == std::this_thread::get_id()) {
      undertaker_.detach();
    } else {
      undertaker_.join();
    }
  }
  release_device_things();
}

std::shared_ptr<Group> Group::create(const Api& api, GroupOptions options, const drb_store& lent) {
  if (options.eager && options.device < 0) {
    throw Failed(DRB_ARGUMENT, "an eager group needs a device");
  }
  const TimePoint deadline = after(Clock::now(), options.timeout);
  const std::shared_ptr<Group> group(new Group(api, std::move(options), lent));
  start(group, [&] {
    if (!group->options_.eager) return;
    const OnDevice device(api, group->device_);
    group->or_fail("create", [&] {
      group->cuda("cudaSetDevice", device.result());
      group->collective_lane(deadline);
    });
  });
  return group;
}

void Group::start(const std::shared_ptr<Group>& group, const std::function<void()>& connect) {
  Rounds::watchdog().add(group);
  Rounds::listener().add(group);
  try {
    connect();
  } catch (...) {
    group->leave();
    throw;
  }
}

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
  const bool over =
      changed_.wait_for(lock, options_.settings.diagnosis + kReportSlack + kAbortPatience,
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
  const std::lock_guard lock(mutex_);
  for (const Pending& pending : pending_) pending.work->state_.store(Work::State::failed);
  dead.swap(pending_);
  watch_ = Watch();
  for (const auto& lane : lanes) newest.push_back(std::move(lane->newest));
  state_ = State::failed;
  changed_.notify_all();
}

// ------------------------------------------------------------------------------------- connecting

Group::Lane& Group::new_lane(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return *lanes_.emplace(key, std::make_shared<Lane>(api_)).first->second;
}

Group::Lane& Group::connect(const std::string& key, const std::vector<int>& members,
                            TimePoint deadline) {
  const auto size = static_cast<int>(members.size());
  const auto me =
      static_cast<int>(std::find(members.begin(), members.end(), options_.rank) - members.begin());
  Lane& lane = new_lane(key);
  int version = 0;
  nccl("ncclGetVersion", api_.version(&version));
  const Roots roots =
      plan_roots(size, api_.init_rank_scalable ? options_.settings.ranks_per_root : size);
  if (const auto root = roots.started_by(me, size)) {
    UniqueId id{};
    nccl("ncclGetUniqueId", api_.get_unique_id(&id));
    board_->publish_id(key, *root, id, version);
  }
  std::vector<UniqueId> ids;
  for (int root = 0; root < roots.count; ++root) {
    const int starter = members[static_cast<std::size_t>(roots.starter(root, size))];
    const auto id = board_->wait_id(key, root, version, "rank " + std::to_string(starter), deadline,
                                    [&] { return !is_open(); });
    if (!id) throw_failure();
    ids.push_back(*id);
  }
  const CommConfig& config = options_.settings.comm;
  const auto outcome = lane.comm.join(
      [&](Comm* place) {
        return ids.size() == 1 ? api_.init_rank(place, size, ids.front(), me, config)
                               : api_.init_rank_scalable(place, size, me, ids, config);
      },
      deadline);
  if (!outcome.ok) give_up(outcome);
  furnish(lane);
  return lane;
}

void Group::furnish(Lane& lane) {
  cuda("cudaStreamCreateWithPriority",
       api_.stream_create(&lane.stream, options_.settings.high_priority));
  cuda("cudaEventCreate", api_.event_create(&lane.before));
}

void Group::adopt(Comm comm, TimePoint deadline) {
  Lane& lane = new_lane(kAll);
  const auto outcome = lane.comm.adopt(comm, deadline);
  if (!outcome.ok) give_up(outcome);
  furnish(lane);
}

Group::Lane& Group::collective_lane(TimePoint deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = lanes_.find(kAll); found != lanes_.end()) return *found->second;
  }
  std::vector<int> everybody(static_cast<std::size_t>(options_.world_size));
  std::iota(everybody.begin(), everybody.end(), 0);
  Lane& lane = connect(kAll, everybody, deadline);
  for (Registration& registration : registrations_) {
    const auto told = lane.comm.local([&](Comm comm) {
      return api_.register_memory(comm, registration.data, registration.bytes,
                                  &registration.handle);
    });
    if (!told.ok) throw Failed(DRB_BACKEND, "ncclCommRegister: " + told.why);
  }
  return lane;
}

Group::Lane& Group::lane_for(const Plan& plan, TimePoint deadline) {
  const bool alone = plan.point_to_point && plan.label.coalesced == 1 && !options_.eager;
  if (!alone) return collective_lane(deadline);
  const int low = std::min(options_.rank, plan.label.peer);
  const int high = std::max(options_.rank, plan.label.peer);
  const std::string key = std::to_string(low) + ":" + std::to_string(high);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = lanes_.find(key); found != lanes_.end()) return *found->second;
  }
  return connect(key, {low, high}, deadline);
}

// ------------------------------------------------------------------------------------- operations

std::shared_ptr<Work> Group::submit(std::span<const drb_op* const> ops, const CallOptions& call) {
  const TimePoint now = Clock::now();
  if (call.timeout.count() < 0) {
    throw Failed(DRB_ARGUMENT, "the timeout is negative: " + std::to_string(call.timeout.count()));
  }
  const milliseconds timeout = call.timeout.count() == 0 ? options_.timeout : call.timeout;
  const TimePoint deadline = after(now, timeout);
  std::shared_ptr<Work> work;
  bool barrier = false;
  {
    const std::lock_guard order(order_);
    throw_if_unusable();
    const Plan plan = make_plan(ops, {options_.rank, options_.world_size});
    barrier = plan.barrier;
    if (plan.device >= 0 && device_ >= 0 && plan.device != device_) {
      throw Failed(DRB_ARGUMENT, std::string(to_string(plan.label.kind)) +
                                     ": the tensors are on cuda:" + std::to_string(plan.device) +
                                     ", and group " + options_.name +
                                     " is on cuda:" + std::to_string(device_));
    }
    if (device_ < 0) {
      int device = plan.device;
      // A barrier, before anything else: on the device that the caller uses.
      if (device < 0) cuda("cudaGetDevice", api_.get_device(&device));
      device_ = device;
    }
    Label label = plan.label;
    label.sequence = plan.point_to_point ? transfers_++ : collectives_++;
    if (!plan.point_to_point) {
      const std::lock_guard lock(mutex_);
      newest_collective_ = label;
      progress_.submitted = label.sequence;
    }
    work = or_fail(label.text(), [&] { return launch(plan, label, call, now, deadline); });
  }
  if (!call.async && (barrier || options_.settings.blocking_wait)) {
    work->wait(call.stream, milliseconds(0), true);
  }
  return work;
}

std::shared_ptr<Work> Group::launch(const Plan& plan, const Label& label, const CallOptions& call,
                                    TimePoint now, TimePoint deadline) {
  const OnDevice device(api_, device_);
  cuda("cudaSetDevice", device.result());
  Lane& lane = lane_for(plan, deadline);
  const auto work = std::make_shared<Work>(shared_from_this(), label);
  work->barrier_ = plan.barrier;
  if (plan.commands.empty()) {
    work->empty_ = true;
    work->state_.store(Work::State::done);
    if (!plan.point_to_point) {
      const std::lock_guard lock(mutex_);
      // Only what is not behind others' work is done.
      if (pending_.empty()) note_done(label);
    }
    return work;
  }
  const Stream stream = call.async ? lane.stream : call.stream;
  bool capturing = false;
  cuda("cudaStreamIsCapturing", api_.stream_is_capturing(call.stream, &capturing));
  work->captured_ = capturing;
  {
    const std::lock_guard lock(mutex_);
    if (!capturing) work->start_ = take_event();
    work->end_ = take_event();
  }
  if (plan.barrier && !lane.scratch) {
    cuda("cudaMalloc", api_.malloc_device(&lane.scratch, sizeof(double)));
    cuda("cudaMemsetAsync", api_.zero_async(lane.scratch, sizeof(double), stream));
  }
  if (call.async) {
    cuda("cudaEventRecord", api_.event_record(lane.before, call.stream));
    cuda("cudaStreamWaitEvent", api_.stream_wait_event(stream, lane.before));
  }
  // A communicator's operations come in their order, on whatever streams.
  if (lane.newest && lane.newest_stream != stream && !capturing) {
    cuda("cudaStreamWaitEvent", api_.stream_wait_event(stream, lane.newest->end_));
  }
  if (work->start_) cuda("cudaEventRecord", api_.event_record(work->start_, stream));
  for (const Command& command : plan.commands) {
    if (command.call != Call::copy) continue;
    cuda("cudaMemcpyAsync", api_.copy_async(command.out, command.in, command.count, stream));
  }
  const std::vector<int> ops = make_ops(plan, lane);
  // It is enqueued only when NCCL says so; what is recorded before that would fire too early.
  const auto outcome =
      lane.comm.enqueue([&](Comm comm) { return issue(plan, lane, comm, stream, ops); }, deadline);
  if (!outcome.ok) give_up(outcome);
  for (const int op : ops) {
    if (op >= 0) lane.comm.local([&](Comm comm) { return api_.op_destroy(op, comm); });
  }
  cuda("cudaEventRecord", api_.event_record(work->end_, stream));
  if (!capturing) watch_from_now(work, lane, now, deadline);
  std::shared_ptr<Work> older;
  const std::lock_guard lock(mutex_);
  if (!capturing && state_ == State::open) {
    older = std::exchange(lane.newest, work);
    lane.newest_stream = stream;
  }
  return work;
}

std::vector<int> Group::make_ops(const Plan& plan, Lane& lane) {
  std::vector<int> ops;
  for (const Command& command : plan.commands) {
    ops.push_back(-1);
    if (!command.premul) continue;
    const Scalar scalar = scalar_of(command.type, command.factor);
    const void* factor = command.factor_on_device ? command.factor_on_device : scalar.bytes;
    const auto made = lane.comm.local([&](Comm comm) {
      return api_.premul_sum_create(&ops.back(), factor, command.type,
                                    command.factor_on_device != nullptr, comm);
    });
    if (!made.ok) throw Failed(DRB_BACKEND, "ncclRedOpCreatePreMulSum: " + made.why);
  }
  return ops;
}

NcclResult Group::issue(const Plan& plan, const Lane& lane, Comm comm, Stream stream,
                        const std::vector<int>& ops) const {
  const auto calls = std::count_if(plan.commands.begin(), plan.commands.end(),
                                   [](const Command& c) { return c.call != Call::copy; });
  if (calls == 0) return NcclResult::success;
  // Between two calls outside a group the state would have to be asked for.
  const bool grouped = calls > 1;
  NcclResult result = grouped ? api_.group_start() : NcclResult::success;
  if (result != NcclResult::success) return result;
  for (std::size_t i = 0; i < plan.commands.size(); ++i) {
    const Command& c = plan.commands[i];
    const int op = ops[i] >= 0 ? ops[i] : static_cast<int>(c.op);
    const void* in = c.on_scratch ? lane.scratch : c.in;
    void* out = c.on_scratch ? lane.scratch : c.out;
    switch (c.call) {
      case Call::copy:
        continue;
      case Call::all_reduce:
        result = api_.all_reduce(in, out, c.count, c.type, op, comm, stream);
        break;
      case Call::reduce:
        result = api_.reduce(in, out, c.count, c.type, op, c.peer, comm, stream);
        break;
      case Call::broadcast:
        result = api_.broadcast(in, out, c.count, c.type, c.peer, comm, stream);
        break;
      case Call::all_gather:
        result = api_.all_gather(in, out, c.count, c.type, comm, stream);
        break;
      case Call::reduce_scatter:
        result = api_.reduce_scatter(in, out, c.count, c.type, op, comm, stream);
        break;
      case Call::send:
      case Call::recv: {
        // In a pair's own communicator the ranks are 0 and 1.
        int peer = c.peer;
        if (plan.point_to_point && plan.label.coalesced == 1 && !options_.eager) {
          peer = options_.rank < c.peer ? 1 : 0;
        }
        result = c.call == Call::send ? api_.send(in, c.count, c.type, peer, comm, stream)
                                      : api_.recv(out, c.count, c.type, peer, comm, stream);
        break;
      }
    }
    if (result != NcclResult::success && result != NcclResult::in_progress) break;
  }
  if (!grouped) return result;
  const NcclResult end = api_.group_end();
  return result == NcclResult::success || result == NcclResult::in_progress ? end : result;
}

void Group::watch_from_now(const std::shared_ptr<Work>& work, const Lane& lane, TimePoint submitted,
                           TimePoint deadline) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::open) {
      // It failed while this was being enqueued.
      work->state_.store(Work::State::failed);
      return;
    }
    first = pending_.empty();
    watch_.add(
        {.id = next_id_, .label = work->label_, .submitted = submitted, .deadline = deadline});
    pending_.push_back({next_id_++, work, &lane});
  }
  if (first) {
    Rounds::watchdog().nudge(std::min(deadline, Clock::now() + options_.settings.watchdog));
  }
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
  thread_local bool relaxed = false;
  if (!relaxed) relaxed = api_.allow_calls_during_capture() == CudaResult::success;
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
  } catch (const Failed&) {
    // A store that is gone fails no group: its operations do not need it.
  }
  return now + pause;
}

Progress Group::progress() {
  const std::lock_guard lock(mutex_);
  Progress progress = progress_;
  if (progress.submitted >= 0) progress.last = newest_collective_.text();
  return progress;
}

// --------------------------------------------------------------------------------- other groups

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

Group::Lane* Group::ready_collective_lane() {
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(kAll);
  const bool ready = found != lanes_.end() && found->second->comm.phase() == Phase::ready;
  return ready ? found->second.get() : nullptr;
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
