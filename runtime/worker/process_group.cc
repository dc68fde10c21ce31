// The public face of process groups: hands what Arguments made of a call to the engine, and makes
// groups out of groups.
#include "runtime/worker/process_group.h"

#include "runtime/worker/arguments.h"
#include "runtime/worker/backend_config.h"
#include "runtime/worker/deadline.h"
#include "runtime/worker/shm/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace distrun {
namespace {

constexpr Timeout kDestructorPatience = std::chrono::seconds(5);

std::uint64_t fnv1a(std::uint64_t hash, std::uint64_t value) {
  for (int byte = 0; byte < 8; ++byte) hash = (hash ^ (value >> 8 * byte & 0xFFU)) * 0x100000001B3U;
  return hash;
}

}  // namespace

// ---- backends ----------------------------------------------------------------------------------

namespace {

std::string list_of(const std::vector<DeviceType>& devices) {
  std::string text;
  for (const DeviceType device : devices)
    text += (text.empty() ? "" : ", ") + std::string(to_string(device));
  return text;
}

// Those of this backend, without its name in front.
std::vector<std::pair<std::string, std::string>> settings_of(
    const std::string& backend, const std::vector<std::pair<std::string, std::string>>& all) {
  std::vector<std::pair<std::string, std::string>> own;
  for (const auto& [key, value] : all)
    if (key.starts_with(backend + ".")) own.emplace_back(key.substr(backend.size() + 1), value);
  return own;
}

}  // namespace

Backends Backends::resolve(std::string_view text, const GroupOptions& options) {
  Backends all;
  all.text = text;
  all.device_id = options.device_id;
  all.settings = options.backend_options;
  for (const BackendChoice& choice : parse_backends(text)) {
    if (choice.name == kGloo) continue;
    const BackendLibrary& library = BackendLibrary::named(choice.name);
    const auto& can = library.devices();
    if (!choice.device)
      for (const DeviceType device : can) all.devices.emplace_back(device, &library);
    else if (std::find(can.begin(), can.end(), *choice.device) != can.end())
      all.devices.emplace_back(*choice.device, &library);
    else
      throw DistArgumentError("backend \"" + all.text + "\": " + choice.name + " takes memory of " +
                              list_of(can) + ", not of " + std::string(to_string(*choice.device)));
  }
  const auto has = [&](auto is) { return std::any_of(all.devices.begin(), all.devices.end(), is); };
  if (all.device_id && (all.device_id->index < 0 || !has([&](const auto& device) {
                          return device.first == all.device_id->type;
                        })))
    throw DistArgumentError("device_id " + to_string(*all.device_id) + ": backend \"" + all.text +
                            "\" takes no memory of it");
  for (const auto& [key, value] : all.settings)
    if (!has([&, &name = key](const auto& device) {
          return name.starts_with(device.second->name() + ".");
        }))
      throw DistArgumentError("backend_options: \"" + key + "\" is no setting of \"" + all.text +
                              "\"; they are named BACKEND.SETTING");
  return all;
}

ProcessGroup::Impl::Impl(Backends of_backends, const GroupEngine::Identity& identity,
                         MeetingPlace meeting_place, std::vector<int> ranks, Impl* parent)
    : backends(std::move(of_backends)),
      place(std::move(meeting_place)),
      global_ranks(std::move(ranks)),
      arguments(identity.rank, identity.size),
      engine(identity, join(place, identity), global_ranks) {
  try {
    for (const auto& [type, library] : backends.devices) {
      DeviceGroup::Options options;
      options.device = type;
      if (backends.device_id && backends.device_id->type == type)
        options.index = backends.device_id->index;
      options.settings = settings_of(library->name(), backends.settings);
      std::shared_ptr<Store> store;
      if (place.store)
        store = std::make_shared<PrefixStore>(
            place.path + "/" + identity.name + "/backend/" + std::string(to_string(type)),
            place.store->clone());
      DeviceGroup* from = nullptr;
      if (parent != nullptr && splits(*parent->devices[devices.size()]))
        from = parent->devices[devices.size()].get();
      devices.push_back(std::make_unique<DeviceGroup>(
          *library, identity, store, options, global_ranks,
          [this](const GroupFailure& failure) { engine.fail(failure); },
          [this] { engine.look_for_failure(); }, from));
    }
  } catch (const std::exception& error) {
    engine.leave(error.what());
    throw;
  }
  engine.on_failure([this](const std::string& text, std::optional<int> culprit) {
    for (const auto& device : devices) device->abort(text, culprit);
  });
  // A rank that could not make one of them has left: the others hear of it here.
  if (!devices.empty()) engine.run(Call(), identity.timeout);
}

