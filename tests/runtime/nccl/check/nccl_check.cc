// nccl_check: every operation of the NCCL backend on this machine's GPUs, a thread for each, with
// the results compared, and how long all_reduce takes.
//
//   nccl_check [--ranks N] [--double] [--plugin libdistrun_nccl.so] [--seconds S]
//
// --double: on the test double instead, to test this program.  Exit code 0: all is right; 1: not;
// 77: there is no GPU to be used, and it says why.
#include "runtime/nccl/plugin.h"
#include "tests/runtime/nccl/double.h"
#include "tests/runtime/nccl/elements.h"
#include "tests/runtime/nccl/ranks.h"
#ifdef DISTRUN_HAS_NCCL
#include "runtime/nccl/cuda_api.h"
#endif

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <stdexcept>
#include <thread>

namespace distrun::nccl::testing {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Type {
  const char* name;
  std::uint8_t code;
  std::uint8_t bits;
  NcclType type;
};
constexpr Type kTypes[] = {
    {"float32", 2, 32, NcclType::float32}, {"float64", 2, 64, NcclType::float64},
    {"float16", 2, 16, NcclType::float16}, {"bfloat16", 4, 16, NcclType::bfloat16},
    {"int8", 0, 8, NcclType::int8},        {"uint8", 1, 8, NcclType::uint8},
    {"int32", 0, 32, NcclType::int32},     {"uint32", 1, 32, NcclType::uint32},
    {"int64", 0, 64, NcclType::int64},     {"uint64", 1, 64, NcclType::uint64}};
constexpr const Type& kFloat = kTypes[0];

struct Machine {
  const Api& api;
  const drb_backend& backend;
  int ranks;
  double seconds;  // for the timing, in all
};

void need(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}
void need(const Answer& answer, const std::string& what) {
  need(answer.ok(), what + ": " + answer.text);
}
void need(CudaResult result, const Api& api, const char* what) {
  need(result == CudaResult::success, std::string(what) + ": " + api.cuda_error_text(result));
}

// Waits until all on the stream is done.
void finish(const Api& api, Stream stream) {
  Event event = nullptr;
  need(api.event_create(&event), api, "cudaEventCreate");
  need(api.event_record(event, stream), api, "cudaEventRecord");
  const auto deadline = SteadyClock::now() + std::chrono::seconds(60);
  CudaResult result = CudaResult::not_ready;
  while ((result = api.event_query(event)) == CudaResult::not_ready &&
         SteadyClock::now() < deadline) {
    std::this_thread::yield();
  }
  api.event_destroy(event);
  need(result, api, "after 60 s");
}

using Bytes = std::vector<unsigned char>;

// Memory on the calling thread's device.
class Device {
 public:
  Device(const Api& api, const Bytes& bytes) : api_(api), bytes_(bytes.size()) {
    need(api.malloc_device(&data_, std::max<std::size_t>(bytes_, 1)), api, "cudaMalloc");
    if (bytes_ == 0) return;
    need(api.copy_async(data_, bytes.data(), bytes_, nullptr), api, "cudaMemcpyAsync");
    finish(api, nullptr);
  }
  ~Device() { api_.free_device(data_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void* data() const { return data_; }
  Bytes read() const {
    Bytes out(bytes_);
    if (bytes_ > 0) {
      need(api_.copy_async(out.data(), data_, bytes_, nullptr), api_, "cudaMemcpyAsync");
      finish(api_, nullptr);
    }
    return out;
  }

 private:
  const Api& api_;
  const std::size_t bytes_;
  void* data_ = nullptr;
};

// What rank r brings: small numbers, so that every type holds sums and products exactly.
Bytes input_of(int rank, std::size_t count, const Type& type) {
  Bytes out(count * size_of(type.type));
  for (std::size_t i = 0; i < count; ++i) {
    store(out.data(), i, type.type,
          static_cast<double>((i + static_cast<std::size_t>(rank)) % 2 + 1));
  }
  return out;
}

bool alike(const Bytes& a, const Bytes& b, const Type& type) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size() / size_of(type.type); ++i) {
    const double x = load(a.data(), i, type.type);
    const double y = load(b.data(), i, type.type);
    if (std::fabs(x - y) > 0.02 * std::fabs(y)) return false;  // avg of 16-bit floats
  }
  return true;
}

// One rank of the check.
class Checker {
 public:
  Checker(const Machine& machine, MemoryStore& the_store, int rank)
      : m_(machine), store_(the_store), rank_(rank) {}

