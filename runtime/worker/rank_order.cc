#include "runtime/worker/rank_order.h"

#include "runtime/worker/reduction.h"

#include <algorithm>
#include <utility>

namespace distrun {
namespace {

bool is_reduction(OpType op) {
  return op == OpType::all_reduce || op == OpType::reduce || op == OpType::reduce_scatter;
}

std::byte* room(std::vector<std::max_align_t>& memory, std::size_t bytes) {
  memory.resize((bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
  return reinterpret_cast<std::byte*>(memory.data());
}

// The call that moves data for `call`.  What it reduces by stays in it: ranks that differ in that
// are told so.
Call moving(OpType op, const Call& call) {
  Call move;
  move.op = op;
  move.reduce = call.reduce;
  move.dtype = call.dtype;
  move.layout = call.layout;
  move.sequence = call.sequence;
  return move;
}

}  // namespace

RankOrder::RankOrder(std::unique_ptr<CallRunner> mover, int rank, int size)
    : mover_(std::move(mover)), rank_(rank), size_(size) {}

void RankOrder::run(const Call& call, TimePoint deadline) {
  if (!is_reduction(call.op)) return mover_->run(call, deadline);
  if (call.op == OpType::reduce_scatter) return reduce_own_part(call, call.ins, call.out, deadline);
  all_reduce(call, deadline);
}

void RankOrder::reduce_own_part(const Call& call, const std::vector<ConstPart>& ins, std::byte* out,
                                TimePoint deadline) {
  const std::size_t width = size_of(call.dtype);
  const auto p = static_cast<std::size_t>(size_);
  const std::uint64_t own = ins[static_cast<std::size_t>(rank_)].count;
  Call move = moving(OpType::all_to_all, call);
  move.ins = ins;
  if (call.reduce == ReduceOp::premul_sum) {
    std::uint64_t total = 0;
    for (const ConstPart& part : ins) total += part.count;
    std::byte* to = room(prepared_, total * width);
    for (ConstPart& part : move.ins) {
      prepare(call.dtype, call.reduce, call.factor, to, part.data, part.count);
      part.data = to;
      to += part.count * width;
    }
  }
  std::byte* const received = room(received_, own * width * p);
  std::vector<const void*> inputs;
  for (std::size_t rank = 0; rank < p; ++rank) {
    move.outs.push_back({received + rank * own * width, own});
    inputs.push_back(move.outs.back().data);
  }
  mover_->run(move, deadline);
  combine_all(call.dtype, call.reduce, out, inputs, own);
  finish(call.dtype, call.reduce, out, own, size_);
}

// At the root, or everywhere.
void RankOrder::all_reduce(const Call& call, TimePoint deadline) {
  const std::size_t width = size_of(call.dtype);
  const auto p = static_cast<std::uint64_t>(size_);
  std::vector<ConstPart> ins;
  std::vector<Part> outs;
  for (std::uint64_t rank = 0; rank < p; ++rank) {
    const std::uint64_t begin = call.count / p * rank + std::min(rank, call.count % p);
    const std::uint64_t count = call.count / p + (rank < call.count % p ? 1 : 0);
    ins.push_back({call.in + begin * width, count});
    outs.push_back({call.out + begin * width, count});
  }
  const Part& mine = outs[static_cast<std::size_t>(rank_)];
  std::byte* const own = room(own_, mine.count * width);
  reduce_own_part(call, ins, own, deadline);
  const bool to_all = call.op == OpType::all_reduce;
  Call move = moving(to_all ? OpType::all_gather : OpType::gather, call);
  move.root = to_all ? 0 : call.root;
  move.count = mine.count;
  move.in = own;
  if (to_all || call.root == rank_) move.outs = outs;
  mover_->run(move, deadline);
}

}  // namespace distrun
