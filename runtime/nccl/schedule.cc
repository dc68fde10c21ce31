#include "runtime/nccl/schedule.h"

#include "runtime/nccl/failed.h"

#include <limits>
#include <string>

namespace distrun::nccl {
namespace {

constexpr int kCuda = 2;
constexpr int kCudaManaged = 13;

// One operation being planned: its name in errors, and what it adds to the plan.
class Planner {
 public:
  Planner(const drb_op& op, const Place& place, Plan& plan)
      : op_(op), place_(place), plan_(plan), kind_(static_cast<OpKind>(op.kind)) {}

  void run();

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Failed(DRB_ARGUMENT, std::string(to_string(kind_)) + ": " + why);
  }
  void check_tensors();
  void check_root() const;
  void check_peer() const;
  void want(std::uint32_t inputs, std::uint32_t outputs) const;
  // One tensor of world_size * count elements, or world_size tensors?
  bool is_list(std::uint32_t n, const char* side) const;
  void same_count(const drb_tensor& a, const drb_tensor& b) const;
  // That `whole` has `part`'s elements for each rank.
  void check_parts(const drb_tensor& whole, std::uint64_t part, const char* side) const;
  std::vector<std::uint64_t> splits(const std::uint64_t* given, const drb_tensor& whole,
                                    const char* side) const;

  const drb_tensor& input(std::uint32_t i = 0) const { return op_.inputs[i]; }
  const drb_tensor& output(std::uint32_t i = 0) const { return op_.outputs[i]; }
  const drb_tensor& source() const { return op_.n_inputs > 0 ? input() : output(); }
  bool at_root() const { return op_.root == place_.rank; }
  int ranks() const { return place_.world_size; }

  const void* at(const drb_tensor& tensor, std::uint64_t element) const {
    return static_cast<const unsigned char*>(tensor.data) + element * element_bytes_;
  }
  void* at_out(const drb_tensor& tensor, std::uint64_t element) const {
    return static_cast<unsigned char*>(tensor.data) + element * element_bytes_;
  }

  void add(Command command);  // `count` in elements
  void add_reduction(Call call, const void* in, void* out, std::uint64_t count, int root = -1);
  void add_move(Call call, const void* in, void* out, std::uint64_t count, int peer = -1);
  void add_copy(const void* from, void* to, std::uint64_t count);

  void broadcast();
  void reduce();
  void all_gather();
  void gather();
  void scatter();
  void reduce_scatter();
  void all_to_all();

