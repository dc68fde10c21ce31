#include "runtime/worker/device_group.h"

#include "runtime/worker/deadline.h"
#include "runtime/worker/lent_store.h"
#include <distrun/dlpack.h>

#include <algorithm>
#include <set>

namespace distrun {
namespace {

// Between two looks at what is under way.
constexpr auto kLook = std::chrono::milliseconds(5);

// Submitted and not yet done; more have to wait until there is room.
constexpr std::size_t kPendingMax = 4096;

static_assert(static_cast<int>(OpType::broadcast) == DRB_BROADCAST);
static_assert(static_cast<int>(OpType::all_to_all) == DRB_ALL_TO_ALL);
static_assert(static_cast<int>(ReduceOp::sum) == DRB_SUM);
static_assert(static_cast<int>(ReduceOp::bxor) == DRB_BXOR);
static_assert(static_cast<int>(ReduceOp::premul_sum) == DRB_PREMUL_SUM);

drb_op_kind kind_of(OpType op) {
  switch (op) {
    case OpType::broadcast:
    case OpType::all_reduce:
    case OpType::reduce:
    case OpType::all_gather:
    case OpType::gather:
    case OpType::scatter:
    case OpType::reduce_scatter:
    case OpType::all_to_all:
      return static_cast<drb_op_kind>(op);
    case OpType::barrier:
      return DRB_BARRIER;
    case OpType::send:
      return DRB_SEND;
    case OpType::recv:
      return DRB_RECV;
  }
  return DRB_BARRIER;
}

std::string name_of(std::span<const Call> calls) {
  return to_string(calls.front()) +
         (calls.size() > 1 ? " and " + std::to_string(calls.size() - 1) + " more" : "");
}
std::string name_of(std::span<const P2PCall> calls) {
  return to_string(calls.front()) +
         (calls.size() > 1 ? " and " + std::to_string(calls.size() - 1) + " more" : "");
}

// A group's name in the flight record, beside that of the same group on the CPU.
std::string on_device(const std::string& name, DeviceType device) {
  return name.empty() ? name : name + " on " + std::string(to_string(device));
}

std::int64_t in_ms(Timeout timeout) {
  return std::max<std::int64_t>(timeout.count(), 1);
}

}  // namespace

// ---- a call as the ABI has it ------------------------------------------------------------------

struct DeviceGroup::Ops {
  struct One {
    drb_op op{};
    std::vector<drb_tensor> inputs;
    std::vector<drb_tensor> outputs;
    std::vector<std::uint64_t> input_splits;
    std::vector<std::uint64_t> output_splits;
  };
  std::vector<One> all;
  std::vector<const drb_op*> pointers;

  template <class AnyCall>
  explicit Ops(std::span<const AnyCall> calls) {
    all.reserve(calls.size());
    for (const AnyCall& call : calls) add(call);
    for (One& one : all) {
      one.op.size = sizeof(drb_op);
      one.op.n_inputs = static_cast<std::uint32_t>(one.inputs.size());
      one.op.n_outputs = static_cast<std::uint32_t>(one.outputs.size());
      one.op.inputs = one.inputs.data();
      one.op.outputs = one.outputs.data();
      if (!one.input_splits.empty()) one.op.input_splits = one.input_splits.data();
      if (!one.output_splits.empty()) one.op.output_splits = one.output_splits.data();
      pointers.push_back(&one.op);
    }
  }

 private:
  static drb_tensor tensor(const void* data, std::uint64_t count, DType dtype, Device device) {
    drb_tensor tensor{};
    tensor.data = const_cast<void*>(data);
    tensor.count = count;
    const DLPackType type = dlpack_type(dtype);
    tensor.dtype_code = type.code;
    tensor.dtype_bits = type.bits;
    tensor.device_type = static_cast<std::int32_t>(device.type);
    tensor.device_index = device.index;
    return tensor;
  }

  // As they were given: all ranks give them alike.
  template <class AnyPart>
  static std::vector<drb_tensor> tensors(const std::vector<AnyPart>& parts, const Call& call,
                                         std::vector<std::uint64_t>* splits) {
    if (!call.whole || parts.empty()) return list_of(parts, call);
    std::uint64_t total = 0;
    for (const AnyPart& part : parts) {
      total += part.count;
      if (splits != nullptr) splits->push_back(part.count);
    }
    return {tensor(parts.front().data, total, call.dtype, call.device)};
  }

  template <class AnyPart>
  static std::vector<drb_tensor> list_of(const std::vector<AnyPart>& parts, const Call& call) {
    std::vector<drb_tensor> list;
    list.reserve(parts.size());
    for (const AnyPart& part : parts)
      list.push_back(tensor(part.data, part.count, call.dtype, call.device));
    return list;
  }