// Threads of the engine or of one device may be about to tell another device of a failure.
ProcessGroup::Impl::~Impl() {
  engine.leave("it was let go of");
  engine.stop_threads();
  for (const auto& device : devices) device->stop_watching();
}

DeviceGroup* ProcessGroup::Impl::device_group(Device device, OpType op) {
  const DeviceType type = is_host_memory(device) ? DeviceType::cpu : device.type;
  for (const auto& one : devices)
    if (one->takes(type)) return one.get();
  if (type == DeviceType::cpu) return nullptr;
  throw DistUnsupportedError(std::string(to_string(op)) + ": a tensor on " + to_string(device) +
                             ", of which the backend of this group, \"" + backends.text +
                             "\", takes no memory");
}

bool ProcessGroup::Impl::splits(const DeviceGroup& device) {
  return device.options().index.has_value() && device.library().can(DRB_CAN_SPLIT);
}

namespace {

Timeout limit(const ProcessGroup::Impl& impl, const CallOptions& options) {
  require_not_negative(options.timeout, "CallOptions::timeout");
  return options.timeout == Timeout::zero() ? impl.engine.identity().timeout : options.timeout;
}

Work issue(ProcessGroup::Impl& impl, Call&& call, const CallOptions& options) {
  const Timeout timeout = limit(impl, options);
  if (DeviceGroup* const device = impl.device_group(call.device, call.op)) {
    impl.engine.ensure_open();
    return Work(device->submit(std::span<const Call>(&call, 1), timeout, options));
  }
  if (!options.async_op) {
    impl.engine.run(std::move(call), timeout);
    return {};
  }
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  return Work(impl.engine.start(std::move(calls), timeout));
}

}  // namespace

ProcessGroup::ProcessGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ProcessGroup::~ProcessGroup() {
  try {
    if (std::uncaught_exceptions() > impl_->exceptions_at_birth)
      impl_->engine.leave("an exception ended its work");
    else
      close(std::min(timeout(), kDestructorPatience));
  } catch (const std::exception&) {
    // Nobody to tell: who wants to know calls close().
  }
}

int ProcessGroup::rank() const {
  return impl_->engine.identity().rank;
}
int ProcessGroup::size() const {
  return impl_->engine.identity().size;
}
const std::string& ProcessGroup::name() const {
  return impl_->engine.identity().name;
}
const std::string& ProcessGroup::description() const {
  return impl_->engine.identity().description;
}
const std::string& ProcessGroup::backend() const {
  return impl_->backends.text;
}
std::string ProcessGroup::backend(DeviceType device) const {
  const DeviceType memory = is_host_memory({device, 0}) ? DeviceType::cpu : device;
  for (const auto& [type, library] : impl_->backends.devices)
    if (type == memory) return library->name();
  return is_host_memory({device, 0}) ? std::string(kGloo) : std::string();
}
Timeout ProcessGroup::timeout() const {
  return impl_->engine.identity().timeout;
}

// ---- collectives -------------------------------------------------------------------------------