  const drb_op& op_;
  const Place& place_;
  Plan& plan_;
  OpKind kind_;
  DType dtype_;
  std::uint64_t element_bytes_ = 0;
  std::uint64_t largest_ = 0;
};

void Planner::check_tensors() {
  const drb_tensor* first = nullptr;
  const auto check = [&](const drb_tensor& tensor) {
    const DType dtype{tensor.dtype_code, tensor.dtype_bits};
    if (tensor.device_type != kCuda && tensor.device_type != kCudaManaged) {
      refuse("nccl takes tensors on cuda devices, and this one's is of DLPack's device type " +
             std::to_string(tensor.device_type));
    }
    if (tensor.device_index < 0) {
      refuse("a tensor's device index is " + std::to_string(tensor.device_index));
    }
    if (!tensor.data && tensor.count > 0) {
      refuse("a tensor of " + std::to_string(tensor.count) + " elements has no data");
    }
    if (dtype.bits == 0 || dtype.bits % 8 != 0) {
      refuse("elements of " + std::to_string(dtype.bits) + " bits cannot be sent");
    }
    if (tensor.count > std::numeric_limits<std::uint64_t>::max() / 2 / (dtype.bits / 8U)) {
      refuse("a tensor of " + std::to_string(tensor.count) + " elements is larger than memory");
    }
    if (!first) {
      first = &tensor;
      dtype_ = dtype;
      element_bytes_ = dtype.bits / 8U;
    }
    if (dtype != dtype_) {
      refuse("tensors of different types: " + to_string(dtype_) + " and " + to_string(dtype));
    }
    if (tensor.device_index != first->device_index) {
      refuse("tensors on different devices: cuda:" + std::to_string(first->device_index) +
             " and cuda:" + std::to_string(tensor.device_index));
    }
    largest_ = std::max(largest_, tensor.count);
  };
  for (std::uint32_t i = 0; i < op_.n_inputs; ++i) check(op_.inputs[i]);
  for (std::uint32_t i = 0; i < op_.n_outputs; ++i) check(op_.outputs[i]);
  if (!first) return;
  if (plan_.device >= 0 && plan_.device != first->device_index) {
    refuse("coalesced operations on different devices: cuda:" + std::to_string(plan_.device) +
           " and cuda:" + std::to_string(first->device_index));
  }
  plan_.device = first->device_index;
}

void Planner::check_root() const {
  if (op_.root < 0 || op_.root >= ranks()) {
    refuse("root " + std::to_string(op_.root) + " is not a rank of this group of " +
           std::to_string(ranks()));
  }
}

void Planner::check_peer() const {
  if (kind_ == OpKind::recv && op_.peer == DRB_ANY_RANK) {
    throw Failed(DRB_UNSUPPORTED,
                 "recv: NCCL cannot receive from any source: name the rank, or use a gloo group");
  }
  if (op_.peer < 0 || op_.peer >= ranks()) {
    refuse("peer " + std::to_string(op_.peer) + " is not a rank of this group of " +
           std::to_string(ranks()));
  }
  if (op_.peer == place_.rank) refuse("the peer is this rank itself, " + std::to_string(op_.peer));
  if (op_.tag < 0) refuse("the tag is negative: " + std::to_string(op_.tag));
}

void Planner::want(std::uint32_t inputs, std::uint32_t outputs) const {
  if (op_.n_inputs == inputs && op_.n_outputs == outputs) return;
  refuse("wants " + std::to_string(inputs) + " inputs and " + std::to_string(outputs) +
         " outputs on this rank, and got " + std::to_string(op_.n_inputs) + " and " +
         std::to_string(op_.n_outputs));
}

bool Planner::is_list(std::uint32_t n, const char* side) const {
  if (n == 1) return false;
  if (n == static_cast<std::uint32_t>(ranks())) return true;
  refuse(std::string("wants 1 ") + side + " for all ranks, or " + std::to_string(ranks()) +
         ", one for each, and got " + std::to_string(n));
}

void Planner::same_count(const drb_tensor& a, const drb_tensor& b) const {
  if (a.count != b.count) {
    refuse("tensors of different sizes: " + std::to_string(a.count) + " and " +
           std::to_string(b.count) + " elements");
  }
}

void Planner::check_parts(const drb_tensor& whole, std::uint64_t part, const char* side) const {
  const auto n = static_cast<std::uint64_t>(ranks());
  if (whole.count % n == 0 && whole.count / n == part) return;
  refuse(std::string("the ") + side + " has " + std::to_string(whole.count) + " elements, not " +
         std::to_string(part) + " for each of " + std::to_string(n) + " ranks");
}

std::vector<std::uint64_t> Planner::splits(const std::uint64_t* given, const drb_tensor& whole,
                                           const char* side) const {
  const auto n = static_cast<std::size_t>(ranks());
  if (given) {
    std::vector<std::uint64_t> parts(given, given + n);
    std::uint64_t left = whole.count;
    bool fits = true;
    for (const std::uint64_t part : parts) {
      fits = fits && part <= left;
      left -= fits ? part : 0;
    }
    if (!fits || left != 0) {
      refuse(std::string("the ") + side + " splits do not add up to its " +
             std::to_string(whole.count) + " elements");
    }
    return parts;
  }
  if (whole.count % n != 0) {
    refuse(std::string("the ") + side + "'s " + std::to_string(whole.count) +
           " elements cannot be divided among " + std::to_string(n) + " ranks; give splits");
  }
  return std::vector<std::uint64_t>(n, whole.count / n);
}

void Planner::add(Command command) {
  if (command.count > 0) plan_.commands.push_back(command);
}

void Planner::add_reduction(Call call, const void* in, void* out, std::uint64_t count, int root) {
  if (op_.reduce_op < 0 || op_.reduce_op >= kReduceOps) {
    refuse("unknown reduce operation " + std::to_string(op_.reduce_op));
  }
  const auto reduction = reduction_of(kind_, static_cast<ReduceOp>(op_.reduce_op), dtype_);
  if (const auto* no = std::get_if<Unsupported>(&reduction)) {
    throw Failed(DRB_UNSUPPORTED, std::string(to_string(kind_)) + ": " + no->why);
  }
  const auto& native = std::get<NativeReduction>(reduction);
  add({.call = call,
       .in = in,
       .out = out,
       .count = count * native.native.units,
       .type = native.native.type,
       .op = native.op,
       .peer = root,
       .premul = native.premul,
       .factor = op_.premul,
       .factor_on_device = op_.premul_device});
}

void Planner::add_move(Call call, const void* in, void* out, std::uint64_t count, int peer) {
  const auto movement = movement_of(dtype_);
  if (const auto* no = std::get_if<Unsupported>(&movement)) {
    throw Failed(DRB_UNSUPPORTED, std::string(to_string(kind_)) + ": " + no->why);
  }
  const auto& native = std::get<Native>(movement);
  add({.call = call,
       .in = in,
       .out = out,
       .count = count * native.units,
       .type = native.type,
       .peer = peer});
}

void Planner::add_copy(const void* from, void* to, std::uint64_t count) {
  if (from != to) add({.call = Call::copy, .in = from, .out = to, .count = count * element_bytes_});
}

void Planner::broadcast() {
  check_root();
  if (op_.n_inputs > 0) {
    want(1, 1);
    same_count(input(), output());
  } else {
    want(0, 1);
  }
  add_move(Call::broadcast, source().data, output().data, output().count, op_.root);
}

void Planner::reduce() {
  const bool all = kind_ == OpKind::all_reduce;
  if (!all) check_root();
  const bool written = all || at_root();
  if (op_.n_inputs > 0 && (written || op_.n_outputs > 0)) {
    want(1, 1);
    same_count(input(), output());
  } else if (op_.n_inputs > 0) {
    want(1, 0);
  } else {
    want(0, 1);
  }
  if (all) return add_reduction(Call::all_reduce, source().data, output().data, output().count);
  add_reduction(Call::reduce, source().data, written ? output().data : nullptr, source().count,
                op_.root);
}

void Planner::all_gather() {
  if (op_.n_inputs != 1) want(1, 1);
  if (!is_list(op_.n_outputs, "output")) {
    check_parts(output(), input().count, "output");
    return add_move(Call::all_gather, input().data, output().data, input().count);
  }
  same_count(input(), output(static_cast<std::uint32_t>(place_.rank)));
  for (int rank = 0; rank < ranks(); ++rank) {
    const drb_tensor& out = output(static_cast<std::uint32_t>(rank));
    // In place where nothing is sent: the input of the others is not read.
    const void* in = rank == place_.rank ? input().data : out.data;
    add_move(Call::broadcast, in, out.data, out.count, rank);
  }
}

void Planner::gather() {
  check_root();
  if (!at_root()) {
    want(1, 0);
    return add_move(Call::send, input().data, nullptr, input().count, op_.root);
  }
  if (op_.n_inputs != 1) want(1, 1);
  const bool list = is_list(op_.n_outputs, "output");
  if (!list) check_parts(output(), input().count, "output");
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto i = static_cast<std::uint32_t>(rank);
    void* to = list ? output(i).data : at_out(output(), i * input().count);
    if (rank == place_.rank) {
      if (list) same_count(input(), output(i));
      add_copy(input().data, to, input().count);
    } else {
      add_move(Call::recv, nullptr, to, list ? output(i).count : input().count, rank);
    }
  }
}

