#include "tests/runtime/nccl/double.h"

#include "tests/runtime/nccl/elements.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

using distrun::nccl::NcclResult;

// ---------------------------------------------------------------------------------------- CUDA

struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0;
  std::uint64_t fired = 0;
};
struct CUevent_st {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

struct CUstream_st {
  int device = 0;
  bool high_priority = false;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool busy = false;
  bool closing = false;
  std::thread thread;

  explicit CUstream_st(int its_device) : device(its_device) {
    thread = std::thread([this] { run(); });
  }
  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return closing || !queue.empty(); });
      if (queue.empty()) return;
      auto task = std::move(queue.front());
      queue.pop_front();
      busy = true;
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }
  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex);
    queue.push_back(std::move(task));
    changed.notify_all();
  }
  bool drain() {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(10), [&] { return queue.empty() && !busy; });
  }
};

// ---------------------------------------------------------------------------------------- NCCL

namespace distrun::nccl::testing {
namespace {

// One call of a group, on one rank.
struct Part {
  std::string call;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  NcclType type = NcclType::uint8;
  Reduction reduction;
  int peer = -1;
};

// One collective of a communicator, where its ranks meet.
struct Meeting {
  std::vector<std::optional<Part>> parts;
  std::size_t arrived = 0;
  bool over = false;
  std::vector<std::vector<unsigned char>> results;
};

struct Message {
  const void* data;
  std::size_t count;
  NcclType type;
  bool taken = false;
};

struct World {
  explicit World(int n) : size(n), collectives(static_cast<std::size_t>(n)) {}
  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::set<int> joined;
  std::set<int> devices;
  std::set<int> finalized;
  std::vector<std::uint64_t> collectives;  // of each rank
  std::map<std::uint64_t, std::shared_ptr<Meeting>> meetings;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> mail;  // from, to
  // A split or shrink under way: colour and key of each rank that has called.
  struct Derivation {
    std::map<int, std::pair<int, int>> called;
    std::map<int, std::shared_ptr<World>> worlds;
  };
  std::vector<std::shared_ptr<Derivation>> derivations;
  std::vector<std::size_t> derived = std::vector<std::size_t>(static_cast<std::size_t>(size));
};

}  // namespace
}  // namespace distrun::nccl::testing

struct ncclComm {
  std::shared_ptr<distrun::nccl::testing::World> world;
  int rank = 0;
  int device = 0;
  std::atomic<bool> aborted{false};
  std::atomic<int> queued{0};   // groups of calls on streams, not done
  std::atomic<int> running{0};  // those that a stream has come to

  std::mutex mutex;
  // What is in progress: when `ready`, after some polls, `act`.
  std::string step;
  int polls = 0;
  std::function<bool()> ready;
  std::function<void()> act;
  NcclResult async = NcclResult::success;
  bool finalized = false;
  bool gone = false;
  std::map<int, distrun::nccl::testing::Reduction> ops;
  std::set<void*> registered;
};

