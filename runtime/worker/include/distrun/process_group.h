// Process groups: collective operations between the ranks of a job, without PyTorch.
//
//   auto group = distrun::init_process_group("gloo");          // RANK, WORLD_SIZE, MASTER_… from
//   env std::vector<float> gradients = …; group->all_reduce(gradients, distrun::ReduceOp::avg); //
//   in place, on every rank the same distrun::Work work = group->all_reduce_async(gradients);   //
//   …or beside other work work.wait();
//
// Every rank calls the same operations in the same order with the same arguments.  Ranks that do
// not are told so on all sides before any data moves: which two ranks, and what differs.
//
// Every operation has a deadline, from its start to its end.  After any failure (a rank died, timed
// out or disagreed) the group is of no more use: each later call throws DistBackendError with the
// first failure, and the ranks that were waiting are released and told the same cause.
//
// A group may be used from several threads, but then it is for the caller to see to it that all
// ranks issue their calls in the same order.  No fork() while a group exists.
#pragma once

#include <distrun/error.h>
#include <distrun/store.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>

namespace distrun {

enum class DType : std::uint8_t { float32, float64, int32, int64 };

enum class ReduceOp : std::uint8_t {
  sum,
  product,
  min,
  max,
  avg,  // floating point only
};

std::size_t size_of(DType dtype);
std::string_view to_string(DType dtype);
std::string_view to_string(ReduceOp op);

template <class T>
concept Element = std::same_as<T, float> || std::same_as<T, double> ||
    std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>;

template <Element T>
inline constexpr DType kDTypeOf = std::same_as<T, float>          ? DType::float32
                                  : std::same_as<T, double>       ? DType::float64
                                  : std::same_as<T, std::int32_t> ? DType::int32
                                                                  : DType::int64;

// A run of elements in memory that somebody else owns.  Made from anything contiguous (vector,
// array, span), or from a pointer, a count and a type that is only known at run time.
class ConstBuffer {
 public:
  ConstBuffer(const void* data, std::size_t count, DType dtype)
      : data_(data), count_(count), dtype_(dtype) {}
  // NOLINTBEGIN(google-explicit-constructor): a view, like std::span
  template <std::ranges::contiguous_range R>
  requires Element<std::remove_cv_t<std::ranges::range_value_t<R>>> ConstBuffer(const R& range)
      : ConstBuffer(std::ranges::data(range), std::ranges::size(range),
                    kDTypeOf<std::ranges::range_value_t<R>>) {}
  // NOLINTEND(google-explicit-constructor)

  const void* data() const { return data_; }
  std::size_t count() const { return count_; }
  DType dtype() const { return dtype_; }
  std::size_t bytes() const { return count_ * size_of(dtype_); }

 private:
  const void* data_;
  std::size_t count_;
  DType dtype_;
};

class Buffer {
 public:
  Buffer(void* data, std::size_t count, DType dtype) : data_(data), count_(count), dtype_(dtype) {}
  // NOLINTBEGIN(google-explicit-constructor, bugprone-forwarding-reference-overload): as above; a
  // Buffer is no contiguous range, so copies and moves are not hidden
  template <std::ranges::contiguous_range R>
  requires Element<std::ranges::range_value_t<R>> &&
      (!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>)
          Buffer(R&& range)
      : Buffer(std::ranges::data(range), std::ranges::size(range),
               kDTypeOf<std::ranges::range_value_t<R>>) {}
  // NOLINTEND(google-explicit-constructor, bugprone-forwarding-reference-overload)

  void* data() const { return data_; }
  std::size_t count() const { return count_; }
  DType dtype() const { return dtype_; }
  std::size_t bytes() const { return count_ * size_of(dtype_); }

