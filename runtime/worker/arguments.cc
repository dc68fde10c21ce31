#include "runtime/worker/arguments.h"

#include "runtime/worker/reduction.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

namespace distrun {
namespace {

[[noreturn]] void refuse(OpType op, const std::string& what) {
  throw DistArgumentError(std::string(to_string(op)) + ": " + what);
}

const std::byte* bytes(const ConstTensor& tensor) {
  return static_cast<const std::byte*>(tensor.data());
}
std::byte* bytes(const Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data());
}

void check(OpType op, const ConstTensor& tensor, int size) {
  const std::size_t width = size_of(tensor.dtype());
  const std::size_t align = tensor.dtype() == DType::complex64    ? 4
                            : tensor.dtype() == DType::complex128 ? 8
                                                                  : width;
  if (tensor.count() >
      std::numeric_limits<std::size_t>::max() / width / static_cast<std::size_t>(size))
    refuse(op, "a count that no memory can hold: " + std::to_string(tensor.count()));
  if (tensor.data() == nullptr && tensor.count() > 0)
    refuse(op, "a null tensor of " + std::to_string(tensor.count()) + " elements");
  if (reinterpret_cast<std::uintptr_t>(tensor.data()) % align != 0)
    refuse(op, "the tensor is not aligned for " + std::string(to_string(tensor.dtype())));
}

void check_same(OpType op, const ConstTensor& a, const ConstTensor& b) {
  if (a.dtype() != b.dtype())
    refuse(op, "tensors of different types: " + std::string(to_string(a.dtype())) + " and " +
                   std::string(to_string(b.dtype())));
  if (a.device() != b.device())
    refuse(op, "tensors on different devices: " + to_string(a.device()) + " and " +
                   to_string(b.device()));
}

void check_reduction(OpType op, DType dtype, Reduction reduction) {
  if (const std::string why = why_no_reduction(dtype, reduction.op()); !why.empty())
    refuse(op, why);
}

void check_root(OpType op, int root, int size) {
  if (root < 0 || root >= size)
    refuse(op, "root " + std::to_string(root) + " is not a rank of this group of " +
                   std::to_string(size));
}

void check_list(OpType op, std::size_t tensors, int size) {
  if (tensors != static_cast<std::size_t>(size))
    refuse(op, std::to_string(tensors) + " tensors, and the group has " + std::to_string(size) +
                   " ranks");
}

void check_own_part(OpType op, std::size_t part, std::size_t own, const char* list) {
  if (part != own)
    refuse(op, std::string("this rank's part of ") + list + " holds " + std::to_string(part) +
                   " elements, and its own tensor " + std::to_string(own));
}

// Parts of one tensor, by numbers of rows; none: all alike.
std::vector<std::uint64_t> splits_of(OpType op, const ConstTensor& tensor, const char* name,
                                     std::span<const std::size_t> splits, int size) {
  const auto p = static_cast<std::size_t>(size);
  const std::size_t rows =
      tensor.shape().sizes().empty() ? 1 : static_cast<std::size_t>(tensor.shape().sizes()[0]);
  const std::size_t row = rows == 0 ? 0 : tensor.count() / rows;
  if (splits.empty()) {
    if (rows % p != 0)
      refuse(op, std::string(name) + " of " + std::to_string(rows) +
                     " rows cannot be split among " + std::to_string(size) + " ranks; give splits");
    return std::vector<std::uint64_t>(p, tensor.count() / p);
  }
  check_list(op, splits.size(), size);
  std::vector<std::uint64_t> counts;
  std::size_t total = 0;
  for (const std::size_t split : splits) {
    if (split > rows - std::min(total, rows))
      refuse(op, std::string(name) + ": its splits add up to more than its " +
                     std::to_string(rows) + " rows");
    total += split;
    counts.push_back(split * row);
  }
  if (total != rows)
    refuse(op, std::string(name) + ": its splits add up to " + std::to_string(total) + " of " +
                   std::to_string(rows) + " rows");
  return counts;
}

Call of(OpType op, const ConstTensor& data) {
  Call call;
  call.op = op;
  call.dtype = data.dtype();
  call.device = data.device();
  call.count = data.count();
  return call;
}

Call in_place(OpType op, const Tensor& data, int size) {
  check(op, data, size);
  Call call = of(op, data);
  call.in = call.out = bytes(data);
  return call;
}

void set(Call& call, Reduction reduction) {
  // A device's backend has its own table.
  if (is_host_memory(call.device)) check_reduction(call.op, call.dtype, reduction);
  call.reduce = reduction.op();
  call.factor = reduction.factor();
}

void set_outs(Call& call, std::span<const Tensor> outs, const ConstTensor& like, int size) {
  check_list(call.op, outs.size(), size);
  for (const Tensor& out : outs) {
    check(call.op, out, size);
    check_same(call.op, out, like);
    call.outs.push_back({bytes(out), out.count()});
  }
}

void set_ins(Call& call, std::span<const ConstTensor> ins, const ConstTensor& like, int size) {
  check_list(call.op, ins.size(), size);
  for (const ConstTensor& in : ins) {
    check(call.op, in, size);
    check_same(call.op, in, like);
    call.ins.push_back({bytes(in), in.count()});
  }
}

// `whole` in equal parts of `part`.
std::size_t even_part(OpType op, const ConstTensor& whole, std::size_t part, int size) {
  if (whole.count() != part * static_cast<std::size_t>(size))
    refuse(op, "a tensor of " + std::to_string(whole.count()) + " elements, not " +
                   std::to_string(size) + " times " + std::to_string(part));
  return part * size_of(whole.dtype());
}

}  // namespace

