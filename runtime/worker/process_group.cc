// The public face of process groups: checks arguments, joins, hands calls to the engine.
#include "runtime/worker/deadline.h"
#include "runtime/worker/environment.h"
#include "runtime/worker/group_engine.h"
#include <distrun/process_group.h>
#ifdef DISTRUN_HAS_GLOO
#include "runtime/worker/gloo/gloo_transport.h"
#endif

#include <atomic>
#include <cstdlib>
#include <limits>
#include <optional>
#include <unistd.h>
#include <utility>

namespace distrun {
namespace {

constexpr Timeout kDestructorPatience = std::chrono::seconds(5);

}  // namespace

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::float64:
    case DType::int64:
      return 8;
  }
  return 1;
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
  }
  return "?";
}

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::product:
      return "product";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    case ReduceOp::avg:
      return "avg";
  }
  return "?";
}

std::string_view to_string(OpType op) {
  switch (op) {
    case OpType::broadcast:
      return "broadcast";
    case OpType::all_reduce:
      return "all_reduce";
    case OpType::reduce:
      return "reduce";
    case OpType::all_gather:
      return "all_gather";
    case OpType::barrier:
      return "barrier";
  }
  return "?";
}

// --- Work --------------------------------------------------------------------------------------

void Work::wait() {
  std::unique_lock lock(state_->mutex);
  state_->completed.wait(lock, [this] { return state_->done; });
  if (state_->exception) std::rethrow_exception(state_->exception);
}

void Work::wait(Timeout timeout) {
  const TimePoint deadline = deadline_after(timeout, "Work::wait");
  std::unique_lock lock(state_->mutex);
  if (!state_->completed.wait_until(lock, deadline, [this] { return state_->done; }))
    throw DistTimeoutError("process group \"" + state_->group + "\": " + to_string(state_->call) +
                           ": not completed after " + to_string(timeout) +
                           "; it goes on, and its buffers are still in use");
  if (state_->exception) std::rethrow_exception(state_->exception);
}

bool Work::is_completed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

bool Work::is_success() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done && !state_->exception;
}

std::exception_ptr Work::exception() const {
  const std::lock_guard lock(state_->mutex);
  return state_->exception;
}

OpType Work::op() const {
  return state_->call.op;
}

std::uint64_t Work::sequence_number() const {
  return state_->call.sequence;
}

// --- ProcessGroup ------------------------------------------------------------------------------

struct ProcessGroup::Impl {
  Impl(std::string backend_name, GroupEngine::Identity identity,
       std::unique_ptr<Transport> transport, std::shared_ptr<Store> store)
      : backend(std::move(backend_name)),
        engine(std::move(identity), std::move(transport), std::move(store)) {}

  std::string backend;
  GroupEngine engine;
  int exceptions_at_birth = std::uncaught_exceptions();

  Timeout limit(const CallOptions& options) const {
    deadline_after(options.timeout, "CallOptions::timeout");
    return options.timeout == Timeout::zero() ? engine.identity().timeout : options.timeout;
  }

  [[noreturn]] void refuse(OpType op, const std::string& what) const {
    throw DistArgumentError(std::string(to_string(op)) + ": " + what);
  }

  void check_buffer(OpType op, const void* data, std::size_t count, DType dtype) const {
    if (data == nullptr && count > 0) refuse(op, "a null buffer of " + std::to_string(count));
    if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) != 0)
      refuse(op, "the buffer is not aligned for " + std::string(to_string(dtype)));
    const auto ranks = static_cast<std::size_t>(engine.identity().size);
    if (count > std::numeric_limits<std::size_t>::max() / size_of(dtype) / ranks)
      refuse(op, "a count that no memory can hold: " + std::to_string(count));
  }

  void check_root(OpType op, int root) const {
    if (root < 0 || root >= engine.identity().size)
      refuse(op, "root " + std::to_string(root) + " is not a rank of this group of " +
                     std::to_string(engine.identity().size));
  }

  Call in_place(OpType op, Buffer data, int root, ReduceOp reduce) const {
    check_buffer(op, data.data(), data.count(), data.dtype());
    check_root(op, root);
    const bool integer = data.dtype() == DType::int32 || data.dtype() == DType::int64;
    if (reduce == ReduceOp::avg && integer)
      refuse(op, "avg needs floating point, not " + std::string(to_string(data.dtype())));
    Call call;
    call.op = op;
    call.reduce = reduce;
    call.dtype = data.dtype();
    call.root = root;
    call.count = data.count();
    call.in = data.data();
    call.out = data.data();
    return call;
  }

  Call gather(ConstBuffer in, Buffer out) const {
    const OpType op = OpType::all_gather;
    check_buffer(op, in.data(), in.count(), in.dtype());
    check_buffer(op, out.data(), out.count(), out.dtype());
    if (in.dtype() != out.dtype())
      refuse(op, "from " + std::string(to_string(in.dtype())) + " to " +
                     std::string(to_string(out.dtype())));
    const auto ranks = static_cast<std::size_t>(engine.identity().size);
    if (out.count() != in.count() * ranks)
      refuse(op, "the output holds " + std::to_string(out.count()) + " elements, not " +
                     std::to_string(ranks) + " times " + std::to_string(in.count()));
    Call call;
    call.op = op;
    call.dtype = in.dtype();
    call.count = in.count();
    call.in = in.data();
    call.out = out.data();
    return call;
  }
};