void Planner::scatter() {
  check_root();
  if (!at_root()) {
    want(0, 1);
    return add_move(Call::recv, nullptr, output().data, output().count, op_.root);
  }
  if (op_.n_outputs != 1) want(1, 1);
  const bool list = is_list(op_.n_inputs, "input");
  if (!list) check_parts(input(), output().count, "input");
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto i = static_cast<std::uint32_t>(rank);
    const void* from = list ? input(i).data : at(input(), i * output().count);
    if (rank == place_.rank) {
      if (list) same_count(output(), input(i));
      add_copy(from, output().data, output().count);
    } else {
      add_move(Call::send, from, nullptr, list ? input(i).count : output().count, rank);
    }
  }
}

void Planner::reduce_scatter() {
  if (op_.n_outputs != 1) want(1, 1);
  if (!is_list(op_.n_inputs, "input")) {
    check_parts(input(), output().count, "input");
    return add_reduction(Call::reduce_scatter, input().data, output().data, output().count);
  }
  same_count(output(), input(static_cast<std::uint32_t>(place_.rank)));
  for (int rank = 0; rank < ranks(); ++rank) {
    const drb_tensor& in = input(static_cast<std::uint32_t>(rank));
    add_reduction(Call::reduce, in.data, rank == place_.rank ? output().data : nullptr, in.count,
                  rank);
  }
}