Work ProcessGroup::broadcast(const Tensor& data, int root, const CallOptions& options) {
  return issue(*impl_, impl_->arguments.broadcast(data, root), options);
}
Work ProcessGroup::all_reduce(const Tensor& data, Reduction reduction, const CallOptions& options) {
  return issue(*impl_, impl_->arguments.all_reduce(data, reduction), options);
}
Work ProcessGroup::reduce(const Tensor& data, int root, Reduction reduction,
                          const CallOptions& options) {
  return issue(*impl_, impl_->arguments.reduce(data, root, reduction), options);
}
Work ProcessGroup::all_gather_into_tensor(const Tensor& out, const ConstTensor& in,
                                          const CallOptions& options) {
  return issue(*impl_, impl_->arguments.all_gather_into_tensor(out, in), options);
}
Work ProcessGroup::all_gather(std::span<const Tensor> outs, const ConstTensor& in,
                              const CallOptions& options) {
  return issue(*impl_, impl_->arguments.all_gather(outs, in), options);
}
Work ProcessGroup::gather(const ConstTensor& in, std::span<const Tensor> outs, int root,
                          const CallOptions& options) {
  return issue(*impl_, impl_->arguments.gather(in, outs, root), options);
}
Work ProcessGroup::scatter(const Tensor& out, std::span<const ConstTensor> ins, int root,
                           const CallOptions& options) {
  return issue(*impl_, impl_->arguments.scatter(out, ins, root), options);
}
Work ProcessGroup::reduce_scatter_tensor(const Tensor& out, const ConstTensor& in,
                                         Reduction reduction, const CallOptions& options) {
  return issue(*impl_, impl_->arguments.reduce_scatter_tensor(out, in, reduction), options);
}
Work ProcessGroup::reduce_scatter(const Tensor& out, std::span<const ConstTensor> ins,
                                  Reduction reduction, const CallOptions& options) {
  return issue(*impl_, impl_->arguments.reduce_scatter(out, ins, reduction), options);
}
Work ProcessGroup::all_to_all(std::span<const Tensor> outs, std::span<const ConstTensor> ins,
                              const CallOptions& options) {
  return issue(*impl_, impl_->arguments.all_to_all(outs, ins), options);
}
Work ProcessGroup::all_to_all_single(const Tensor& out, const ConstTensor& in,
                                     std::span<const std::size_t> out_splits,
                                     std::span<const std::size_t> in_splits,
                                     const CallOptions& options) {
  return issue(*impl_, impl_->arguments.all_to_all_single(out, in, out_splits, in_splits), options);
}
// On each backend that has work of all ranks, and at the engine, which can name who does not come.
Work ProcessGroup::barrier(const CallOptions& options) {
  const Timeout timeout = limit(*impl_, options);
  const TimePoint deadline = deadline_after(timeout, "barrier");
  CallOptions beside = options;
  beside.async_op = true;
  std::vector<std::shared_ptr<DeviceWork>> works;
  const Call call;
  for (const auto& device : impl_->devices) {
    if (!device->is_used()) continue;
    impl_->engine.ensure_open();
    try {
      works.push_back(device->submit(std::span<const Call>(&call, 1), timeout, beside));
    } catch (const DistUnsupportedError&) {
      // It has none.  Each rank comes to the engine's when its own operations are done.
      device->wait_for_pending(deadline);
    }
  }
  const auto finish = [works] {
    for (const auto& work : works) work->wait_until(TimePoint::max());
  };
  if (options.async_op) return Work(impl_->engine.start({call}, timeout, finish));
  impl_->engine.run(Call(call), timeout);
  finish();
  return {};
}

void ProcessGroup::monitored_barrier(Timeout timeout) {
  barrier({.timeout = timeout});
}

// ---- coalesced ---------------------------------------------------------------------------------

namespace {

// Several tensors as one, for the time of one call.
template <class T>
class Packed {
 public:
  Packed(const char* name, std::span<const T> tensors, std::size_t parts) {
    if (tensors.empty()) throw DistArgumentError(std::string(name) + ": no tensors");
    dtype_ = tensors.front().dtype();
    for (const T& tensor : tensors) {
      if (tensor.dtype() != dtype_)
        throw DistArgumentError(std::string(name) +
                                ": tensors of different types: " + std::string(to_string(dtype_)) +
                                " and " + std::string(to_string(tensor.dtype())));
      if (tensor.count() % parts != 0)
        throw DistArgumentError(std::string(name) + ": a tensor of " +
                                std::to_string(tensor.count()) + " elements for " +
                                std::to_string(parts) + " ranks");
      if (tensor.data() == nullptr && tensor.count() > 0)
        throw DistArgumentError(std::string(name) + ": a null tensor of " +
                                std::to_string(tensor.count()) + " elements");
      tensors_.push_back(tensor);
      count_ += tensor.count();
    }
    // Of the widest type, so that it is aligned for every other.
    memory_.resize((count_ * size_of(dtype_) + sizeof(std::max_align_t) - 1) /
                   sizeof(std::max_align_t));
    parts_ = parts;
  }