ProcessGroup::ProcessGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ProcessGroup::~ProcessGroup() {
  try {
    if (std::uncaught_exceptions() > impl_->exceptions_at_birth)
      impl_->engine.leave("an exception ended its work");
    else
      impl_->engine.close(std::min(timeout(), kDestructorPatience));
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
const std::string& ProcessGroup::backend() const {
  return impl_->backend;
}
Timeout ProcessGroup::timeout() const {
  return impl_->engine.identity().timeout;
}

void ProcessGroup::broadcast(Buffer data, int root, CallOptions options) {
  impl_->engine.run(impl_->in_place(OpType::broadcast, data, root, ReduceOp::sum),
                    impl_->limit(options));
}
void ProcessGroup::all_reduce(Buffer data, ReduceOp op, CallOptions options) {
  impl_->engine.run(impl_->in_place(OpType::all_reduce, data, 0, op), impl_->limit(options));
}
void ProcessGroup::reduce(Buffer data, int root, ReduceOp op, CallOptions options) {
  impl_->engine.run(impl_->in_place(OpType::reduce, data, root, op), impl_->limit(options));
}
void ProcessGroup::all_gather(ConstBuffer in, Buffer out, CallOptions options) {
  impl_->engine.run(impl_->gather(in, out), impl_->limit(options));
}
void ProcessGroup::barrier(CallOptions options) {
  impl_->engine.run(Call(), impl_->limit(options));
}

Work ProcessGroup::broadcast_async(Buffer data, int root, CallOptions options) {
  return Work(impl_->engine.start(impl_->in_place(OpType::broadcast, data, root, ReduceOp::sum),
                                  impl_->limit(options)));
}
Work ProcessGroup::all_reduce_async(Buffer data, ReduceOp op, CallOptions options) {
  return Work(
      impl_->engine.start(impl_->in_place(OpType::all_reduce, data, 0, op), impl_->limit(options)));
}
Work ProcessGroup::reduce_async(Buffer data, int root, ReduceOp op, CallOptions options) {
  return Work(
      impl_->engine.start(impl_->in_place(OpType::reduce, data, root, op), impl_->limit(options)));
}
Work ProcessGroup::all_gather_async(ConstBuffer in, Buffer out, CallOptions options) {
  return Work(impl_->engine.start(impl_->gather(in, out), impl_->limit(options)));
}
Work ProcessGroup::barrier_async(CallOptions options) {
  return Work(impl_->engine.start(Call(), impl_->limit(options)));
}

void ProcessGroup::close(Timeout timeout) {
  impl_->engine.close(timeout);
}

// --- joining -----------------------------------------------------------------------------------

namespace {

std::string this_process() {
  char host[256] = "?";
  ::gethostname(host, sizeof host - 1);
  return "pid " + std::to_string(::getpid()) + " on " + host;
}

// Every rank enters itself and waits for the others; who is missing is named.
void meet(Store& store, const GroupEngine::Identity& me, TimePoint deadline) {
  if (store.add("joined/" + std::to_string(me.rank), 1) != 1)
    throw DistStoreError("process group \"" + me.name + "\": rank " + std::to_string(me.rank) +
                         " has joined already, on " + store.description() +
                         ": two processes with one RANK, or a second group with one name");
  store.set(FailureBoard::member_key(me.rank), this_process());
  std::vector<std::string> members;
  members.reserve(static_cast<std::size_t>(me.size));
  for (int rank = 0; rank < me.size; ++rank) members.push_back(FailureBoard::member_key(rank));
  try {
    const auto left = std::chrono::ceil<Timeout>(std::max(deadline - Clock::now(), Duration(0)));
    store.wait(members, deadline == TimePoint::max() ? kNoTimeout : left);
  } catch (const DistTimeoutError&) {
    std::string missing;
    std::optional<int> first;
    for (int rank = 0; rank < me.size; ++rank) {
      if (store.check({FailureBoard::member_key(rank)})) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      if (!first) first = rank;
    }
    throw DistTimeoutError("process group \"" + me.name + "\": rank " + std::to_string(me.rank) +
                               " of " + std::to_string(me.size) + " waited " +
                               to_string(me.timeout) + " for the others; not there: rank " +
                               missing,
                           first);
  }
}

std::shared_ptr<Store> launchers_store(const WorkerInfo& info, Timeout timeout) {
  if (!info.use_agent_store)
    throw DistUnsupportedError(
        "init_process_group: TORCHELASTIC_USE_AGENT_STORE is not True, so nobody serves a store at "
        "MASTER_ADDR:MASTER_PORT, and this library's rank 0 does not; start with distrun, or pass "
        "a store in GroupOptions");
  return std::make_shared<TCPStore>(
      TCPStoreOptions{.host = info.master_addr, .port = info.master_port, .timeout = timeout});
}

std::unique_ptr<Transport> connect(Store& store, const GroupEngine::Identity& me,
                                   const std::string& local_address, TimePoint deadline) {
#ifdef DISTRUN_HAS_GLOO
  GlooAddress address;
  address.address = local_address;
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"); local_address.empty() && interface)
    address.interface = std::string(interface).substr(0, std::string_view(interface).find(','));
  const Store* base = &store;
  std::shared_ptr<Store> held;
  if (const auto* prefix = dynamic_cast<const PrefixStore*>(base)) {
    held = prefix->underlying_non_prefix_store();
    base = held.get();
  }
  if (const auto* tcp = dynamic_cast<const TCPStore*>(base); tcp && address.address.empty())
    address.address = tcp->local_address();
  if (address.address.empty()) address.address = "127.0.0.1";
  PrefixStore mesh("mesh", store.clone());
  return connect_gloo(mesh, me.rank, me.size, address, deadline);
#else
  static_cast<void>(store);
  static_cast<void>(local_address);
  static_cast<void>(deadline);
  throw DistUnsupportedError("process group \"" + me.name +
                             "\": this build of the library has no Gloo; build it with "
                             "-DDISTRUN_GLOO=ON (Debian: libgloo-dev)");
#endif
}

}  // namespace

std::unique_ptr<ProcessGroup> init_process_group(std::string_view backend,
                                                 const GroupOptions& options) {
  if (backend != "gloo")
    throw DistUnsupportedError("init_process_group: unknown backend \"" + std::string(backend) +
                               "\"; there is: gloo");
  const TimePoint deadline = deadline_after(options.timeout, "GroupOptions::timeout");
  const bool some = options.rank != -1 || options.world_size != -1;
  if (options.store ? options.rank < 0 || options.world_size <= options.rank : some)
    throw DistArgumentError(
        "init_process_group: store, rank and world_size go together, with 0 <= "
        "rank < world_size; got rank " +
        std::to_string(options.rank) + " of " + std::to_string(options.world_size) +
        (options.store ? "" : " and no store"));
  GroupEngine::Identity me;
  me.timeout = options.timeout;
  me.rank = options.rank;
  me.size = options.world_size;
  int attempt = 0;
  std::shared_ptr<Store> store = options.store;
  if (!store) {
    const WorkerInfo info = rendezvous_info_from(process_environment());
    me.rank = info.rank;
    me.size = info.world_size;
    attempt = info.restart_count;
    if (me.size > 1) store = launchers_store(info, options.timeout);
  }
  static std::atomic<int> groups_so_far = 0;
  me.name = options.name.empty() ? std::to_string(groups_so_far++) : options.name;

  std::unique_ptr<Transport> transport;
  if (me.size > 1) {
    // A prefix of its own for every group and attempt: no key of an earlier one can be read.
    const std::string prefix = "distrun/attempt_" + std::to_string(attempt) + "/" + me.name;
    store = std::make_shared<PrefixStore>(prefix, store->clone());
    meet(*store, me, deadline);
    transport = connect(*store, me, options.local_address, deadline);
    // A rank that left while others still connect would look to them like a broken network.
    PrefixStore connected("connected", store->clone());
    meet(connected, me, deadline);
  }
  return std::make_unique<ProcessGroup>(std::make_unique<ProcessGroup::Impl>(
      std::string(backend), std::move(me), std::move(transport), std::move(store)));
}

}  // namespace distrun