  void add(const Call& call) {
    One& one = all.emplace_back();
    one.op.kind = kind_of(call.op);
    one.op.reduce_op = static_cast<drb_reduce_op>(call.reduce);
    one.op.root = call.root;
    one.op.peer = -1;
    one.op.premul = call.factor;
    const drb_tensor in = tensor(call.in, call.count, call.dtype, call.device);
    const drb_tensor out = tensor(call.out, call.count, call.dtype, call.device);
    switch (call.op) {
      case OpType::broadcast:
      case OpType::all_reduce:
      case OpType::reduce:
        one.outputs = {out};
        break;
      case OpType::all_gather:
      case OpType::gather:
        one.inputs = {in};
        one.outputs = tensors(call.outs, call, nullptr);
        break;
      case OpType::scatter:
      case OpType::reduce_scatter:
        one.inputs = tensors(call.ins, call, nullptr);
        one.outputs = {out};
        break;
      case OpType::all_to_all:
        one.inputs = tensors(call.ins, call, &one.input_splits);
        one.outputs = tensors(call.outs, call, &one.output_splits);
        break;
      case OpType::barrier:
      case OpType::send:
      case OpType::recv:
        break;
    }
  }

  void add(const P2PCall& call) {
    One& one = all.emplace_back();
    one.op.kind = kind_of(call.op);
    one.op.peer = call.peer == kAnySource ? DRB_ANY_RANK : call.peer;
    one.op.root = -1;
    one.op.tag = call.tag;
    if (call.op == OpType::send)
      one.inputs.push_back(tensor(call.in, call.count, call.dtype, call.device));
    else
      one.outputs.push_back(tensor(call.out, call.count, call.dtype, call.device));
  }
};

// ---- the group ---------------------------------------------------------------------------------

DeviceGroup::DeviceGroup(const BackendLibrary& library, const GroupEngine::Identity& identity,
                         const std::shared_ptr<Store>& store, const Options& options,
                         const std::vector<int>& global_ranks,
                         std::function<void(const GroupFailure& failure)> failed,
                         std::function<void()> look, DeviceGroup* parent)
    : library_(library),
      options_(options),
      identity_(identity),
      failed_(std::move(failed)),
      log_(on_device(identity.name, options.device),
           on_device(identity.description, options.device), library.name(), identity.rank,
           identity.size, global_ranks) {
  std::vector<drb_option> pairs;
  pairs.reserve(options.settings.size());
  for (const auto& [key, value] : options.settings) pairs.push_back({key.c_str(), value.c_str()});
  const auto news = std::make_shared<BadNews>(std::move(look));
  const LentStore lent(store ? store : std::make_shared<HashStore>(), news);
  const drb_group_options given{.size = sizeof(drb_group_options),
                                .flags = options.index ? std::uint32_t{DRB_GROUP_EAGER} : 0U,
                                .rank = identity.rank,
                                .world_size = identity.size,
                                .device_index = options.index.value_or(-1),
                                .n_options = static_cast<std::uint32_t>(pairs.size()),
                                .timeout_ms = in_ms(identity.timeout),
                                .name = identity_.name.c_str(),
                                .store = lent.get(),
                                .options = pairs.data()};
  const drb_backend& backend = library_.functions();
  const drb_status status = parent != nullptr ? backend.split(parent->group_, 0, &given, &group_)
                                              : backend.create(&given, &group_);
  // The reason why it gave up, rather than its words for it.
  if (const std::exception_ptr heard = news->end(); heard && status != DRB_OK)
    std::rethrow_exception(heard);
  library_.check(status);
}

void DeviceGroup::stay_out_of_split(Timeout timeout) {
  drb_group_options given{};
  given.size = sizeof(drb_group_options);
  given.device_index = -1;
  given.timeout_ms = in_ms(timeout);
  drb_group* none = nullptr;
  library_.check(library_.functions().split(group_, DRB_NO_COLOUR, &given, &none));
}

DeviceGroup::~DeviceGroup() {
  if (closed_) return;
  abort("the group was let go of", identity_.rank);
  try {
    close(Timeout(1));
  } catch (const DistError&) {
    // Nobody to tell: who wants to know calls close().
  }
}

bool DeviceGroup::is_used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

// In a submit() from here to the end of the scope: close() waits for that.
class DeviceGroup::Entry {
 public:
  explicit Entry(DeviceGroup& group) : group_(group) {
    std::unique_lock lock(group_.mutex_);
    group_.changed_.wait(lock,
                         [this] { return group_.pending_.size() < kPendingMax || group_.closed_; });
    if (group_.closed_)
      throw DistBackendError("process group \"" + group_.identity_.name + "\" is closed");
    if (!group_.watcher_.joinable())
      group_.watcher_ = std::thread([&watched = group_] { watched.watch_all(); });
    ++group_.submitting_;
  }
  ~Entry() {
    const std::lock_guard lock(group_.mutex_);
    --group_.submitting_;
    group_.changed_.notify_all();
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  DeviceGroup& group_;
};

template <class AnyCall>
std::shared_ptr<DeviceWork> DeviceGroup::submit_any(std::span<const AnyCall> calls, Timeout timeout,
                                                    const CallOptions& options,
                                                    std::uint32_t flags) {
  if (calls.size() > 1 && !library_.can(DRB_CAN_COALESCE))
    throw DistUnsupportedError(library_.name() + " takes no operations together; call them singly");
  const Entry entry(*this);
  const drb_backend& backend = library_.functions();
  const Ops ops(calls);
  const bool waits = calls.size() == 1 && calls.front().op == OpType::barrier;
  auto work = std::make_shared<DeviceWork>(
      library_, "process group \"" + identity_.name + "\": " + name_of(calls), waits);
  const drb_call call{.size = sizeof(drb_call),
                      .flags = flags | (options.async_op ? std::uint32_t{DRB_CALL_ASYNC} : 0U),
                      .stream = options.stream,
                      .timeout_ms = in_ms(timeout)};
  for (const AnyCall& one : calls) work->records_.push_back(log_.scheduled(one, timeout));
  try {
    library_.check(backend.submit(group_, ops.pointers.data(),
                                  static_cast<std::uint32_t>(ops.pointers.size()), &call,
                                  &work->work_));
    if (work->work_ == nullptr)
      throw DistBackendError(library_.name() + " gave no work for " + work->name());
  } catch (...) {
    for (const FlightLog::Entry& record : work->records_) log_.ended(record, false);
    look_at(std::current_exception());
    throw;
  }
  for (const FlightLog::Entry& record : work->records_) log_.started(record);
  {
    const std::lock_guard lock(mutex_);
    pending_.push_back(work);
    changed_.notify_all();
  }
  if (!options.async_op && (waits || !library_.can(DRB_IS_STREAM_ORDERED)))
    work->wait_until(TimePoint::max());
  return work;
}

std::shared_ptr<DeviceWork> DeviceGroup::submit(std::span<const Call> calls, Timeout timeout,
                                                const CallOptions& options) {
  std::vector<Call> numbered(calls.begin(), calls.end());
  {
    const std::lock_guard lock(mutex_);
    for (Call& call : numbered) call.sequence = next_sequence_++;
  }
  for (const Call& call : numbered)
    for (std::size_t i = 0; call.op == OpType::all_to_all && i < call.ins.size(); ++i)
      if (call.ins[i].data == call.outs[i].data && call.ins[i].count > 0)
        throw DistUnsupportedError("all_to_all on " + to_string(call.device) +
                                   ": an input is an output; there it is not done in place");
  auto work = submit_any(std::span<const Call>(numbered), timeout, options, 0);
  work->sequence_ = numbered.front().sequence;
  const std::lock_guard lock(mutex_);
  used_ = true;
  return work;
}

std::shared_ptr<DeviceWork> DeviceGroup::submit(std::span<const P2PCall> calls, Timeout timeout,
                                                const CallOptions& options, bool batch) {
  for (const P2PCall& call : calls) {
    if (call.peer == kAnySource && !library_.can(DRB_CAN_ANY_RANK))
      throw DistUnsupportedError(library_.name() + " has no recv from any source; name the rank");
    if (call.tag != 0 && !library_.can(DRB_CAN_TAG))
      throw DistUnsupportedError(library_.name() + " has no tags, and this one is " +
                                 std::to_string(call.tag) +
                                 "; between two ranks the order is the match");
  }
  auto work = submit_any(calls, timeout, options, batch ? std::uint32_t{DRB_CALL_BATCH} : 0U);
  if (calls.front().op == OpType::recv && calls.front().peer != kAnySource)
    work->source_ = calls.front().peer;
  return work;
}

// What this rank has submitted is done, as far as it is known here.
void DeviceGroup::wait_for_pending(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return pending_.empty() || stopping_; });
}