  Tensor whole() { return {memory_.data(), count_, dtype_}; }
  // Ranks that cut the same total differently must not mix it up.
  std::int32_t layout() const {
    std::uint64_t hash = 0xCBF29CE484222325U;
    for (const T& tensor : tensors_) hash = fnv1a(hash, tensor.count());
    return static_cast<std::int32_t>(hash >> 33) | 1;
  }
  std::size_t count() const { return count_; }

  // Part k of each tensor behind the other, then part k + 1 of each.
  void fill() {
    walk([](std::byte* packed, auto* own, std::size_t bytes) {
      if (bytes > 0) std::memcpy(packed, own, bytes);
    });
  }
  void spread() {
    walk([](const std::byte* packed, auto* own, std::size_t bytes) {
      if (bytes > 0) std::memcpy(own, packed, bytes);
    });
  }

 private:
  template <class F>
  void walk(F each) {
    auto* at = reinterpret_cast<std::byte*>(memory_.data());
    for (std::size_t part = 0; part < parts_; ++part)
      for (const T& tensor : tensors_) {
        const std::size_t bytes = tensor.bytes() / parts_;
        using Byte = std::conditional_t<std::is_same_v<T, Tensor>, std::byte, const std::byte>;
        each(at, static_cast<Byte*>(tensor.data()) + part * bytes, bytes);
        at += bytes;
      }
  }

  std::vector<T> tensors_;
  std::vector<std::max_align_t> memory_;
  DType dtype_ = DType::uint8;
  std::size_t count_ = 0;
  std::size_t parts_ = 1;
};

Work issue_packed(ProcessGroup::Impl& impl, Call call, const CallOptions& options,
                  std::function<void()> finish) {
  const Timeout timeout = limit(impl, options);
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  Work work(impl.engine.start(std::move(calls), timeout, std::move(finish)));
  if (!options.async_op) work.wait();
  return work;
}

}  // namespace

namespace {

// Several calls as one operation, if their tensors are not the engine's.
std::optional<Work> issue_together(ProcessGroup::Impl& impl, const std::vector<Call>& calls,
                                   const CallOptions& options) {
  if (calls.empty()) return std::nullopt;
  for (const Call& call : calls)
    if (call.device != calls.front().device)
      throw DistArgumentError(std::string(to_string(call.op)) + ": tensors on different devices: " +
                              to_string(calls.front().device) + " and " + to_string(call.device));
  DeviceGroup* const device = impl.device_group(calls.front().device, calls.front().op);
  if (device == nullptr) return std::nullopt;
  impl.engine.ensure_open();
  return Work(device->submit(std::span<const Call>(calls), limit(impl, options), options));
}

void check_lists(const char* name, std::size_t outs, std::size_t ins) {
  if (outs != ins)
    throw DistArgumentError(std::string(name) + ": " + std::to_string(outs) + " outputs and " +
                            std::to_string(ins) + " inputs");
}

}  // namespace

// Each tensor is checked as if it went alone, before it is touched.
Work ProcessGroup::all_reduce_coalesced(std::span<const Tensor> data, Reduction reduction,
                                        const CallOptions& options) {
  std::vector<Call> calls;
  for (const Tensor& tensor : data) calls.push_back(impl_->arguments.all_reduce(tensor, reduction));
  if (auto work = issue_together(*impl_, calls, options)) return *work;
  const auto packed = std::make_shared<Packed<Tensor>>("all_reduce_coalesced", data, 1);
  packed->fill();
  Call call = impl_->arguments.all_reduce(packed->whole(), reduction);
  call.layout = packed->layout();
  return issue_packed(*impl_, std::move(call), options, [packed] { packed->spread(); });
}

