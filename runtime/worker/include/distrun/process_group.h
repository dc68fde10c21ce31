// Process groups: collective operations between the ranks of a job, without PyTorch.  Names,
// arguments and meaning are those of torch.distributed; roots and peers are ranks of the group.
//
//   auto world = distrun::init_process_group("gloo");        // RANK, WORLD_SIZE, … as distrun set
//   std::vector<float> gradients = …;
//   world->all_reduce(gradients, distrun::ReduceOp::avg);    // in place, on every rank the same
//   distrun::Work work = world->all_reduce(gradients, distrun::ReduceOp::sum, {.async_op = true});
//   …                                                        // other work beside it
//   work.wait();
//   auto half = world->new_group({0, 1});                    // null on the others
//
// Every rank calls the same operations in the same order with the same arguments.  Ranks that do
// not are told so on all sides before any data moves: which two ranks, and what differs.  (In
// memory of the CPU.  On a GPU nothing is compared: who is behind is named when the time is up.)
//
// Every operation has a deadline, from its start to its end.  After any failure (a rank died, timed
// out or disagreed) the group is of no more use: each later call throws DistBackendError with the
// first failure, and the ranks that were waiting are released and told the same cause.
//
// A group may be used from several threads, but then it is for the caller to see to it that all
// ranks issue their calls in the same order.  No fork() while a group exists.
#pragma once

#include <distrun/backend.h>
#include <distrun/buffer.h>
#include <distrun/error.h>
#include <distrun/store.h>
#include <distrun/tensor.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distrun {

enum class ReduceOp : std::uint8_t {
  sum,
  avg,  // floating point and complex
  product,
  min,
  max,
  band,  // integers and bool, as the next two
  bor,
  bxor,
  premul_sum,  // sum of what each rank multiplied by its factor: see Reduction
};
std::string_view to_string(ReduceOp op);

// A ReduceOp, with the factor that premul_sum needs.
class Reduction {
 public:
  Reduction(ReduceOp op) : op_(op) {}  // NOLINT(google-explicit-constructor)
  static Reduction premul_sum(double factor) { return {ReduceOp::premul_sum, factor}; }

  ReduceOp op() const { return op_; }
  double factor() const { return factor_; }

 private:
  Reduction(ReduceOp op, double factor) : op_(op), factor_(factor) {}
  ReduceOp op_;
  double factor_ = 1;
};

enum class OpType : std::uint8_t {
  broadcast,
  all_reduce,
  reduce,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  all_to_all,
  barrier,
  send,
  recv,
};
std::string_view to_string(OpType op);

// A handle on one operation.  Its tensors belong to the group until it is completed.  Letting go of
// the handle does not stop the operation.  An operation that was waited for by the call itself
// gives a handle that is completed (on a GPU: see CallOptions::stream).
class Work {
 public:
  struct State;
  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // Returns when the operation is done; throws what it failed with.
  void wait();
  // As above, but throws DistTimeoutError if it is not done in time; it goes on nevertheless.
  void wait(Timeout timeout);
  // Of tensors on a GPU: what is enqueued on `stream` (a cudaStream_t) from now on sees the result,
  // and this thread does not wait.  Of others, and of a barrier: as wait().
  void wait_on(void* stream);
  // Done, well or not.  Never blocks.
  bool is_completed() const;
  bool is_success() const;
  // What it failed with; null if it is not completed, or went well.
  std::exception_ptr exception() const;
  // Of a completed recv: from whom.
  std::optional<int> source_rank() const;
  // `what` is called once the operation is done: now, if it is; else from a thread of the group.
  // There it must not throw, wait for this group, call it or let go of it.
  void then(std::function<void(const Work& work)> what);

  // The number of an asynchronous collective in its group, from 0, the same on every rank.
  std::optional<std::uint64_t> sequence_number() const;

 private:
  std::shared_ptr<State> state_;
};

struct CallOptions {
  // Zero: the group's.  Counted from the moment when the operation begins (an asynchronous one
  // begins when those before it are done); on a GPU from the call, with all that is before it
  // there.
  Timeout timeout = Timeout::zero();
  bool async_op = false;  // do not wait: the Work tells when it is done
  // Tensors on a GPU: a cudaStream_t of their device; null is the default stream.  The operation
  // sees what was enqueued there before.  A synchronous call is itself enqueued there and returns
  // (the Work tells when it is done); an asynchronous one runs beside what is enqueued there later.
  void* stream = nullptr;
};

struct P2POp {
  enum class Kind : std::uint8_t { isend, irecv };
  static P2POp isend(const ConstTensor& data, int to, int tag = 0);
  static P2POp irecv(const Tensor& data, int from, int tag = 0);
  Kind kind;
  ConstTensor data;
  int peer;
  int tag;
};