// ---- what is under way -------------------------------------------------------------------------

void DeviceGroup::watch_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !pending_.empty(); });
    if (stopping_) return;
    std::vector<std::shared_ptr<DeviceWork>> done(pending_.begin(), pending_.end());
    lock.unlock();
    std::erase_if(done, [this](const auto& work) { return !settle(*work); });
    lock.lock();
    const std::set<std::shared_ptr<DeviceWork>> gone(done.begin(), done.end());
    std::erase_if(pending_, [&](const auto& work) { return gone.contains(work); });
    changed_.notify_all();
    changed_.wait_for(lock, kLook, [this] { return stopping_; });
  }
}

// True: there is nothing more to be seen of it.
bool DeviceGroup::settle(DeviceWork& work) noexcept {
  if (!work.poll()) return work.cannot_be_watched();
  const std::exception_ptr error = work.exception();
  for (const FlightLog::Entry& record : work.records_) log_.ended(record, !error);
  try {
    if (error) look_at(error);
    work.outcome_.tell();
  } catch (...) {
    // Of a callback, which was told not to throw; or there is no memory for a text.
  }
  return true;
}

void DeviceGroup::stop_watching() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

void DeviceGroup::look_at(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const DistError& failure) {
    // An argument that was refused has sent nothing, and a wait that was over too soon ends
    // nothing.
    if (library_.functions().check(group_) == DRB_OK) return;
    const bool late = failure.kind() == ErrorKind::timeout;
    failed_({late ? ErrorKind::timeout : ErrorKind::backend, failure.peer_rank(), failure.what()});
  } catch (...) {
    // Not the backend's.
  }
}