Work ProcessGroup::all_gather_into_tensor_coalesced(std::span<const Tensor> outs,
                                                    std::span<const ConstTensor> ins,
                                                    const CallOptions& options) {
  const char* const name = "all_gather_into_tensor_coalesced";
  check_lists(name, outs.size(), ins.size());
  std::vector<Call> calls;
  for (std::size_t i = 0; i < outs.size(); ++i)
    calls.push_back(impl_->arguments.all_gather_into_tensor(outs[i], ins[i]));
  if (auto work = issue_together(*impl_, calls, options)) return *work;
  const auto from = std::make_shared<Packed<ConstTensor>>(name, ins, 1);
  const auto to = std::make_shared<Packed<Tensor>>(name, outs, static_cast<std::size_t>(size()));
  from->fill();
  Call call = impl_->arguments.all_gather_into_tensor(to->whole(), from->whole());
  call.layout = from->layout();
  return issue_packed(*impl_, std::move(call), options, [from, to] { to->spread(); });
}

Work ProcessGroup::reduce_scatter_tensor_coalesced(std::span<const Tensor> outs,
                                                   std::span<const ConstTensor> ins,
                                                   Reduction reduction,
                                                   const CallOptions& options) {
  const char* const name = "reduce_scatter_tensor_coalesced";
  check_lists(name, outs.size(), ins.size());
  std::vector<Call> calls;
  for (std::size_t i = 0; i < outs.size(); ++i)
    calls.push_back(impl_->arguments.reduce_scatter_tensor(outs[i], ins[i], reduction));
  if (auto work = issue_together(*impl_, calls, options)) return *work;
  const auto from =
      std::make_shared<Packed<ConstTensor>>(name, ins, static_cast<std::size_t>(size()));
  const auto to = std::make_shared<Packed<Tensor>>(name, outs, 1);
  from->fill();
  Call call = impl_->arguments.reduce_scatter_tensor(to->whole(), from->whole(), reduction);
  call.layout = to->layout();
  return issue_packed(*impl_, std::move(call), options, [from, to] { to->spread(); });
}

// ---- between two ranks -------------------------------------------------------------------------

P2POp P2POp::isend(const ConstTensor& data, int to, int tag) {
  return {Kind::isend, data, to, tag};
}
P2POp P2POp::irecv(const Tensor& data, int from, int tag) {
  return {Kind::irecv, data, from, tag};
}

namespace {

// Null: it is the engine's.
std::shared_ptr<DeviceWork> submit(ProcessGroup::Impl& impl, const P2PCall& call,
                                   CallOptions options, bool async_op) {
  DeviceGroup* const device = impl.device_group(call.device, call.op);
  if (device == nullptr) return nullptr;
  impl.engine.ensure_open();
  options.async_op = async_op;
  return device->submit(std::span<const P2PCall>(&call, 1), limit(impl, options), options, false);
}

Work begin(ProcessGroup::Impl& impl, const P2PCall& call, const CallOptions& options) {
  if (auto work = submit(impl, call, options, true)) return Work(std::move(work));
  return Work(impl.engine.start(call, limit(impl, options)));
}

}  // namespace

void ProcessGroup::send(const ConstTensor& data, int to, int tag, const CallOptions& options) {
  const P2PCall call = impl_->arguments.send(data, to, tag);
  if (submit(*impl_, call, options, false)) return;
  impl_->engine.run(call, limit(*impl_, options));
}
Work ProcessGroup::isend(const ConstTensor& data, int to, int tag, const CallOptions& options) {
  return begin(*impl_, impl_->arguments.send(data, to, tag), options);
}
int ProcessGroup::recv(const Tensor& data, std::optional<int> from, int tag,
                       const CallOptions& options) {
  const P2PCall call = impl_->arguments.recv(data, from, tag);
  if (const auto work = submit(*impl_, call, options, false))
    return from ? *from : work->source_rank().value_or(kAnySource);
  return impl_->engine.run(call, limit(*impl_, options));
}
Work ProcessGroup::irecv(const Tensor& data, std::optional<int> from, int tag,
                         const CallOptions& options) {
  return begin(*impl_, impl_->arguments.recv(data, from, tag), options);
}