void Planner::all_to_all() {
  const bool list = is_list(op_.n_inputs, "input");
  if (list != is_list(op_.n_outputs, "output")) refuse("one side is a list, and the other is not");
  std::vector<std::uint64_t> to(static_cast<std::size_t>(ranks()));
  std::vector<std::uint64_t> from = to;
  if (list) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = op_.inputs[i].count;
      from[i] = op_.outputs[i].count;
    }
  } else {
    if (input().data == output().data && input().count > 0) refuse("it cannot be done in place");
    to = splits(op_.input_splits, input(), "input");
    from = splits(op_.output_splits, output(), "output");
  }
  const auto me = static_cast<std::size_t>(place_.rank);
  if (to[me] != from[me]) {
    refuse("this rank sends itself " + std::to_string(to[me]) + " elements and expects " +
           std::to_string(from[me]));
  }
  std::uint64_t in_at = 0;
  std::uint64_t out_at = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const void* in = list ? op_.inputs[i].data : at(input(), in_at);
    void* out = list ? op_.outputs[i].data : at_out(output(), out_at);
    if (i == me) {
      add_copy(in, out, to[i]);
    } else {
      add_move(Call::send, in, nullptr, to[i], static_cast<int>(i));
      add_move(Call::recv, nullptr, out, from[i], static_cast<int>(i));
    }
    in_at += to[i];
    out_at += from[i];
  }
}

void Planner::run() {
  check_tensors();
  switch (kind_) {
    case OpKind::broadcast:
      broadcast();
      break;
    case OpKind::all_reduce:
    case OpKind::reduce:
      reduce();
      break;
    case OpKind::all_gather:
      all_gather();
      break;
    case OpKind::gather:
      gather();
      break;
    case OpKind::scatter:
      scatter();
      break;
    case OpKind::reduce_scatter:
      reduce_scatter();
      break;
    case OpKind::all_to_all:
      all_to_all();
      break;
    case OpKind::send:
      want(1, 0);
      check_peer();
      add_move(Call::send, input().data, nullptr, input().count, op_.peer);
      break;
    case OpKind::recv:
      want(0, 1);
      check_peer();
      add_move(Call::recv, nullptr, output().data, output().count, op_.peer);
      break;
    case OpKind::barrier:
      want(0, 0);
      plan_.barrier = true;
      add({.call = Call::all_reduce, .count = 1, .on_scratch = true});
      break;
  }
  const bool rooted = kind_ == OpKind::broadcast || kind_ == OpKind::reduce ||
                      kind_ == OpKind::gather || kind_ == OpKind::scatter;
  const bool paired = kind_ == OpKind::send || kind_ == OpKind::recv;
  if (plan_.label.count == 0 || largest_ > plan_.label.count) plan_.label.count = largest_;
  plan_.label.dtype = dtype_;
  plan_.label.kind = kind_;
  plan_.label.peer = rooted ? op_.root : paired ? op_.peer : -1;
}

bool is_point_to_point(const drb_op& op) {
  return op.kind == DRB_SEND || op.kind == DRB_RECV;
}

}  // namespace

Plan make_plan(std::span<const drb_op* const> ops, const Place& place) {
  Plan plan;
  plan.label.coalesced = static_cast<std::uint32_t>(ops.size());
  plan.point_to_point = is_point_to_point(*ops.front());
  for (const drb_op* op : ops) {
    if (op->size < sizeof(drb_op)) {
      throw Failed(DRB_ARGUMENT, "drb_op of " + std::to_string(op->size) + " bytes, not " +
                                     std::to_string(sizeof(drb_op)));
    }
    if (op->kind < 0 || op->kind >= kOpKinds) {
      throw Failed(DRB_UNSUPPORTED, "nccl has no operation " + std::to_string(op->kind));
    }
    if (is_point_to_point(*op) != plan.point_to_point) {
      throw Failed(DRB_ARGUMENT,
                   "sends and receives cannot be coalesced with collectives: issue them apart");
    }
    if (op->kind == DRB_BARRIER && ops.size() > 1) {
      throw Failed(DRB_ARGUMENT, "a barrier cannot be coalesced with other operations");
    }
    Planner(*op, place, plan).run();
  }
  return plan;
}

}  // namespace distrun::nccl