void DeviceGroup::close(Timeout timeout) {
  const TimePoint deadline = deadline_after(timeout, "close");
  std::unique_lock lock(mutex_);
  if (std::exchange(closed_, true)) return;
  changed_.notify_all();
  const auto nobody_submits = [this] { return submitting_ == 0; };
  if (!changed_.wait_until(lock, deadline, nobody_submits)) {
    static_cast<void>(library_.functions().abort(group_, "it is closed", identity_.rank));
    changed_.wait(lock, nobody_submits);
  }
  lock.unlock();
  // It looks at the handle, which is soon gone.
  stop_watching();
  std::exception_ptr failure;
  try {
    const auto left = std::chrono::ceil<Timeout>(std::max(deadline - Clock::now(), Duration(0)));
    library_.check(library_.functions().destroy(group_, in_ms(left)));
  } catch (const DistError&) {
    failure = std::current_exception();
  }
  group_ = nullptr;
  for (const auto& work : pending_)
    if (!settle(*work))
      for (const FlightLog::Entry& record : work->records_) log_.ended(record, false);
  pending_.clear();
  if (failure) std::rethrow_exception(failure);
}

void DeviceGroup::abort(const std::string& why, std::optional<int> culprit) noexcept {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  static_cast<void>(library_.functions().abort(group_, why.c_str(), culprit.value_or(-1)));
}

// ---- one operation -----------------------------------------------------------------------------

DeviceWork::~DeviceWork() {
  if (work_ != nullptr) library_.functions().work_release(work_);
}

bool DeviceWork::poll() const noexcept {
  if (outcome_.is_set()) return true;
  drb_work_state state = DRB_WORK_FAILED;
  const drb_status status = library_.functions().work_test(work_, &state);
  // Of a part of a CUDA graph nothing can be seen.
  if (status == DRB_UNSUPPORTED) unseen_ = true;
  if (unseen_ || (status == DRB_OK && state == DRB_WORK_PENDING)) return false;
  outcome_.set(status == DRB_OK && state == DRB_WORK_DONE ? nullptr : failure());
  return true;
}

// REQUIRES: it has failed.
std::exception_ptr DeviceWork::failure() const noexcept {
  try {
    library_.check(library_.functions().work_wait(work_, nullptr, 0, DRB_WAIT_HOST));
    throw DistBackendError(name_ + ": it failed, and does not say why");
  } catch (...) {
    return std::current_exception();
  }
}

bool DeviceWork::wait_until(TimePoint deadline) {
  while (!poll()) {
    std::int64_t left = 0;  // it has a deadline of its own
    if (deadline != TimePoint::max()) {
      left = std::chrono::ceil<Timeout>(deadline - Clock::now()).count();
      if (left <= 0) return false;
    }
    const drb_status status = library_.functions().work_wait(work_, nullptr, left, DRB_WAIT_HOST);
    if (poll()) break;
    if (status != DRB_TIMEOUT || deadline == TimePoint::max()) library_.check(status);
  }
  if (const std::exception_ptr failed = outcome_.exception()) std::rethrow_exception(failed);
  return true;
}

void DeviceWork::wait_on(void* stream) {
  if (waits_on_host_ || !library_.can(DRB_IS_STREAM_ORDERED)) {
    wait_until(TimePoint::max());
    return;
  }
  library_.check(library_.functions().work_wait(work_, stream, 0, 0));
}

bool DeviceWork::is_completed() const {
  return poll();
}

std::exception_ptr DeviceWork::exception() const {
  return poll() ? outcome_.exception() : nullptr;
}

std::optional<int> DeviceWork::source_rank() const {
  return poll() && !outcome_.exception() ? source_ : std::nullopt;
}

}  // namespace distrun
