#include "runtime/worker/flight_log.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>

namespace distrun {
namespace {

template <class Enum, Enum Last>
auto names() {
  std::array<std::string_view, static_cast<std::size_t>(Last) + 1> all;
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = to_string(static_cast<Enum>(i));
  return all;
}

std::uint32_t in_ms(Timeout timeout) {
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(timeout.count(), 0, kMost));
}

template <class Parts>
std::uint64_t sum_of(const Parts& parts) {
  std::uint64_t sum = 0;
  for (const auto& part : parts) sum += part.count;
  return sum;
}

}  // namespace

FlightLog::FlightLog(std::string_view name, std::string_view description, int rank, int size,
                     const std::vector<int>& ranks) {
  if (!recorder_->records()) return;
  recorder_->name_codes({names<OpType, OpType::recv>(), names<ReduceOp, ReduceOp::premul_sum>(),
                         names<DType, DType::complex128>()});
  recorder::GroupInfo group;
  group.name = name;
  group.description = description;
  group.backend = "gloo";
  group.rank = rank;
  group.size = size;
  group.ranks = ranks;
  group_ = recorder_->add_group(group);
}

FlightLog::Entry FlightLog::scheduled(const Call& call, Timeout timeout) {
  return recorder_->records() ? recorder_->scheduled(info_of(call, timeout)) : Entry{};
}

FlightLog::Entry FlightLog::began(const Call& call, Timeout timeout) {
  return recorder_->records() ? recorder_->began(info_of(call, timeout)) : Entry{};
}

recorder::OpInfo FlightLog::info_of(const Call& call, Timeout timeout) const {
  recorder::OpInfo info;
  info.group = group_;
  info.sequence = call.sequence;
  info.op = static_cast<std::uint8_t>(call.op);
  info.timeout_ms = in_ms(timeout);
  if (call.op == OpType::barrier) return info;
  info.dtype = static_cast<std::uint8_t>(call.dtype);
  info.count_in = call.ins.empty() ? call.count : sum_of(call.ins);
  info.count_out = call.outs.empty() ? call.count : sum_of(call.outs);
  const auto is = [&call](std::initializer_list<OpType> ops) {
    return std::find(ops.begin(), ops.end(), call.op) != ops.end();
  };
  if (is({OpType::all_reduce, OpType::reduce, OpType::reduce_scatter}))
    info.reduce = static_cast<std::uint8_t>(call.reduce);
  if (is({OpType::broadcast, OpType::reduce, OpType::gather, OpType::scatter}))
    info.peer = call.root;
  // Those of the others may differ between ranks.
  if (is({OpType::broadcast, OpType::all_reduce, OpType::reduce}))
    info.flags = recorder::kCountsAgree;
  return info;
}

FlightLog::Entry FlightLog::scheduled(const P2PCall& call, Timeout timeout) {
  if (!recorder_->records()) return {};
  recorder::OpInfo info;
  info.group = group_;
  info.sequence = next_p2p_.fetch_add(1, std::memory_order_relaxed);
  info.op = static_cast<std::uint8_t>(call.op);
  info.dtype = static_cast<std::uint8_t>(call.dtype);
  info.flags = recorder::kPointToPoint;
  if (call.op == OpType::recv) info.flags |= recorder::kReceive;
  info.count_in = info.count_out = call.count;
  info.peer = call.peer;
  info.tag = static_cast<std::uint32_t>(call.tag);
  info.timeout_ms = in_ms(timeout);
  return recorder_->scheduled(info);
}

}  // namespace distrun