std::vector<Work> ProcessGroup::batch_isend_irecv(std::span<const P2POp> operations,
                                                  const CallOptions& options) {
  // All are checked before the first begins.
  std::vector<P2PCall> calls;
  for (const P2POp& op : operations) {
    const bool sends = op.kind == P2POp::Kind::isend;
    // irecv() was given a tensor that may be written to.
    const Tensor data(const_cast<void*>(op.data.data()), op.data.shape(), op.data.dtype(),
                      op.data.device());
    calls.push_back(sends ? impl_->arguments.send(data, op.peer, op.tag)
                          : impl_->arguments.recv(data, op.peer, op.tag));
  }
  const Timeout timeout = limit(*impl_, options);
  std::vector<Work> works;
  works.reserve(calls.size());
  try {
    // Those of one backend go as one, or two ranks that both send first would wait for each other.
    for (const auto& device : impl_->devices) {
      std::vector<P2PCall> own;
      for (const P2PCall& call : calls)
        if (impl_->device_group(call.device, call.op) == device.get()) own.push_back(call);
      if (own.empty()) continue;
      impl_->engine.ensure_open();
      CallOptions beside = options;
      beside.async_op = true;
      works.emplace_back(device->submit(std::span<const P2PCall>(own), timeout, beside, true));
    }
    for (const P2PCall& call : calls)
      if (impl_->device_group(call.device, call.op) == nullptr)
        works.emplace_back(impl_->engine.start(call, timeout));
  } catch (const std::exception& error) {
    // Those that have begun use memory of a caller who will not know of them.
    if (!works.empty()) impl_->engine.leave(std::string("a batch broke off: ") + error.what());
    for (Work& work : works) {
      try {
        work.wait();
      } catch (const DistError&) {
        // What it says is a consequence of this.
      }
    }
    throw;
  }
  return works;
}

// ---- groups ------------------------------------------------------------------------------------

namespace {

std::string list_of(std::span<const int> ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

std::vector<int> sorted_ranks(std::span<const int> ranks, int size) {
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  const std::string what = "new_group of ranks " + list_of(ranks) + ": ";
  if (sorted.empty()) throw DistArgumentError("new_group: no ranks");
  if (sorted.front() < 0 || sorted.back() >= size)
    throw DistArgumentError(what + "the parent's are 0 to " + std::to_string(size - 1));
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    throw DistArgumentError(what + "one of them twice");
  return sorted;
}

}  // namespace

std::shared_ptr<ProcessGroup> ProcessGroup::new_group(std::span<const int> ranks,
                                                      const SubgroupOptions& options) {
  const std::vector<int> members = sorted_ranks(ranks, size());
  require_not_negative(options.timeout, "SubgroupOptions::timeout");
  GroupEngine::Identity me;
  me.size = static_cast<int>(members.size());
  me.timeout = options.timeout == Timeout::zero() ? timeout() : options.timeout;
  me.description = options.description;
  me.deterministic = impl_->engine.identity().deterministic;
  const auto own = std::find(members.begin(), members.end(), rank());
  if (options.use_local_synchronization) {
    if (own == members.end()) return nullptr;
    std::string content;
    for (const int member : members) content += "_" + std::to_string(member);
    const int earlier = impl_->local_groups[content]++;
    me.name = name() + "/ranks" + content + (earlier == 0 ? "" : "#" + std::to_string(earlier));
  } else {
    me.name = name() + "/" + std::to_string(impl_->next_group++);
    impl_->agree_on_group(members);
  }
  const bool local = options.use_local_synchronization;
  if (own == members.end()) {
    for (const auto& device : impl_->devices)
      if (Impl::splits(*device)) device->stay_out_of_split(me.timeout);
    return nullptr;
  }
  me.rank = static_cast<int>(own - members.begin());
  std::vector<int> global;
  global.reserve(members.size());
  for (const int member : members)
    global.push_back(impl_->global_ranks[static_cast<std::size_t>(member)]);
  try {
    return std::make_shared<ProcessGroup>(std::make_unique<Impl>(
        impl_->backends, me, impl_->place, std::move(global), local ? nullptr : impl_.get()));
  } catch (const std::exception& error) {
    // Those that are not in it may wait for this rank to split their communicator.
    if (!local && std::any_of(impl_->devices.begin(), impl_->devices.end(),
                              [](const auto& device) { return Impl::splits(*device); }))
      impl_->engine.leave(error.what());
    throw;
  }
}

// Ranks that create groups in different orders, or of other members, would wait for each other
// until the time is up: they hear of it here.
void ProcessGroup::Impl::agree_on_group(const std::vector<int>& members) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const int member : members) hash = fnv1a(hash, static_cast<std::uint64_t>(member));
  const GroupEngine::Identity& me = engine.identity();
  const std::array<std::uint64_t, 1> mine{hash};
  std::vector<std::uint64_t> all(static_cast<std::size_t>(me.size));
  engine.run(arguments.all_gather_into_tensor(all, mine), me.timeout);
  for (int rank = 0; rank < me.size; ++rank)
    if (all[static_cast<std::size_t>(rank)] != all.front())
      throw DistArgumentError("process group \"" + me.name + "\": new_group of ranks " +
                              list_of(members) + ": rank 0 and rank " + std::to_string(rank) +
                              " create groups of different ranks; all ranks of the parent create "
                              "the same groups in the same order");
}

