#include "runtime/worker/flight_log.h"

#include <algorithm>
#include <array>
#include <limits>

namespace distrun {
namespace {

constexpr std::size_t kOps = static_cast<std::size_t>(OpType::recv) + 1;

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

// What is worth telling of an operation.
struct Traits {
  bool data = false;
  bool reduces = false;
  bool rooted = false;
  bool one_size = false;  // on all ranks
};

constexpr auto kTraits = [] {
  std::array<Traits, kOps> all;
  const auto set = [&all](OpType op, Traits traits) { all[static_cast<std::size_t>(op)] = traits; };
  set(OpType::broadcast, {true, false, true, true});
  set(OpType::all_reduce, {true, true, false, true});
  set(OpType::reduce, {true, true, true, true});
  set(OpType::all_gather, {true, false, false, false});
  set(OpType::gather, {true, false, true, false});
  set(OpType::scatter, {true, false, true, false});
  set(OpType::reduce_scatter, {true, true, false, false});
  set(OpType::all_to_all, {true, false, false, false});
  return all;  // a barrier has none of it
}();

template <class Parts>
std::uint64_t sum_of(const Parts& parts) {
  std::uint64_t sum = 0;
  for (const auto& part : parts) sum += part.count;
  return sum;
}

}  // namespace

FlightLog::FlightLog(std::string_view name, std::string_view description, std::string_view backend,
                     int rank, int size, const std::vector<int>& ranks) {
  if (!recorder_->records()) return;
  recorder_->name_codes({names<OpType, OpType::recv>(), names<ReduceOp, ReduceOp::premul_sum>(),
                         names<DType, DType::complex128>()});
  recorder::GroupInfo group;
  group.name = name;
  group.description = description;
  group.backend = backend;
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
  const auto op = static_cast<std::size_t>(call.op);
  const Traits& traits = kTraits[std::min(op, kOps - 1)];
  recorder::OpInfo info;
  info.group = group_;
  info.sequence = call.sequence;
  info.op = static_cast<std::uint8_t>(call.op);
  info.timeout_ms = in_ms(timeout);
  if (!traits.data) return info;
  info.dtype = static_cast<std::uint8_t>(call.dtype);
  info.count_in = call.ins.empty() ? call.count : sum_of(call.ins);
  info.count_out = call.outs.empty() ? call.count : sum_of(call.outs);
  if (traits.reduces) info.reduce = static_cast<std::uint8_t>(call.reduce);
  if (traits.rooted) info.peer = call.root;
  if (traits.one_size) info.flags = recorder::kCountsAgree;
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