Call Arguments::broadcast(const Tensor& data, int root) const {
  Call call = in_place(OpType::broadcast, data, size_);
  check_root(call.op, root, size_);
  call.root = root;
  return call;
}

Call Arguments::all_reduce(const Tensor& data, Reduction reduction) const {
  Call call = in_place(OpType::all_reduce, data, size_);
  set(call, reduction);
  return call;
}

Call Arguments::reduce(const Tensor& data, int root, Reduction reduction) const {
  Call call = in_place(OpType::reduce, data, size_);
  check_root(call.op, root, size_);
  call.root = root;
  set(call, reduction);
  return call;
}

Call Arguments::all_gather_into_tensor(const Tensor& out, const ConstTensor& in) const {
  Call call = of(OpType::all_gather, in);
  check(call.op, in, size_);
  check(call.op, out, size_);
  check_same(call.op, out, in);
  const std::size_t part = even_part(call.op, out, in.count(), size_);
  call.in = bytes(in);
  for (std::size_t i = 0; i < static_cast<std::size_t>(size_); ++i)
    call.outs.push_back({bytes(out) + i * part, in.count()});
  call.whole = true;
  return call;
}

Call Arguments::all_gather(std::span<const Tensor> outs, const ConstTensor& in) const {
  Call call = of(OpType::all_gather, in);
  check(call.op, in, size_);
  call.in = bytes(in);
  set_outs(call, outs, in, size_);
  check_own_part(call.op, outs[static_cast<std::size_t>(rank_)].count(), in.count(), "the outputs");
  return call;
}

Call Arguments::gather(const ConstTensor& in, std::span<const Tensor> outs, int root) const {
  Call call = of(OpType::gather, in);
  check(call.op, in, size_);
  check_root(call.op, root, size_);
  call.root = root;
  call.in = bytes(in);
  if (rank_ != root) {
    if (!outs.empty()) refuse(call.op, "outputs on a rank that is not the root");
    return call;
  }
  set_outs(call, outs, in, size_);
  check_own_part(call.op, outs[static_cast<std::size_t>(rank_)].count(), in.count(), "the outputs");
  return call;
}

Call Arguments::scatter(const Tensor& out, std::span<const ConstTensor> ins, int root) const {
  Call call = of(OpType::scatter, out);
  check(call.op, out, size_);
  check_root(call.op, root, size_);
  call.root = root;
  call.out = bytes(out);
  if (rank_ != root) {
    if (!ins.empty()) refuse(call.op, "inputs on a rank that is not the root");
    return call;
  }
  set_ins(call, ins, out, size_);
  check_own_part(call.op, ins[static_cast<std::size_t>(rank_)].count(), out.count(), "the inputs");
  return call;
}

Call Arguments::reduce_scatter_tensor(const Tensor& out, const ConstTensor& in,
                                      Reduction reduction) const {
  Call call = of(OpType::reduce_scatter, out);
  check(call.op, in, size_);
  check(call.op, out, size_);
  check_same(call.op, out, in);
  set(call, reduction);
  const std::size_t part = even_part(call.op, in, out.count(), size_);
  call.out = bytes(out);
  for (std::size_t i = 0; i < static_cast<std::size_t>(size_); ++i)
    call.ins.push_back({bytes(in) + i * part, out.count()});
  call.whole = true;
  return call;
}