inline constexpr Timeout kDefaultGroupTimeout = std::chrono::minutes(30);

struct SubgroupOptions {
  Timeout timeout = Timeout::zero();  // zero: the parent's
  std::string description = {};
  // Only the members call, instead of all ranks of the parent.  Members of groups that overlap must
  // then create them in the same order.
  bool use_local_synchronization = false;
};

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
  const std::string& description() const;
  const std::string& backend() const;            // as it was asked for: "cpu:gloo,cuda:nccl"
  std::string backend(DeviceType device) const;  // "nccl"; empty: it takes no such memory
  Timeout timeout() const;

  // ---- collectives ----

  // `root`'s data to all.
  Work broadcast(const Tensor& data, int root, const CallOptions& options = {});
  // All ranks' data, element by element, into one result: bit for bit the same on every rank.
  Work all_reduce(const Tensor& data, Reduction reduction = ReduceOp::sum,
                  const CallOptions& options = {});
  // As all_reduce, at `root` only; the other ranks' data stays as it is.
  Work reduce(const Tensor& data, int root, Reduction reduction = ReduceOp::sum,
              const CallOptions& options = {});
  // `out` holds size() times `in`, in the order of ranks.  `in` may be this rank's part of `out`.
  Work all_gather_into_tensor(const Tensor& out, const ConstTensor& in,
                              const CallOptions& options = {});
  // As above, each rank's data into a tensor of its own; they may differ in size, if all ranks give
  // the same sizes.
  Work all_gather(std::span<const Tensor> outs, const ConstTensor& in,
                  const CallOptions& options = {});
  // At `root` one tensor for each rank, as above; none on the others.
  Work gather(const ConstTensor& in, std::span<const Tensor> outs, int root,
              const CallOptions& options = {});
  // The reverse: at `root` one tensor for each rank, none on the others.
  Work scatter(const Tensor& out, std::span<const ConstTensor> ins, int root,
               const CallOptions& options = {});
  // The sum, or other reduction, of what all ranks have for this rank.  `in` holds size() times
  // `out`.
  Work reduce_scatter_tensor(const Tensor& out, const ConstTensor& in,
                             Reduction reduction = ReduceOp::sum, const CallOptions& options = {});
  // As above, with one tensor for each rank; they may differ in size.
  Work reduce_scatter(const Tensor& out, std::span<const ConstTensor> ins,
                      Reduction reduction = ReduceOp::sum, const CallOptions& options = {});
  // ins[j] to rank j, into its outs[this rank].  ins[j] may be outs[j] (not on a GPU).
  Work all_to_all(std::span<const Tensor> outs, std::span<const ConstTensor> ins,
                  const CallOptions& options = {});
  // As above, with parts of one tensor.  Splits count rows (of the first dimension), one for each
  // rank; none: all alike.
  Work all_to_all_single(const Tensor& out, const ConstTensor& in,
                         std::span<const std::size_t> out_splits = {},
                         std::span<const std::size_t> in_splits = {},
                         const CallOptions& options = {});
  // Returns when every rank has called it, and all earlier operations are done.
  Work barrier(const CallOptions& options = {});
  // As barrier, which names every rank that is missing.
  void monitored_barrier(Timeout timeout = Timeout::zero());

  // Several tensors of one type at the price of one operation.
  Work all_reduce_coalesced(std::span<const Tensor> data, Reduction reduction = ReduceOp::sum,
                            const CallOptions& options = {});
  Work all_gather_into_tensor_coalesced(std::span<const Tensor> outs,
                                        std::span<const ConstTensor> ins,
                                        const CallOptions& options = {});
  Work reduce_scatter_tensor_coalesced(std::span<const Tensor> outs,
                                       std::span<const ConstTensor> ins,
                                       Reduction reduction = ReduceOp::sum,
                                       const CallOptions& options = {});

  // ---- between two ranks ----

  // What is sent with one tag arrives in the order in which it was sent.  Beside the collectives:
  // neither waits for the other.  A receiver whose tensor has another type or count ends the group,
  // and both sides are told why.  NCCL has no tags, compares nothing, and needs the source.
  void send(const ConstTensor& data, int to, int tag = 0, const CallOptions& options = {});
  Work isend(const ConstTensor& data, int to, int tag = 0, const CallOptions& options = {});
  // No source: from whoever sends first.  Returns the sender.
  int recv(const Tensor& data, std::optional<int> from = std::nullopt, int tag = 0,
           const CallOptions& options = {});
  Work irecv(const Tensor& data, std::optional<int> from = std::nullopt, int tag = 0,
             const CallOptions& options = {});
  // All at once; a batch of one rank meets batches of its peers.  One Work for each operation, in
  // their order; on a GPU one for all of that device, before those.
  std::vector<Work> batch_isend_irecv(std::span<const P2POp> operations,
                                      const CallOptions& options = {});

  // ---- groups ----

  // Of these ranks of this group, in ascending order.  All ranks of this group call it, in the same
  // order, also who is not in the new one: there it is null.
  std::shared_ptr<ProcessGroup> new_group(std::span<const int> ranks,
                                          const SubgroupOptions& options = {});
  std::shared_ptr<ProcessGroup> new_group(std::initializer_list<int> ranks,
                                          const SubgroupOptions& options = {}) {
    return new_group(std::span(ranks.begin(), ranks.size()), options);
  }
  // This rank's of the groups of `group_size` neighbours.
  std::shared_ptr<ProcessGroup> new_subgroups(int group_size, const SubgroupOptions& options = {});
  // This rank's of groups that do not overlap; null if it is in none.
  std::shared_ptr<ProcessGroup> new_subgroups_by_enumeration(
      std::span<const std::vector<int>> ranks_of_groups, const SubgroupOptions& options = {});
  // Of the group that init_process_group made, in the order of this group's ranks.
  const std::vector<int>& global_ranks() const;
  int global_rank(int rank) const;                       // throws if it is none of this group
  std::optional<int> group_rank(int global_rank) const;  // none: it is not in this group

  // ---- memory ----

  // Zeros, for tensors of the CPU.  Collectives read such tensors where they lie if they do on all
  // ranks of a host, which saves copies of what is large: see buffer.h.  No other rank takes part.
  // Where ranks share no memory it is ordinary memory, as good but for that.  Throws
  // DistUnsupportedError: there is not so much memory.
  Buffer allocate(std::size_t bytes);

  // ---- the end ----

  // Waits for what was issued, then until every rank has come here, so that nobody's last operation
  // is cut short; then closes.  Throws if that fails.  Calls after it are refused.
  void close(Timeout timeout);
  void close() { close(timeout()); }
  // At once: what is under way fails here, and soon on the other ranks, which are told `why`.
  void abort(const std::string& why);

 private:
  std::unique_ptr<Impl> impl_;
};