  void run() {
    need(m_.api.set_device(rank_), m_.api, "cudaSetDevice");
    Made made = make_group(m_.backend, store_, spec("all"));
    need(made.answer, "create");
    group_ = std::move(made.group);
    reductions();
    movements();
    uneven();
    coalesced();
    asynchronous();
    premul();
    pairs();
    registered();
    sub_groups();
    lazy();
    need(group_.submit(Op(DRB_BARRIER)), "barrier");
    timing();
    need(group_.close(), "destroy");
    failing();
  }

 private:
  int n() const { return m_.ranks; }
  std::size_t un() const { return static_cast<std::size_t>(m_.ranks); }

  GroupSpec spec(const std::string& name) const {
    return {.rank = rank_, .world_size = n(), .eager = true, .timeout_ms = 60'000, .name = name};
  }
  drb_tensor tensor_of(const Device& device, std::size_t at, std::size_t count,
                       const Type& type) const {
    return {.data = static_cast<unsigned char*>(device.data()) + at * size_of(type.type),
            .count = count,
            .dtype_code = type.code,
            .dtype_bits = type.bits,
            .reserved = 0,
            .device_type = 2,
            .device_index = rank_,
            .reserved2 = 0};
  }
  void submit(const Op& op, const std::string& what) {
    need(group_.submit(op), what);
    finish(m_.api, nullptr);
  }
  void expect(const Device& device, const Bytes& expected, const Type& type,
              const std::string& what) const {
    need(alike(device.read(), expected, type),
         "rank " + std::to_string(rank_) + ": " + what + " of " + type.name + ": wrong result");
  }
  void say(const std::string& line) const {
    if (rank_ == 0) std::printf("  %s\n", line.c_str()), std::fflush(stdout);
  }

  // What each rank has to see of a collective of equal parts.
  Bytes expected(const std::string& call, std::size_t in_count, std::size_t count, const Type& type,
                 NcclOp op, int root) const {
    std::vector<Bytes> inputs;
    std::vector<Contribution> contributions;
    inputs.reserve(un());
    contributions.reserve(un());
    for (int rank = 0; rank < n(); ++rank) inputs.push_back(input_of(rank, in_count, type));
    for (const Bytes& input : inputs) {
      contributions.push_back({input.data(), count, type.type, {.op = op}});
    }
    return results_of(call, contributions, root)[static_cast<std::size_t>(rank_)];
  }

  void reductions() {
    struct Pair {
      drb_reduce_op ours;
      NcclOp theirs;
    };
    constexpr std::size_t kCount = 1003;
    for (const Type& type : kTypes) {
      for (const Pair& pair :
           {Pair{DRB_SUM, NcclOp::sum}, Pair{DRB_PRODUCT, NcclOp::product},
            Pair{DRB_MIN, NcclOp::min}, Pair{DRB_MAX, NcclOp::max}, Pair{DRB_AVG, NcclOp::avg}}) {
        if (pair.ours == DRB_AVG && type.code != 2 && type.code != 4) continue;
        const Device all(m_.api, input_of(rank_, kCount, type));
        submit(Op(DRB_ALL_REDUCE).out(tensor_of(all, 0, kCount, type)).reduce(pair.ours),
               "all_reduce");
        expect(all, expected("all_reduce", kCount, kCount, type, pair.theirs, -1), type,
               "all_reduce");
        const int root = n() - 1;
        const Device one(m_.api, input_of(rank_, kCount, type));
        submit(Op(DRB_REDUCE).out(tensor_of(one, 0, kCount, type)).reduce(pair.ours).root(root),
               "reduce");
        if (rank_ == root) {
          expect(one, expected("reduce", kCount, kCount, type, pair.theirs, root), type, "reduce");
        }
        const Device parts(m_.api, input_of(rank_, kCount * un(), type));
        const Device part(m_.api, Bytes(kCount * size_of(type.type)));
        submit(Op(DRB_REDUCE_SCATTER)
                   .in(tensor_of(parts, 0, kCount * un(), type))
                   .out(tensor_of(part, 0, kCount, type))
                   .reduce(pair.ours),
               "reduce_scatter");
        expect(part, expected("reduce_scatter", kCount * un(), kCount, type, pair.theirs, -1), type,
               "reduce_scatter");
      }
    }
    say("all_reduce, reduce, reduce_scatter: 10 types, 5 operations");
  }

  // A list of bytes of all ranks, in a row.
  Bytes joined(std::size_t count, const Type& type) const {
    Bytes all;
    for (int rank = 0; rank < n(); ++rank) {
      const Bytes part = input_of(rank, count, type);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  void movements() {
    constexpr std::size_t kCount = 777;
    for (const Type& type : kTypes) {
      const std::size_t bytes = kCount * size_of(type.type);
      for (int root = 0; root < n(); root += std::max(1, n() - 1)) {
        const Device told(m_.api, input_of(rank_, kCount, type));
        submit(Op(DRB_BROADCAST).out(tensor_of(told, 0, kCount, type)).root(root), "broadcast");
        expect(told, input_of(root, kCount, type), type, "broadcast");

        const Device mine(m_.api, input_of(rank_, kCount, type));
        const Device all(m_.api, Bytes(bytes * un()));
        Op gather = Op(DRB_GATHER).in(tensor_of(mine, 0, kCount, type)).root(root);
        if (rank_ == root) gather.out(tensor_of(all, 0, kCount * un(), type));
        submit(gather, "gather");
        if (rank_ == root) expect(all, joined(kCount, type), type, "gather");

        const Device from(m_.api, joined(kCount, type));
        const Device part(m_.api, Bytes(bytes));
        Op scatter = Op(DRB_SCATTER).out(tensor_of(part, 0, kCount, type)).root(root);
        if (rank_ == root) scatter.in(tensor_of(from, 0, kCount * un(), type));
        submit(scatter, "scatter");
        expect(part, input_of(rank_, kCount, type), type, "scatter");
      }
      const Device mine(m_.api, input_of(rank_, kCount, type));
      const Device all(m_.api, Bytes(bytes * un()));
      submit(Op(DRB_ALL_GATHER)
                 .in(tensor_of(mine, 0, kCount, type))
                 .out(tensor_of(all, 0, kCount * un(), type)),
             "all_gather");
      expect(all, joined(kCount, type), type, "all_gather");

      // Every rank sends its own input to everybody.
      Bytes same;
      for (int i = 0; i < n(); ++i) {
        const Bytes input = input_of(rank_, kCount, type);
        same.insert(same.end(), input.begin(), input.end());
      }
      const Device to(m_.api, same);
      const Device back(m_.api, Bytes(bytes * un()));
      submit(Op(DRB_ALL_TO_ALL)
                 .in(tensor_of(to, 0, kCount * un(), type))
                 .out(tensor_of(back, 0, kCount * un(), type)),
             "all_to_all");
      expect(back, joined(kCount, type), type, "all_to_all");
    }
    say("broadcast, gather, scatter, all_gather, all_to_all: 10 types");
  }

  // Rank r has r + 1 times 100 elements.
  static std::size_t share(int rank) { return static_cast<std::size_t>(rank + 1) * 100; }

  void uneven() {
    std::size_t total = 0;
    Bytes all;
    for (int rank = 0; rank < n(); ++rank) {
      total += share(rank);
      const Bytes part = input_of(rank, share(rank), kFloat);
      all.insert(all.end(), part.begin(), part.end());
    }
    const Device mine(m_.api, input_of(rank_, share(rank_), kFloat));
    const Device gathered(m_.api, Bytes(total * 4));
    Op gather = Op(DRB_ALL_GATHER).in(tensor_of(mine, 0, share(rank_), kFloat));
    std::size_t at = 0;
    for (int rank = 0; rank < n(); at += share(rank++)) {
      gather.out(tensor_of(gathered, at, share(rank), kFloat));
    }
    if (n() > 1) {
      submit(gather, "all_gather to a list");
      expect(gathered, all, kFloat, "all_gather to a list");
    }

    Bytes to;
    std::vector<std::uint64_t> sent(un(), share(rank_));
    std::vector<std::uint64_t> received;
    for (int rank = 0; rank < n(); ++rank) {
      const Bytes part = input_of(rank_, share(rank_), kFloat);
      to.insert(to.end(), part.begin(), part.end());
      received.push_back(share(rank));
    }
    const Device out(m_.api, to);
    const Device in(m_.api, Bytes(total * 4));
    submit(Op(DRB_ALL_TO_ALL)
               .in(tensor_of(out, 0, share(rank_) * un(), kFloat))
               .out(tensor_of(in, 0, total, kFloat))
               .splits(sent, received),
           "all_to_all with splits");
    expect(in, all, kFloat, "all_to_all with splits");
    say("uneven all_gather and all_to_all");
  }

  void coalesced() {
    constexpr std::size_t kCount = 100;
    std::vector<std::unique_ptr<Device>> arrays;
    std::vector<Op> ops;
    for (int i = 0; i < 5; ++i) {
      arrays.push_back(std::make_unique<Device>(m_.api, input_of(rank_, kCount, kFloat)));
      ops.push_back(Op(DRB_ALL_REDUCE).out(tensor_of(*arrays.back(), 0, kCount, kFloat)));
    }
    need(group_.submit_all(std::move(ops)), "coalesced all_reduce");
    finish(m_.api, nullptr);
    for (const auto& array : arrays) {
      expect(*array, expected("all_reduce", kCount, kCount, kFloat, NcclOp::sum, -1), kFloat,
             "coalesced all_reduce");
    }
    say("coalesced");
  }

  void asynchronous() {
    constexpr std::size_t kCount = 1 << 16;
    const Device array(m_.api, input_of(rank_, kCount, kFloat));
    TestWork work;
    need(group_.submit(Op(DRB_ALL_REDUCE).out(tensor_of(array, 0, kCount, kFloat)), {.async = true},
                       &work),
         "all_reduce");
    need(work.wait_on(nullptr), "wait on the stream");
    const Device second(m_.api, Bytes(kCount * 4));
    need(m_.api.copy_async(second.data(), array.data(), kCount * 4, nullptr), m_.api, "copy");
    expect(second, expected("all_reduce", kCount, kCount, kFloat, NcclOp::sum, -1), kFloat,
           "asynchronous all_reduce");
    need(work.wait(), "wait on the host");
    need(work.state() == DRB_WORK_DONE, "a work that is done does not say so");
    say("asynchronous, wait on the stream and on the host");
  }

  void premul() {
    for (const Type& type : {kTypes[0], kTypes[1], kTypes[2], kTypes[3]}) {
      const Device array(m_.api, input_of(rank_, 64, type));
      submit(Op(DRB_ALL_REDUCE).out(tensor_of(array, 0, 64, type)).premul(0.5), "premul_sum");
      Bytes half = expected("all_reduce", 64, 64, type, NcclOp::sum, -1);
      for (std::size_t i = 0; i < 64; ++i) {
        store(half.data(), i, type.type, load(half.data(), i, type.type) / 2);
      }
      expect(array, half, type, "premul_sum");
    }
    say("premul_sum");
  }

  void pairs() {
    if (n() == 1) return say("send and recv: skipped, they need two GPUs");
    const int next = (rank_ + 1) % n();
    const int previous = (rank_ + n() - 1) % n();
    const Device mine(m_.api, input_of(rank_, 500, kFloat));
    const Device theirs(m_.api, Bytes(2000));
    std::vector<Op> ops;
    ops.push_back(Op(DRB_SEND).in(tensor_of(mine, 0, 500, kFloat)).peer(next));
    ops.push_back(Op(DRB_RECV).out(tensor_of(theirs, 0, 500, kFloat)).peer(previous));
    need(group_.submit_all(std::move(ops)), "batched send and recv");
    finish(m_.api, nullptr);
    expect(theirs, input_of(previous, 500, kFloat), kFloat, "batched send and recv");
    if (rank_ < 2) {
      const Device value(m_.api, input_of(rank_, 500, kFloat));
      submit(rank_ == 0 ? Op(DRB_SEND).in(tensor_of(value, 0, 500, kFloat)).peer(1)
                        : Op(DRB_RECV).out(tensor_of(value, 0, 500, kFloat)).peer(0),
             "send and recv");
      expect(value, input_of(0, 500, kFloat), kFloat, "send and recv");
    }
    say("send and recv");
  }

  void registered() {
    if ((m_.backend.capabilities & DRB_CAN_ALLOCATE) == 0) return say("registration: not here");
    constexpr std::size_t kCount = 1 << 18;
    void* memory = nullptr;
    need(answer_of(m_.backend, m_.backend.allocate(kCount * 4, &memory)), "ncclMemAlloc");
    drb_registration* handle = nullptr;
    need(answer_of(m_.backend,
                   m_.backend.register_memory(group_.raw(), memory, kCount * 4, &handle)),
         "register");
    need(m_.api.zero_async(memory, kCount * 4, nullptr), m_.api, "cudaMemsetAsync");
    drb_tensor whole = tensor(static_cast<float*>(memory), kCount, rank_);
    submit(Op(DRB_ALL_REDUCE).out(whole), "all_reduce of registered memory");
    need(answer_of(m_.backend, m_.backend.deregister_memory(group_.raw(), handle)), "deregister");
    need(answer_of(m_.backend, m_.backend.deallocate(memory)), "ncclMemFree");
    say("registered memory");
  }

  void sub_groups() {
    if ((m_.backend.capabilities & DRB_CAN_SPLIT) == 0) return say("split: not here");
    const int colour = rank_ % 2;
    const int size = (n() + 1 - colour) / 2;
    GroupSpec child = spec("half" + std::to_string(colour));
    child.rank = rank_ / 2;
    child.world_size = size;
    Made made = split_group(m_.backend, store_, group_, colour, child);
    need(made.answer, "split");
    const Device array(m_.api, input_of(0, 10, kFloat));
    need(made.group.submit(Op(DRB_ALL_REDUCE).out(tensor_of(array, 0, 10, kFloat))), "of a child");
    finish(m_.api, nullptr);
    Bytes sum = input_of(0, 10, kFloat);
    for (std::size_t i = 0; i < 10; ++i) {
      store(sum.data(), i, kFloat.type, load(sum.data(), i, kFloat.type) * size);
    }
    expect(array, sum, kFloat, "all_reduce of a child");
    need(made.group.close(), "destroy of a child");
    say("split");
  }

  void lazy() {
    GroupSpec its = spec("lazy");
    its.eager = false;
    its.options = {{"high_priority", "1"}, {"ranks_per_root", "2"}};
    Made made = make_group(m_.backend, store_, its);
    need(made.answer, "create");
    if (n() > 1 && rank_ < 2) {  // a communicator of their own
      const Device value(m_.api, input_of(rank_, 5, kFloat));
      need(made.group.submit(rank_ == 0 ? Op(DRB_SEND).in(tensor_of(value, 0, 5, kFloat)).peer(1)
                                        : Op(DRB_RECV).out(tensor_of(value, 0, 5, kFloat)).peer(0)),
           "send and recv of a lazy group");
      finish(m_.api, nullptr);
      expect(value, input_of(0, 5, kFloat), kFloat, "send and recv of a lazy group");
    }
    const Device array(m_.api, input_of(rank_, 10, kFloat));
    need(made.group.submit(Op(DRB_ALL_REDUCE).out(tensor_of(array, 0, 10, kFloat))), "all_reduce");
    finish(m_.api, nullptr);
    expect(array, expected("all_reduce", 10, 10, kFloat, NcclOp::sum, -1), kFloat,
           "all_reduce of a lazy group");
    need(made.group.close(), "destroy of a lazy group");
    say("lazy, of high priority, by way of several roots");
  }

  // A rank that does not come: the others get an error that names it, in time.
  void failing() {
    if (n() == 1) return say("a rank that does not come: skipped, it needs two GPUs");
    GroupSpec its = spec("failing");
    its.options = {{"store_poll_ms", "100"}};
    Made made = make_group(m_.backend, store_, its);
    need(made.answer, "create");
    const Device array(m_.api, input_of(rank_, 1000, kFloat));
    const auto began = SteadyClock::now();
    if (rank_ != n() - 1) {
      TestWork work;
      need(made.group.submit(Op(DRB_ALL_REDUCE).out(tensor_of(array, 0, 1000, kFloat)),
                             {.async = true, .timeout_ms = 1000}, &work),
           "all_reduce");
      const Answer answer = work.wait(30'000);
      need(answer.status == DRB_TIMEOUT && answer.culprit == n() - 1,
           "the rank that did not come is not named: " + answer.text);
    } else {
      while (made.group.check().ok() && SteadyClock::now() - began < std::chrono::seconds(30)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
    const Answer closed = made.group.close();
    need(!closed.ok(), "a group that failed closes as if nothing had happened");
    char line[100];
    std::snprintf(line, sizeof line, "a rank that does not come: named and aborted after %.1f s",
                  std::chrono::duration<double>(SteadyClock::now() - began).count());
    say(line);
  }

  void timing() {
    constexpr std::size_t kSizes[] = {8, 4096, 65536, 1 << 20, 16 << 20, 256 << 20};
    say("all_reduce float32, in place:     bytes        us   algorithm GB/s");
    for (const std::size_t bytes : kSizes) {
      if (m_.seconds < 1 && bytes > (1 << 20)) break;
      void* data = nullptr;
      need(m_.api.malloc_device(&data, bytes), m_.api, "cudaMalloc");
      need(m_.api.zero_async(data, bytes, nullptr), m_.api, "cudaMemsetAsync");
      const Op op = Op(DRB_ALL_REDUCE).out(tensor(static_cast<float*>(data), bytes / 4, rank_));
      const int times = bytes > (1 << 20) ? 20 : m_.seconds < 1 ? 5 : 200;
      for (int i = 0; i < 5; ++i) submit(op, "all_reduce");
      const auto began = SteadyClock::now();
      for (int i = 0; i < times; ++i) need(group_.submit(op), "all_reduce");
      finish(m_.api, nullptr);
      const double us =
          std::chrono::duration<double, std::micro>(SteadyClock::now() - began).count() / times;
      char line[100];
      std::snprintf(line, sizeof line, "%42zu %9.1f %14.2f", bytes, us,
                    static_cast<double>(bytes) / us / 1000);
      say(line);
      m_.api.free_device(data);
    }
  }

  const Machine& m_;
  MemoryStore& store_;
  const int rank_;
  TestGroup group_;
};

struct Arguments {
  int ranks = 0;
  bool on_double = false;
  std::string plugin;
  double seconds = 30;
};

int usage(const char* wrong) {
  std::fprintf(stderr,
               "nccl_check: %s\nusage: nccl_check [--ranks N] [--double] [--plugin FILE] "
               "[--seconds S]\n",
               wrong);
  return 2;
}

const drb_backend* load_plugin(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) throw std::runtime_error(dlerror());
  const auto entry = reinterpret_cast<drb_entry>(dlsym(handle, DRB_ENTRY_SYMBOL));
  if (!entry) throw std::runtime_error(dlerror());
  const drb_backend* backend = entry(DRB_ABI);
  if (!backend) throw std::runtime_error(path + " does not know this ABI");
  return backend;
}

int check(const Arguments& arguments) {
  const Api* api = &double_api();
#ifdef DISTRUN_HAS_NCCL
  if (!arguments.on_double) api = &cuda_api();
#else
  if (!arguments.on_double) {
    std::printf("skipped: built without CUDA and NCCL\n");
    return 77;
  }
#endif
  const drb_backend& backend =
      arguments.plugin.empty() ? *backend_over(*api) : *load_plugin(arguments.plugin);
  char text[400];
  const drb_status status = backend.probe(text, sizeof text);
  if (status != DRB_OK) {
    std::printf("skipped: %s\n", text);
    return 77;
  }
  std::printf("%s\n", text);
  int devices = 0;
  need(api->get_device_count(&devices), *api, "cudaGetDeviceCount");
  const int most = arguments.ranks > 0 ? arguments.ranks : std::min(devices, 8);
  if (most > devices) {
    std::printf("%d ranks, but %d GPUs: NCCL takes one rank on each\n", most, devices);
    return 1;
  }
  std::vector<int> counts{1};
  if (most > 1) counts.push_back(most);
  for (const int ranks : counts) {
    std::printf("%d %s\n", ranks, ranks == 1 ? "rank" : "ranks");
    const auto began = SteadyClock::now();
    MemoryStore the_store;
    const Machine machine{*api, backend, ranks, arguments.seconds};
    run_ranks(ranks, [&](int rank) { Checker(machine, the_store, rank).run(); });
    std::printf("  all right, in %.1f s\n",
                std::chrono::duration<double>(SteadyClock::now() - began).count());
  }
  if (!arguments.on_double) return 0;
  for (const std::string& violation : violations())
    std::printf("violation: %s\n", violation.c_str());
  return violations().empty() ? 0 : 1;
}

}  // namespace
}  // namespace distrun::nccl::testing

int main(int argc, char** argv) {
  namespace t = distrun::nccl::testing;
  t::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (name == "--double") {
      arguments.on_double = true;
      continue;
    }
    if (name != "--ranks" && name != "--plugin" && name != "--seconds") {
      return t::usage(("unknown: " + name).c_str());
    }
    if (!value) return t::usage((name + " needs a value").c_str());
    ++i;
    if (name == "--plugin") {
      arguments.plugin = value;
    } else if (name == "--ranks") {
      arguments.ranks = std::atoi(value);
      if (arguments.ranks < 1) return t::usage("--ranks needs a number of 1 or more");
    } else {
      arguments.seconds = std::atof(value);
    }
  }
  // A rank that fails leaves the others waiting: the process ends with its error.
  try {
    return t::check(arguments);
  } catch (const std::exception& error) {
    std::printf("WRONG: %s\n", error.what());
    return 1;
  }
}