Call Arguments::reduce_scatter(const Tensor& out, std::span<const ConstTensor> ins,
                               Reduction reduction) const {
  Call call = of(OpType::reduce_scatter, out);
  check(call.op, out, size_);
  set(call, reduction);
  call.out = bytes(out);
  set_ins(call, ins, out, size_);
  check_own_part(call.op, ins[static_cast<std::size_t>(rank_)].count(), out.count(), "the inputs");
  return call;
}

namespace {

// Each input may be the output of the same rank.  Others may be written to before they are read.
void check_overlap(const Call& call) {
  const std::size_t width = size_of(call.dtype);
  const auto before = [](const ConstPart& a, const ConstPart& b) {
    return std::less<>()(a.data, b.data);
  };
  std::vector<ConstPart> ins = call.ins;
  std::erase_if(ins, [](const ConstPart& part) { return part.count == 0; });
  std::sort(ins.begin(), ins.end(), before);
  for (std::size_t i = 0; i < call.outs.size(); ++i) {
    const Part& out = call.outs[i];
    const ConstPart end{out.data + out.count * width, 0};
    const auto same = [&](const ConstPart& in) {
      return in.data == out.data && in.count == out.count && in == call.ins[i];
    };
    // Of those that begin before its end, the last one reaches furthest, if they do not overlap.
    for (auto in = std::lower_bound(ins.begin(), ins.end(), end, before);
         out.count > 0 && in != ins.begin();) {
      --in;
      if (!std::less<>()(out.data, in->data + in->count * width)) break;
      if (!same(*in))
        refuse(call.op,
               "an input lies in the memory of another rank's output; give it memory of "
               "its own");
    }
  }
}

}  // namespace

Call Arguments::all_to_all(std::span<const Tensor> outs, std::span<const ConstTensor> ins) const {
  Call call;
  call.op = OpType::all_to_all;
  check_list(call.op, outs.size(), size_);
  call.dtype = outs.front().dtype();
  call.device = outs.front().device();
  set_outs(call, outs, outs.front(), size_);
  set_ins(call, ins, outs.front(), size_);
  check_own_part(call.op, outs[static_cast<std::size_t>(rank_)].count(),
                 ins[static_cast<std::size_t>(rank_)].count(), "the outputs");
  check_overlap(call);
  return call;
}

Call Arguments::all_to_all_single(const Tensor& out, const ConstTensor& in,
                                  std::span<const std::size_t> out_splits,
                                  std::span<const std::size_t> in_splits) const {
  Call call;
  call.op = OpType::all_to_all;
  check(call.op, in, size_);
  check(call.op, out, size_);
  check_same(call.op, out, in);
  call.dtype = out.dtype();
  call.device = out.device();
  const std::size_t width = size_of(out.dtype());
  std::byte* to = bytes(out);
  for (const std::uint64_t count : splits_of(call.op, out, "the output", out_splits, size_)) {
    call.outs.push_back({to, count});
    to += count * width;
  }
  const std::byte* from = bytes(in);
  for (const std::uint64_t count : splits_of(call.op, in, "the input", in_splits, size_)) {
    call.ins.push_back({from, count});
    from += count * width;
  }
  const auto own = static_cast<std::size_t>(rank_);
  check_own_part(call.op, call.outs[own].count, call.ins[own].count, "the output");
  check_overlap(call);
  call.whole = true;
  return call;
}

namespace {

P2PCall message(OpType op, const ConstTensor& data, int tag, int size) {
  check(op, data, size);
  if (tag < 0) refuse(op, "tag " + std::to_string(tag) + " is negative");
  P2PCall call;
  call.op = op;
  call.dtype = data.dtype();
  call.device = data.device();
  call.count = data.count();
  call.tag = tag;
  return call;
}

void check_peer(OpType op, int peer, int rank, int size) {
  if (peer < 0 || peer >= size)
    refuse(op, "rank " + std::to_string(peer) + " is not in this group of " + std::to_string(size));
  if (peer == rank) refuse(op, "this rank itself (" + std::to_string(rank) + ") as the other side");
}

}  // namespace

P2PCall Arguments::send(const ConstTensor& data, int to, int tag) const {
  P2PCall call = message(OpType::send, data, tag, size_);
  check_peer(call.op, to, rank_, size_);
  call.peer = to;
  call.in = bytes(data);
  return call;
}

P2PCall Arguments::recv(const Tensor& data, std::optional<int> from, int tag) const {
  P2PCall call = message(OpType::recv, data, tag, size_);
  if (from) check_peer(call.op, *from, rank_, size_);
  if (size_ == 1) refuse(call.op, "there is no other rank in this group");
  call.peer = from.value_or(kAnySource);
  call.out = bytes(data);
  return call;
}

}  // namespace distrun
