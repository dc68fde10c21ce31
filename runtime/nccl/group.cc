#include "runtime/nccl/group.h"

#include "runtime/nccl/on_device.h"
#include "runtime/nccl/rounds.h"
#include "runtime/nccl/work.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace distrun::nccl {
namespace {

using std::chrono::milliseconds;

const std::string kAll = "all";  // the lane of collectives

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
  std::shared_ptr<Group> group(new Group(api, std::move(options), lent));
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

Group::Lane& Group::lane_for(const Plan& plan, bool batch, TimePoint deadline) {
  const bool alone = plan.point_to_point && plan.label.coalesced == 1 && !batch && !options_.eager;
  if (!alone) return collective_lane(deadline);
  const int low = std::min(options_.rank, plan.label.peer);
  const int high = std::max(options_.rank, plan.label.peer);
  const std::string key = std::to_string(low) + ":" + std::to_string(high);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = lanes_.find(key); found != lanes_.end()) return *found->second;
  }
  Lane& lane = connect(key, {low, high}, deadline);
  lane.of_pair = true;
  return lane;
}

Group::Lane* Group::ready_collective_lane() {
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(kAll);
  const bool ready = found != lanes_.end() && found->second->comm.phase() == Phase::ready;
  return ready ? found->second.get() : nullptr;
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
  Lane& lane = lane_for(plan, call.batch, deadline);
  auto work = std::make_shared<Work>(shared_from_this(), label);
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
        int peer = c.peer;
        if (lane.of_pair) peer = options_.rank < c.peer ? 1 : 0;
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

}  // namespace distrun::nccl