std::shared_ptr<ProcessGroup> ProcessGroup::new_subgroups(int group_size,
                                                          const SubgroupOptions& options) {
  if (group_size < 1 || size() % group_size != 0)
    throw DistArgumentError("new_subgroups: groups of " + std::to_string(group_size) +
                            " do not divide the " + std::to_string(size()) + " ranks");
  std::vector<std::vector<int>> all;
  for (int first = 0; first < size(); first += group_size) {
    all.emplace_back(static_cast<std::size_t>(group_size));
    std::iota(all.back().begin(), all.back().end(), first);
  }
  return new_subgroups_by_enumeration(all, options);
}

std::shared_ptr<ProcessGroup> ProcessGroup::new_subgroups_by_enumeration(
    std::span<const std::vector<int>> ranks_of_groups, const SubgroupOptions& options) {
  std::vector<bool> taken(static_cast<std::size_t>(size()));
  for (const auto& ranks : ranks_of_groups)
    for (const int rank : sorted_ranks(ranks, size())) {
      if (taken[static_cast<std::size_t>(rank)])
        throw DistArgumentError("new_subgroups_by_enumeration: rank " + std::to_string(rank) +
                                " is in two of the groups");
      taken[static_cast<std::size_t>(rank)] = true;
    }
  std::shared_ptr<ProcessGroup> mine;
  for (const auto& ranks : ranks_of_groups)
    if (auto group = new_group(ranks, options)) mine = std::move(group);
  return mine;
}

const std::vector<int>& ProcessGroup::global_ranks() const {
  return impl_->global_ranks;
}

int ProcessGroup::global_rank(int rank) const {
  if (rank < 0 || rank >= size())
    throw DistArgumentError("global_rank: rank " + std::to_string(rank) +
                            " is not in this group of " + std::to_string(size()));
  return impl_->global_ranks[static_cast<std::size_t>(rank)];
}

std::optional<int> ProcessGroup::group_rank(int global_rank) const {
  const auto& all = impl_->global_ranks;
  const auto found = std::find(all.begin(), all.end(), global_rank);
  if (found == all.end()) return std::nullopt;
  return static_cast<int>(found - all.begin());
}

// ---- the end -----------------------------------------------------------------------------------

Buffer ProcessGroup::allocate(std::size_t bytes) {
  return allocate_buffer(bytes);
}

void ProcessGroup::close(Timeout timeout) {
  const TimePoint deadline = deadline_after(timeout, "close");
  const auto left = [&] {
    if (deadline == TimePoint::max()) return timeout;
    return std::chrono::ceil<Timeout>(std::max(deadline - Clock::now(), Duration(0)));
  };
  try {
    for (const auto& device : impl_->devices) device->close(left());
  } catch (const DistError& error) {
    impl_->engine.leave(error.what());
    throw;
  }
  impl_->engine.close(left());
}

void ProcessGroup::abort(const std::string& why) {
  impl_->engine.leave(why);
}

}  // namespace distrun