namespace distrun::nccl::testing {
namespace {

struct Fault {
  int result;
  int device;
  int skip;
};

struct State {
  std::mutex mutex;
  std::vector<std::string> violations;
  std::map<std::string, std::vector<Fault>> faults;
  std::set<std::pair<std::string, int>> never_ready;
  std::map<int, NcclResult> async;
  std::map<std::string, int> calls;
  std::vector<std::unique_ptr<ncclComm>> comms;  // never freed: a late use is to be seen
  std::map<std::string, std::weak_ptr<World>> worlds;
  std::set<std::string> ids;
  std::map<int, std::unique_ptr<CUstream_st>> default_streams;
  std::map<int, std::vector<bool>> priorities;
  std::set<void*> memory;
  std::set<Stream> streams;
  std::set<Event> events;
  int polls = 2;
  int devices = 8;
  int version = 22809;
  bool no_driver = false;
  std::atomic<bool> capturing = false;
  std::latch* aborts_wait_for = nullptr;
  int newest_roots = 0;
  int next_op = 5;
  std::chrono::milliseconds slow_abort{0};
};

State& state() {
  static auto* const the_state = new State;
  return *the_state;
}

thread_local int current_device = 0;
thread_local int capture_mode = 0;  // global

void violation(const std::string& text) {
  const std::lock_guard lock(state().mutex);
  state().violations.push_back(text);
}

// Counts the call; the result to return at once, if one is injected.
std::optional<int> injected(const std::string& name) {
  const std::lock_guard lock(state().mutex);
  ++state().calls[name];
  const auto found = state().faults.find(name);
  if (found == state().faults.end()) return std::nullopt;
  for (auto fault = found->second.begin(); fault != found->second.end(); ++fault) {
    if (fault->device >= 0 && fault->device != current_device) continue;
    if (fault->skip-- > 0) continue;
    const int result = fault->result;
    found->second.erase(fault);
    return result;
  }
  return std::nullopt;
}

#define CUDA_CALL(name) \
  if (const auto fault = injected(name)) return static_cast<CudaResult>(*fault)
#define NCCL_CALL(name) \
  if (const auto fault = injected(name)) return static_cast<NcclResult>(*fault)

Stream stream_of(Stream stream) {
  if (stream) return stream;
  const std::lock_guard lock(state().mutex);
  auto& mine = state().default_streams[current_device];
  if (!mine) mine = std::make_unique<CUstream_st>(current_device);
  return mine.get();
}

CudaResult get_device_count(int* count) {
  if (state().no_driver) return CudaResult::insufficient_driver;
  *count = state().devices;
  return CudaResult::success;
}
CudaResult get_device(int* device) {
  *device = current_device;
  return CudaResult::success;
}
CudaResult set_device(int device) {
  CUDA_CALL("set_device");
  if (device < 0 || device >= state().devices) return static_cast<CudaResult>(101);
  current_device = device;
  return CudaResult::success;
}
CudaResult runtime_version(int* version) {
  *version = 13000;
  return CudaResult::success;
}
CudaResult driver_version(int* version) {
  *version = state().no_driver ? 0 : 13000;
  return CudaResult::success;
}
const char* cuda_error_text(CudaResult result) {
  switch (static_cast<int>(result)) {
    case 0:
      return "no error";
    case 35:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case 101:
      return "invalid device ordinal";
    case 700:
      return "an illegal memory access was encountered";
    default:
      return "some other CUDA error";
  }
}
CudaResult take_last_error() {
  return CudaResult::success;
}
CudaResult malloc_device(void** data, std::size_t bytes) {
  CUDA_CALL("malloc_device");
  *data = std::malloc(bytes);
  const std::lock_guard lock(state().mutex);
  state().memory.insert(*data);
  return CudaResult::success;
}
CudaResult free_device(void* data) {
  const std::lock_guard lock(state().mutex);
  if (state().memory.erase(data) == 0) state().violations.push_back("free of unknown memory");
  std::free(data);
  return CudaResult::success;
}
CudaResult copy_async(void* to, const void* from, std::size_t bytes, Stream stream) {
  CUDA_CALL("copy_async");
  stream_of(stream)->push([=] { std::memmove(to, from, bytes); });
  return CudaResult::success;
}
CudaResult zero_async(void* data, std::size_t bytes, Stream stream) {
  stream_of(stream)->push([=] { std::memset(data, 0, bytes); });
  return CudaResult::success;
}
CudaResult stream_create(Stream* stream, bool high_priority) {
  CUDA_CALL("stream_create");
  *stream = new CUstream_st(current_device);
  const std::lock_guard lock(state().mutex);
  state().streams.insert(*stream);
  state().priorities[current_device].push_back(high_priority);
  return CudaResult::success;
}
CudaResult stream_destroy(Stream stream) {
  {
    const std::lock_guard lock(state().mutex);
    if (state().streams.erase(stream) == 0) {
      state().violations.push_back("a stream is destroyed twice");
      return CudaResult::success;
    }
  }
  if (!stream->drain()) {
    violation("a stream is destroyed while something on it hangs");
    return CudaResult::success;
  }
  {
    const std::lock_guard lock(stream->mutex);
    stream->closing = true;
    stream->changed.notify_all();
  }
  stream->thread.join();
  delete stream;
  return CudaResult::success;
}
CudaResult stream_wait_event(Stream stream, Event event) {
  CUDA_CALL("stream_wait_event");
  std::uint64_t wanted = 0;
  {
    const std::lock_guard lock(event->state->mutex);
    wanted = event->state->recorded;
  }
  stream_of(stream)->push([at = event->state, wanted] {
    std::unique_lock lock(at->mutex);
    at->changed.wait(lock, [&] { return at->fired >= wanted; });
  });
  return CudaResult::success;
}
CudaResult stream_is_capturing(Stream /*stream*/, bool* capturing) {
  *capturing = state().capturing;
  return CudaResult::success;
}
CudaResult event_create(Event* event) {
  CUDA_CALL("event_create");
  *event = new CUevent_st;
  const std::lock_guard lock(state().mutex);
  state().events.insert(*event);
  return CudaResult::success;
}
CudaResult event_destroy(Event event) {
  const std::lock_guard lock(state().mutex);
  if (state().events.erase(event) == 0) {
    state().violations.push_back("an event is destroyed twice");
    return CudaResult::success;
  }
  delete event;
  return CudaResult::success;
}
CudaResult event_record(Event event, Stream stream) {
  CUDA_CALL("event_record");
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(event->state->mutex);
    number = ++event->state->recorded;
  }
  stream_of(stream)->push([at = event->state, number] {
    const std::lock_guard lock(at->mutex);
    at->fired = std::max(at->fired, number);
    at->changed.notify_all();
  });
  return CudaResult::success;
}
CudaResult event_query(Event event) {
  CUDA_CALL("event_query");
  if (state().capturing && capture_mode != kRelaxed)
    violation("event_query outside of relaxed mode has ended a capture");
  const std::lock_guard lock(event->state->mutex);
  return event->state->fired >= event->state->recorded ? CudaResult::success
                                                       : CudaResult::not_ready;
}
CudaResult exchange_capture_mode(int* mode) {
  std::swap(*mode, capture_mode);
  return CudaResult::success;
}

// ------------------------------------------------------------------------ what the device does

void meet(ncclComm& comm, const Part& part) {
  World& world = *comm.world;
  std::unique_lock lock(world.mutex);
  const auto me = static_cast<std::size_t>(comm.rank);
  const std::uint64_t number = world.collectives[me]++;
  auto& place = world.meetings[number];
  if (!place) {
    place = std::make_shared<Meeting>();
    place->parts.resize(static_cast<std::size_t>(world.size));
  }
  const auto meeting = place;
  meeting->parts[me] = part;
  if (++meeting->arrived == meeting->parts.size()) {
    world.meetings.erase(number);
    std::vector<Contribution> contributions;
    for (const auto& other : meeting->parts) {
      if (other->call == part.call && other->count == part.count && other->type == part.type &&
          other->peer == part.peer && other->reduction.alike(part.reduction)) {
        contributions.push_back({other->in, other->count, other->type, other->reduction});
        continue;
      }
      violation("ranks disagree: " + other->call + " of " + std::to_string(other->count) + " and " +
                part.call + " of " + std::to_string(part.count));
    }
    if (contributions.size() == meeting->parts.size()) {  // else everybody hangs, as in life
      meeting->results = results_of(part.call, contributions, part.peer);
      meeting->over = true;
      world.changed.notify_all();
    }
  }
  world.changed.wait(lock, [&] { return meeting->over || comm.aborted.load(); });
  if (!meeting->over) return;
  const auto& mine = meeting->results[me];
  if (!mine.empty()) std::memcpy(part.out, mine.data(), mine.size());
}

// A group of calls: sends and receives of one group do not wait for each other.
void execute(ncclComm& comm, const std::vector<Part>& parts) {
  World& world = *comm.world;
  std::vector<std::shared_ptr<Message>> sent;
  for (const Part& part : parts) {
    if (part.call != "send") continue;
    const auto message = std::make_shared<Message>(Message{part.in, part.count, part.type});
    sent.push_back(message);
    const std::lock_guard lock(world.mutex);
    world.mail[{comm.rank, part.peer}].push_back(message);
    world.changed.notify_all();
  }
  for (const Part& part : parts) {
    if (part.call == "send") continue;
    if (part.call != "recv") {
      meet(comm, part);
      continue;
    }
    std::unique_lock lock(world.mutex);
    auto& box = world.mail[{part.peer, comm.rank}];
    world.changed.wait(lock, [&] { return !box.empty() || comm.aborted.load(); });
    if (box.empty()) return;
    const auto message = box.front();
    box.pop_front();
    if (message->count != part.count || message->type != part.type) {
      violation("sent " + std::to_string(message->count) + ", received " +
                std::to_string(part.count));
      continue;
    }
    std::memcpy(part.out, message->data, part.count * size_of(part.type));
    message->taken = true;
    world.changed.notify_all();
  }
  std::unique_lock lock(world.mutex);
  world.changed.wait(lock, [&] {
    return comm.aborted.load() ||
           std::all_of(sent.begin(), sent.end(), [](const auto& m) { return m->taken; });
  });
}

// ------------------------------------------------------------------------------------- the calls

bool stuck(const ncclComm& comm, const std::string& step) {
  const std::lock_guard lock(state().mutex);
  return state().never_ready.contains({step, comm.device});
}

// Begins a step: it stays in progress for some polls, and until `ready`; then `act` happens.
NcclResult begin(ncclComm& comm, const std::string& step, std::function<bool()> ready,
                 std::function<void()> act) {
  int polls = 0;
  {
    const std::lock_guard lock(state().mutex);
    polls = state().polls;
  }
  const bool hangs = stuck(comm, step);
  const std::lock_guard lock(comm.mutex);
  if (comm.gone) violation(step + " on a communicator that is gone");
  if (!comm.step.empty()) violation(step + " while " + comm.step + " is in progress");
  if (polls == 0 && !hangs && ready()) {
    act();
    return NcclResult::success;
  }
  comm.step = step;
  comm.polls = polls;
  comm.ready = std::move(ready);
  comm.act = std::move(act);
  return NcclResult::in_progress;
}

NcclResult async_error(Comm comm, NcclResult* result) {
  NCCL_CALL("async_error");
  const std::string step = [&] {
    const std::lock_guard lock(comm->mutex);
    return comm->step;
  }();
  const bool hangs = stuck(*comm, step);
  NcclResult told = NcclResult::success;
  {
    const std::lock_guard lock(state().mutex);
    if (const auto found = state().async.find(comm->device); found != state().async.end()) {
      told = found->second;
    }
  }
  const std::lock_guard lock(comm->mutex);
  if (comm->gone) violation("a communicator that is gone is asked for its state");
  *result = NcclResult::success;
  if (told != NcclResult::success) {
    *result = told;
    return NcclResult::success;
  }
  if (comm->step.empty()) return NcclResult::success;
  if (--comm->polls > 0 || hangs || !comm->ready()) {
    *result = NcclResult::in_progress;
    return NcclResult::success;
  }
  comm->act();
  comm->step.clear();
  return NcclResult::success;
}

NcclResult version(int* out) {
  *out = state().version;
  return NcclResult::success;
}
const char* error_text(NcclResult result) {
  switch (result) {
    case NcclResult::success:
      return "no error";
    case NcclResult::unhandled_cuda_error:
      return "unhandled cuda error";
    case NcclResult::system_error:
      return "unhandled system error";
    case NcclResult::internal_error:
      return "internal error";
    case NcclResult::invalid_argument:
      return "invalid argument";
    case NcclResult::invalid_usage:
      return "invalid usage";
    case NcclResult::remote_error:
      return "remote process exited or there was a network error";
    case NcclResult::in_progress:
      return "operation in progress";
  }
  return "?";
}
const char* last_error(Comm /*comm*/) {
  return "";
}

NcclResult get_unique_id(UniqueId* id) {
  NCCL_CALL("get_unique_id");
  const std::lock_guard lock(state().mutex);
  const std::string text = "double " + std::to_string(state().ids.size() + 1);
  state().ids.insert(text);
  id->fill('\0');
  std::copy(text.begin(), text.end(), id->begin());
  return NcclResult::success;
}

Comm new_comm(std::shared_ptr<World> world, int rank) {
  auto comm = std::make_unique<ncclComm>();
  comm->world = std::move(world);
  comm->rank = rank;
  comm->device = current_device;
  const std::lock_guard lock(state().mutex);
  state().comms.push_back(std::move(comm));
  return state().comms.back().get();
}

NcclResult join(Comm* out, const std::shared_ptr<World>& world, int rank) {
  {
    const std::lock_guard lock(world->mutex);
    if (!world->devices.insert(current_device).second) return NcclResult::invalid_usage;
    if (!world->joined.insert(rank).second) violation("a rank joins twice");
  }
  *out = new_comm(world, rank);
  return begin(
      **out, "join",
      [world] {
        const std::lock_guard lock(world->mutex);
        return world->joined.size() == static_cast<std::size_t>(world->size);
      },
      [] {});
}

NcclResult join_by_ids(Comm* out, int world_size, int rank, std::span<const UniqueId> ids) {
  std::string key;
  std::shared_ptr<World> world;
  {
    const std::lock_guard lock(state().mutex);
    for (const UniqueId& id : ids) {
      const std::string text(id.data());
      if (!state().ids.contains(text)) state().violations.push_back("an id that nobody made");
      key += text + ";";
    }
    state().newest_roots = static_cast<int>(ids.size());
    world = state().worlds[key].lock();
    if (!world) {
      world = std::make_shared<World>(world_size);
      state().worlds[key] = world;
    }
  }
  if (world->size != world_size) violation("ranks disagree about the world's size");
  return join(out, world, rank);
}

NcclResult init_rank(Comm* out, int world_size, const UniqueId& id, int rank,
                     const CommConfig& /*config*/) {
  NCCL_CALL("init_rank");
  return join_by_ids(out, world_size, rank, {&id, 1});
}
NcclResult init_rank_scalable(Comm* out, int world_size, int rank, std::span<const UniqueId> ids,
                              const CommConfig& /*config*/) {
  NCCL_CALL("init_rank_scalable");
  return join_by_ids(out, world_size, rank, ids);
}

NcclResult finalize(Comm comm) {
  NCCL_CALL("finalize");
  const auto world = comm->world;
  {
    const std::lock_guard lock(comm->mutex);
    comm->finalized = true;
    if (!comm->registered.empty()) violation("closed with memory still registered");
    if (!comm->ops.empty()) violation("closed with reduction operations not destroyed");
  }
  {
    const std::lock_guard lock(world->mutex);
    world->finalized.insert(comm->rank);
  }
  return begin(
      *comm, "finalize",
      [comm, world] {
        const std::lock_guard lock(world->mutex);
        return comm->queued == 0 &&
               world->finalized.size() == static_cast<std::size_t>(world->size);
      },
      [] {});
}
NcclResult destroy(Comm comm) {
  NCCL_CALL("destroy");
  const std::lock_guard lock(comm->mutex);
  if (comm->gone) violation("a communicator is destroyed that is gone");
  if (!comm->finalized || !comm->step.empty()) violation("destroyed before it was finalized");
  comm->gone = true;
  return NcclResult::success;
}
NcclResult abort(Comm comm) {
  NCCL_CALL("abort");
  std::this_thread::sleep_for(state().slow_abort);
  if (std::latch* latch = state().aborts_wait_for) latch->wait();
  {
    const std::lock_guard lock(comm->mutex);
    if (comm->gone) violation("a communicator is aborted that is gone");
    comm->gone = true;
  }
  comm->aborted = true;
  for (int i = 0; i < 10'000 && comm->running > 0; ++i) {
    {
      const std::lock_guard lock(comm->world->mutex);
      comm->world->changed.notify_all();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return NcclResult::success;
}

NcclResult derive(Comm parent, int colour, int key, std::size_t callers, Comm* out) {
  const auto world = parent->world;
  std::shared_ptr<World::Derivation> derivation;
  {
    const std::lock_guard lock(world->mutex);
    const std::size_t number = world->derived[static_cast<std::size_t>(parent->rank)]++;
    if (world->derivations.size() <= number) world->derivations.resize(number + 1);
    if (!world->derivations[number]) {
      world->derivations[number] = std::make_shared<World::Derivation>();
    }
    derivation = world->derivations[number];
    derivation->called[parent->rank] = {colour, key};
  }
  if (parent->queued > 0 && !parent->aborted)
    violation("a communicator is split with operations pending");
  const int device = current_device;
  return begin(
      *parent, "derive",
      [world, derivation, callers] {
        const std::lock_guard lock(world->mutex);
        return derivation->called.size() == callers;
      },
      [=] {
        if (colour < 0) {
          *out = nullptr;
          return;
        }
        std::vector<std::pair<int, int>> members;  // key, parent's rank
        std::shared_ptr<World> child;
        {
          const std::lock_guard lock(world->mutex);
          for (const auto& [rank, its] : derivation->called) {
            if (its.first == colour) members.emplace_back(its.second, rank);
          }
          auto& place = derivation->worlds[colour];
          if (!place) place = std::make_shared<World>(static_cast<int>(members.size()));
          child = place;
        }
        std::sort(members.begin(), members.end());
        int rank = 0;
        while (members[static_cast<std::size_t>(rank)].second != parent->rank) ++rank;
        const int before = std::exchange(current_device, device);
        if (join(out, child, rank) == NcclResult::invalid_usage) violation("split onto one device");
        current_device = before;
      });
}
NcclResult split(Comm comm, int colour, int key, Comm* out, const CommConfig& /*config*/) {
  NCCL_CALL("split");
  return derive(comm, colour, key, static_cast<std::size_t>(comm->world->size), out);
}
NcclResult shrink(Comm comm, std::span<int> exclude, Comm* out, const CommConfig& /*config*/,
                  bool abort_first) {
  NCCL_CALL("shrink");
  if (abort_first) {
    comm->aborted = true;
    for (int i = 0; i < 10'000 && comm->running > 0; ++i) {
      {
        const std::lock_guard lock(comm->world->mutex);
        comm->world->changed.notify_all();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return derive(comm, 0, comm->rank, static_cast<std::size_t>(comm->world->size) - exclude.size(),
                out);
}

// The calling thread's group.
thread_local int group_depth = 0;
thread_local std::vector<std::pair<Comm, std::pair<Stream, Part>>> group_parts;

NcclResult launch(Comm comm, Stream stream, std::vector<Part> parts) {
  const Stream at = stream_of(stream);
  return begin(
      *comm, "enqueue", [] { return true; },
      [comm, at, parts = std::move(parts)] {
        ++comm->queued;
        at->push([comm, parts] {
          ++comm->running;
          if (!comm->aborted) execute(*comm, parts);
          --comm->running;
          --comm->queued;
        });
      });
}

NcclResult group_start() {
  NCCL_CALL("group_start");
  ++group_depth;
  return NcclResult::success;
}
NcclResult group_end() {
  if (--group_depth > 0) return NcclResult::success;
  const auto parts = std::move(group_parts);
  group_parts.clear();
  NCCL_CALL("group_end");
  if (parts.empty()) return NcclResult::success;
  std::vector<Part> mine;
  for (const auto& [comm, rest] : parts) {
    if (comm != parts.front().first) violation("a group over several communicators");
    mine.push_back(rest.second);
  }
  return launch(parts.front().first, parts.front().second.first, mine);
}

NcclResult call(Comm comm, Stream stream, Part part) {
  if (part.count == 0) return NcclResult::success;
  if (group_depth > 0) {
    group_parts.emplace_back(comm, std::make_pair(stream, std::move(part)));
    return NcclResult::success;
  }
  return launch(comm, stream, {std::move(part)});
}

Reduction reduction_of(Comm comm, int op) {
  if (op < 5) return {.op = static_cast<NcclOp>(op)};
  const std::lock_guard lock(comm->mutex);
  const auto found = comm->ops.find(op);
  if (found != comm->ops.end()) return found->second;
  violation("a reduction operation that does not exist");
  return {};
}

NcclResult all_reduce(const void* in, void* out, std::size_t count, NcclType type, int op,
                      Comm comm, Stream stream) {
  NCCL_CALL("all_reduce");
  return call(comm, stream, {"all_reduce", in, out, count, type, reduction_of(comm, op)});
}
NcclResult reduce(const void* in, void* out, std::size_t count, NcclType type, int op, int root,
                  Comm comm, Stream stream) {
  NCCL_CALL("reduce");
  return call(comm, stream, {"reduce", in, out, count, type, reduction_of(comm, op), root});
}
NcclResult broadcast(const void* in, void* out, std::size_t count, NcclType type, int root,
                     Comm comm, Stream stream) {
  NCCL_CALL("broadcast");
  return call(comm, stream, {"broadcast", in, out, count, type, {}, root});
}
NcclResult all_gather(const void* in, void* out, std::size_t in_count, NcclType type, Comm comm,
                      Stream stream) {
  NCCL_CALL("all_gather");
  return call(comm, stream, {"all_gather", in, out, in_count, type, {}});
}
NcclResult reduce_scatter(const void* in, void* out, std::size_t out_count, NcclType type, int op,
                          Comm comm, Stream stream) {
  NCCL_CALL("reduce_scatter");
  return call(comm, stream, {"reduce_scatter", in, out, out_count, type, reduction_of(comm, op)});
}
NcclResult send(const void* in, std::size_t count, NcclType type, int peer, Comm comm,
                Stream stream) {
  NCCL_CALL("send");
  return call(comm, stream, {"send", in, nullptr, count, type, {}, peer});
}
NcclResult recv(void* out, std::size_t count, NcclType type, int peer, Comm comm, Stream stream) {
  NCCL_CALL("recv");
  return call(comm, stream, {"recv", nullptr, out, count, type, {}, peer});
}

NcclResult premul_sum_create(int* op, const void* factor, NcclType type, bool on_device,
                             Comm comm) {
  NCCL_CALL("premul_sum_create");
  {
    const std::lock_guard lock(state().mutex);
    *op = state().next_op++;
  }
  const std::lock_guard lock(comm->mutex);
  if (!comm->step.empty()) violation("premul_sum_create while " + comm->step + " is in progress");
  Reduction reduction{.op = NcclOp::sum, .premul = true};
  if (on_device) {
    reduction.factor_at = factor;
  } else {
    reduction.factor = load(factor, 0, type);
  }
  comm->ops[*op] = reduction;
  return NcclResult::success;
}
NcclResult op_destroy(int op, Comm comm) {
  NCCL_CALL("op_destroy");
  const std::lock_guard lock(comm->mutex);
  if (!comm->step.empty()) violation("op_destroy while " + comm->step + " is in progress");
  if (comm->ops.erase(op) == 0) violation("a reduction operation is destroyed twice");
  return NcclResult::success;
}
NcclResult register_memory(Comm comm, void* data, std::size_t /*bytes*/, void** handle) {
  NCCL_CALL("register_memory");
  const std::lock_guard lock(comm->mutex);
  comm->registered.insert(data);
  *handle = data;
  return NcclResult::success;
}
NcclResult deregister_memory(Comm comm, void* handle) {
  NCCL_CALL("deregister_memory");
  const std::lock_guard lock(comm->mutex);
  if (comm->registered.erase(handle) == 0) violation("memory is deregistered twice");
  return NcclResult::success;
}
NcclResult allocate(void** data, std::size_t bytes) {
  NCCL_CALL("allocate");
  return malloc_device(data, bytes) == CudaResult::success ? NcclResult::success
                                                           : NcclResult::unhandled_cuda_error;
}
NcclResult deallocate(void* data) {
  NCCL_CALL("deallocate");
  free_device(data);
  return NcclResult::success;
}

Api whole_api() {
  return {.get_device_count = get_device_count,
          .get_device = get_device,
          .set_device = set_device,
          .runtime_version = runtime_version,
          .driver_version = driver_version,
          .cuda_error_text = cuda_error_text,
          .take_last_error = take_last_error,
          .malloc_device = malloc_device,
          .free_device = free_device,
          .copy_async = copy_async,
          .zero_async = zero_async,
          .stream_create = stream_create,
          .stream_destroy = stream_destroy,
          .stream_wait_event = stream_wait_event,
          .stream_is_capturing = stream_is_capturing,
          .event_create = event_create,
          .event_destroy = event_destroy,
          .event_record = event_record,
          .event_query = event_query,
          .exchange_capture_mode = exchange_capture_mode,
          .version = version,
          .error_text = error_text,
          .last_error = last_error,
          .get_unique_id = get_unique_id,
          .init_rank = init_rank,
          .init_rank_scalable = init_rank_scalable,
          .async_error = async_error,
          .finalize = finalize,
          .destroy = destroy,
          .abort = abort,
          .split = split,
          .shrink = shrink,
          .group_start = group_start,
          .group_end = group_end,
          .all_reduce = all_reduce,
          .reduce = reduce,
          .broadcast = broadcast,
          .all_gather = all_gather,
          .reduce_scatter = reduce_scatter,
          .send = send,
          .recv = recv,
          .premul_sum_create = premul_sum_create,
          .op_destroy = op_destroy,
          .register_memory = register_memory,
          .deregister_memory = deregister_memory,
          .allocate = allocate,
          .deallocate = deallocate};
}

}  // namespace

Api& double_api() {
  static Api api = whole_api();
  return api;
}

void reset_double() {
  double_api() = whole_api();
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.violations.clear();
  s.faults.clear();
  s.never_ready.clear();
  s.async.clear();
  s.calls.clear();
  s.comms.clear();
  s.priorities.clear();
  s.polls = 2;
  s.devices = 8;
  s.version = 22809;
  s.no_driver = false;
  s.capturing = false;
  s.aborts_wait_for = nullptr;
  s.newest_roots = 0;
  s.slow_abort = std::chrono::milliseconds(0);
}

void Faults::fail(const std::string& call, int result, int device, int skip) {
  const std::lock_guard lock(state().mutex);
  state().faults[call].push_back({result, device, skip});
}
void Faults::never_ready(const std::string& step, int device) {
  const std::lock_guard lock(state().mutex);
  state().never_ready.insert({step, device});
}
void Faults::asynchronous_error(int device, NcclResult result) {
  const std::lock_guard lock(state().mutex);
  state().async[device] = result;
}
void Faults::capturing(bool on) {
  state().capturing = on;
}
void Faults::hold_aborts(std::latch& until) {
  state().aborts_wait_for = &until;
}
void Faults::slow_abort(std::chrono::milliseconds time) {
  state().slow_abort = time;
}

void set_polls(int polls) {
  state().polls = polls;
}
void set_devices(int count) {
  state().devices = count;
}
void set_version(int version) {
  state().version = version;
}
void set_no_driver() {
  state().no_driver = true;
}

int calls(const std::string& name) {
  const std::lock_guard lock(state().mutex);
  return state().calls[name];
}
int roots_of_newest() {
  const std::lock_guard lock(state().mutex);
  return state().newest_roots;
}
std::vector<bool> priorities(int device) {
  const std::lock_guard lock(state().mutex);
  return state().priorities[device];
}

std::vector<std::string> violations() {
  State& s = state();
  std::vector<ncclComm*> comms;
  {
    const std::lock_guard lock(s.mutex);
    for (const auto& comm : s.comms) comms.push_back(comm.get());
  }
  std::vector<std::string> left;
  for (ncclComm* comm : comms) {
    const std::lock_guard lock(comm->mutex);
    if (!comm->gone) {
      left.push_back("a communicator of device " + std::to_string(comm->device) +
                     " is neither destroyed nor aborted");
    }
    if (comm->queued > 0) left.push_back("something still runs on a communicator");
  }
  const std::lock_guard lock(s.mutex);
  auto all = s.violations;
  all.insert(all.end(), left.begin(), left.end());
  const auto count = [&](std::size_t n, const char* what) {
    if (n > 0) all.push_back(std::to_string(n) + " " + what + " not given back");
  };
  count(s.memory.size(), "pieces of memory");
  count(s.streams.size(), "streams");
  count(s.events.size(), "events");
  return all;
}

void enqueue(Stream stream, std::function<void()> kernel) {
  stream_of(stream)->push(std::move(kernel));
}
bool synchronize(Stream stream) {
  return stream_of(stream)->drain();
}

}  // namespace distrun::nccl::testing