 private:
  void* data_;
  std::size_t count_;
  DType dtype_;
};

enum class OpType : std::uint8_t { broadcast, all_reduce, reduce, all_gather, barrier };
std::string_view to_string(OpType op);

// A handle on one asynchronous operation.  Its buffers belong to the group until it is completed.
// Letting go of the handle does not stop the operation.
class Work {
 public:
  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // Returns when the operation is done; throws what it failed with.
  void wait();
  // As above, but throws DistTimeoutError if it is not done in time; it goes on nevertheless.
  void wait(Timeout timeout);
  // Done, well or not.  Never blocks.
  bool is_completed() const;
  bool is_success() const;
  // What it failed with; null if it is not completed, or went well.
  std::exception_ptr exception() const;

  OpType op() const;
  // The operation's number in its group, from 0, the same on every rank.
  std::uint64_t sequence_number() const;

 private:
  std::shared_ptr<State> state_;
};

// Zero: the group's.  Counted from the moment when the operation begins (an asynchronous one begins
// when those before it are done).
struct CallOptions {
  Timeout timeout = Timeout::zero();
};

inline constexpr Timeout kDefaultGroupTimeout = std::chrono::minutes(30);

class ProcessGroup {
 public:
  struct Impl;
  explicit ProcessGroup(std::unique_ptr<Impl> impl);
  // Says goodbye as close() does, for at most five seconds; during an exception it tells the other
  // ranks instead that this one is leaving.  Never throws.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const;
  int size() const;
  const std::string& name() const;
  const std::string& backend() const;
  Timeout timeout() const;

  // `root`'s data to all.
  void broadcast(Buffer data, int root, CallOptions options = {});
  // All ranks' data, element by element, into one result: bit for bit the same on every rank.
  void all_reduce(Buffer data, ReduceOp op = ReduceOp::sum, CallOptions options = {});
  // As all_reduce, at `root` only; the other ranks' data stays as it is.
  void reduce(Buffer data, int root, ReduceOp op = ReduceOp::sum, CallOptions options = {});
  // `out` holds size() times `in`, in the order of ranks.  `in` may be this rank's part of `out`.
  void all_gather(ConstBuffer in, Buffer out, CallOptions options = {});
  // Returns when every rank has called it, and all earlier operations are done.
  void barrier(CallOptions options = {});

  Work broadcast_async(Buffer data, int root, CallOptions options = {});
  Work all_reduce_async(Buffer data, ReduceOp op = ReduceOp::sum, CallOptions options = {});
  Work reduce_async(Buffer data, int root, ReduceOp op = ReduceOp::sum, CallOptions options = {});
  Work all_gather_async(ConstBuffer in, Buffer out, CallOptions options = {});
  Work barrier_async(CallOptions options = {});

  // Waits for what was issued, then until every rank has come here, so that nobody's last operation
  // is cut short; then closes.  Throws if that fails.  Calls after it are refused.
  void close(Timeout timeout);
  void close() { close(timeout()); }

 private:
  std::unique_ptr<Impl> impl_;
};

struct GroupOptions {
  Timeout timeout = kDefaultGroupTimeout;  // of joining, and of each operation
  // Together, or none of them: then env:// is used, that is RANK, WORLD_SIZE, MASTER_ADDR,
  // MASTER_PORT and TORCHELASTIC_USE_AGENT_STORE=True, as distrun sets them.
  std::shared_ptr<Store> store = nullptr;
  int rank = -1;
  int world_size = -1;
  // The same on every rank, and for each group on a store another.  Empty: "0", "1", … in the order
  // of creation in this process.
  std::string name = {};
  // Where the other ranks reach this one.  Empty: the interface named by GLOO_SOCKET_IFNAME; else
  // the address from which a TCPStore's server was reached; else loopback.
  std::string local_address = {};
};

// Joins the group; returns when every rank has.  Backends: "gloo".  SIGPIPE, if the program has
// left it as it is, is ignored from then on: a rank that is gone must not end the others without a
// word.
std::unique_ptr<ProcessGroup> init_process_group(std::string_view backend = "gloo",
                                                 const GroupOptions& options = {});

}  // namespace distrun