struct GroupOptions {
  Timeout timeout = kDefaultGroupTimeout;  // of joining, and of each operation
  // Where the ranks meet, if no store is given:
  //   env://                     RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as distrun sets them
  //   tcp://HOST:PORT            a server of a TCPStore that runs there, as distrund is one
  //   file:///PATH               a file that all ranks see; it must not be there before
  // With the last two go rank and world_size, below or behind it: ?rank=R&world_size=N.
  std::string init_method = "env://";
  // Together, in place of init_method.
  std::shared_ptr<Store> store = nullptr;
  int rank = -1;
  int world_size = -1;
  // The same on every rank, and for each group on a store another.  Empty: "0", "1", … in the order
  // of creation in this process.
  std::string name = {};
  std::string description = {};
  // Where the other ranks reach this one.  Empty: the interface named by GLOO_SOCKET_IFNAME; else
  // the address from which a TCPStore's server was reached; else loopback.
  std::string local_address = {};
  // This rank's GPU, if it is known already: its backend connects at once, and new_group() splits
  // its communicators off this group's.  On all ranks or on none.
  std::optional<Device> device_id = std::nullopt;
  // Reductions in memory of the CPU give the same bits wherever the ranks run and whichever way
  // data goes, for the same number of ranks: reduced in the order of ranks.  Slower for small data,
  // and takes memory for the data once more.  The same on all ranks; sub-groups do as their parent.
  // DISTRUN_DETERMINISTIC=1 turns it on for every group.
  bool deterministic = false;
  // The backends' own settings, by "BACKEND.SETTING": {{"nccl.max_ctas", "8"}}.
  std::vector<std::pair<std::string, std::string>> backend_options = {};
};

// Joins the group; returns when every rank has.  Backends (backend.h):
//   "gloo"                 memory of the CPU
//   "nccl"                 also that of NVIDIA's GPUs; the same as "cpu:gloo,cuda:nccl"
//   "cuda:mine"            that of a registered backend; its memory of the CPU goes by gloo
// Every group moves memory of the CPU, since that is how it agrees on sub-groups, sends objects and
// tells of failures.  SIGPIPE, if the program has left it as it is, is ignored from then on: a rank
// that is gone must not end the others without a word.
std::shared_ptr<ProcessGroup> init_process_group(std::string_view backend = "gloo",
                                                 const GroupOptions& options = {});

// The first group that init_process_group made and that is still held by somebody.
bool is_initialized();
std::shared_ptr<ProcessGroup> default_group();  // throws DistArgumentError if there is none

}  // namespace distrun
