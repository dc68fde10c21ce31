#include "runtime/worker/two_level.h"

#include "runtime/base/check.h"
#include "runtime/worker/reduction.h"

#include <algorithm>
#include <utility>

namespace distrun {
namespace {

constexpr Channel kBetweenHosts = 1;
constexpr int kNoneOfThem = -1;

int place_of(int rank, const std::vector<int>& ranks) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

// What goes wrong in the whole names the ranks of a part as that does.
template <class Step>
auto as_part(const std::vector<int>& ranks, Step step) {
  try {
    return step();
  } catch (const PeerLost& lost) {
    const int place = place_of(lost.peer, ranks);
    throw PeerLost(place < static_cast<int>(ranks.size()) ? place : kNoneOfThem, lost.what());
  }
}

// Of a transfer by the transport that it is a part of.
class SubTransfer final : public Transfer {
 public:
  SubTransfer(std::unique_ptr<Transfer> whole, const std::vector<int>& ranks)
      : whole_(std::move(whole)), ranks_(ranks) {}
  bool wait(TimePoint deadline) override {
    return as_part(ranks_, [&] { return whole_->wait(deadline); });
  }
  int peer() const override { return place_of(whole_->peer(), ranks_); }

 private:
  std::unique_ptr<Transfer> whole_;
  const std::vector<int>& ranks_;
};

std::vector<int> named(const std::vector<int>& part, const std::vector<int>& ranks) {
  std::vector<int> names;
  names.reserve(part.size());
  for (const int index : part) names.push_back(ranks[static_cast<std::size_t>(index)]);
  return names;
}

// What goes wrong in a part names ranks of that part.
template <class Step>
void as_whole(const std::vector<int>& ranks, Step step) {
  try {
    step();
  } catch (const PeerLost& lost) {
    if (lost.peer < 0) throw;
    throw PeerLost(ranks[static_cast<std::size_t>(lost.peer)], lost.what());
  } catch (const PeersLate& late) {
    throw PeersLate(named(late.peers, ranks), true);  // perhaps for another part
  }
}

// A part of `call`, with no memory yet.  What is averaged is divided when all of it is added up.
Call step_of(const Call& call, OpType op) {
  Call step;
  step.op = op;
  step.reduce = call.reduce == ReduceOp::avg ? ReduceOp::sum : call.reduce;
  step.dtype = call.dtype;
  step.factor = call.factor;
  step.sequence = call.sequence;
  return step;
}

// The same after every rank has put its data in, once.
Call later_step_of(const Call& call, OpType op) {
  Call step = step_of(call, op);
  if (step.reduce == ReduceOp::premul_sum) step.reduce = ReduceOp::sum;
  return step;
}

}  // namespace

SubTransport::SubTransport(Transport& whole, std::vector<int> ranks, Channel channel)
    : whole_(whole), ranks_(std::move(ranks)), channel_(channel) {
  rank_ = place_of(whole.rank(), ranks_);
  DISTRUN_CHECK(rank_ < size());
}

std::unique_ptr<Transfer> SubTransport::send(int peer, std::span<const std::byte> message,
                                             Channel channel) {
  const int to = ranks_[static_cast<std::size_t>(peer)];
  return as_part(ranks_, [&] {
    return std::make_unique<SubTransfer>(whole_.send(to, message, channel_ + channel), ranks_);
  });
}

std::unique_ptr<Transfer> SubTransport::receive(int peer, std::span<std::byte> room,
                                                Channel channel) {
  const int from = ranks_[static_cast<std::size_t>(peer)];
  return as_part(ranks_, [&] {
    return std::make_unique<SubTransfer>(whole_.receive(from, room, channel_ + channel), ranks_);
  });
}

std::unique_ptr<Transfer> SubTransport::receive_any(std::span<std::byte> room, Channel channel) {
  return as_part(ranks_, [&] {
    return std::make_unique<SubTransfer>(whole_.receive_any(room, channel_ + channel), ranks_);
  });
}

TwoLevel::TwoLevel(Collectives& flat, Transport& transport, const std::vector<int>& host_of,
                   std::unique_ptr<CallRunner> host)
    : flat_(flat),
      rank_(transport.rank()),
      size_(transport.size()),
      host_of_(host_of),
      host_(std::move(host)) {
  for (int rank = 0; rank < size_; ++rank) {
    const auto its = static_cast<std::size_t>(host_of_[static_cast<std::size_t>(rank)]);
    if (its == on_host_.size()) on_host_.emplace_back();
    on_host_[its].push_back(rank);
  }
  locals_ = on_host_[static_cast<std::size_t>(host_of_[static_cast<std::size_t>(rank_)])];
  local_rank_ = place_of(rank_, locals_);
  shards_ = locals_.size() > 1 &&
            std::all_of(on_host_.begin(), on_host_.end(),
                        [&](const Ranks& ranks) { return ranks.size() == locals_.size(); });
  for (const Ranks& ranks : on_host_)
    peers_.push_back(shards_ ? ranks[static_cast<std::size_t>(local_rank_)] : ranks.front());
  if (on_host_.size() == 1 || (!shards_ && !leads())) return;
  between_ = std::make_unique<SubTransport>(transport, peers_, kBetweenHosts);
  hosts_ = std::make_unique<Collectives>(*between_,
                                         [this](const Call& call, const std::vector<int>& part) {
                                           flat_.waiting()(call, named(part, peers_));
                                         });
}

void TwoLevel::close() {
  if (host_) host_->close();
  flat_.close();
}

void TwoLevel::run(const Call& call, TimePoint deadline) {
  if (flat_.agree(call, deadline)) return;
  if (on_host_.size() == 1) return in_host(call, deadline);
  if (call.op == OpType::all_reduce)
    return shards_ ? all_reduce_shards(call, deadline) : all_reduce(call, deadline);
  if (call.op == OpType::broadcast) return broadcast(call, deadline);
  if (shards_ && call.op == OpType::reduce) return reduce(call, deadline);
  if (shards_ && call.op == OpType::all_gather) return all_gather(call, deadline);
  if (shards_ && call.op == OpType::reduce_scatter) return reduce_scatter(call, deadline);
  flat_.move(call, deadline);
}

// Of `out`, one for each rank of a host.
std::vector<Part> TwoLevel::shares_of(const Call& call) const {
  const std::size_t width = size_of(call.dtype);
  const std::size_t ranks = locals_.size();
  std::vector<Part> shares;
  std::uint64_t at = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t count = call.count / ranks + (rank < call.count % ranks ? 1 : 0);
    shares.push_back({call.out + at * width, count});
    at += count;
  }
  return shares;
}

std::byte* TwoLevel::room(std::size_t bytes) {
  scratch_.resize(std::max<std::size_t>(bytes, 1));  // memory, even if for nothing
  return scratch_.data();
}

void TwoLevel::in_host(Call call, TimePoint deadline) {
  call.sequence = steps_++;  // the same on all ranks of the host
  as_whole(locals_, [&] { host_->run(call, deadline); });
}

void TwoLevel::among_hosts(const Call& call, TimePoint deadline) {
  if (hosts_) as_whole(peers_, [&] { hosts_->move(call, deadline); });
}

// The network is used by all ranks of a host at once, and each reduces a part only.
void TwoLevel::all_reduce_shards(const Call& call, TimePoint deadline) {
  Call step = call;
  step.root = 0;
  std::vector<Part> shards = shares_of(call);
  for (const Part& shard : shards)
    step.ins.push_back({call.in + (shard.data - call.out), shard.count});
  const Part mine = shards[static_cast<std::size_t>(local_rank_)];
  if (step.reduce == ReduceOp::avg) step.reduce = ReduceOp::sum;
  step.op = OpType::reduce_scatter;
  step.count = mine.count;
  step.in = nullptr;
  step.out = mine.data;
  in_host(step, deadline);

  if (step.reduce == ReduceOp::premul_sum) step.reduce = ReduceOp::sum;  // it is done
  step.op = OpType::all_reduce;
  step.ins.clear();
  step.in = mine.data;
  if (mine.count > 0) among_hosts(step, deadline);
  finish(call.dtype, call.reduce, mine.data, mine.count, size_);

  step.op = OpType::all_gather;
  step.out = nullptr;
  step.outs = std::move(shards);
  in_host(step, deadline);
}

void TwoLevel::all_reduce(const Call& call, TimePoint deadline) {
  Call step = call;
  step.root = 0;
  if (step.reduce == ReduceOp::avg) step.reduce = ReduceOp::sum;
  if (host_) {
    step.op = OpType::reduce;
    in_host(step, deadline);
  } else {
    prepare(call.dtype, step.reduce, call.factor, call.out, call.in, call.count);
  }
  if (step.reduce == ReduceOp::premul_sum) step.reduce = ReduceOp::sum;  // it is done
  if (leads()) {
    step.op = OpType::all_reduce;
    among_hosts(step, deadline);
    finish(call.dtype, call.reduce, call.out, call.count, size_);
  }
  step.op = OpType::broadcast;
  if (host_) in_host(step, deadline);
}

void TwoLevel::broadcast(const Call& call, TimePoint deadline) {
  const auto host_of_root = host_of_[static_cast<std::size_t>(call.root)];
  const bool here = std::find(locals_.begin(), locals_.end(), call.root) != locals_.end();
  Call step = call;
  if (here && host_) {
    const auto root = std::find(locals_.begin(), locals_.end(), call.root);
    step.root = static_cast<int>(root - locals_.begin());
    in_host(step, deadline);
  }
  step.root = host_of_root;
  if (leads()) among_hosts(step, deadline);
  step.root = 0;
  if (!here && host_) in_host(step, deadline);
}

// Each rank of a host reduces its share, which the root collects from those of its host.
void TwoLevel::reduce(const Call& call, TimePoint deadline) {
  const std::size_t width = size_of(call.dtype);
  const int root_host = host_of_[static_cast<std::size_t>(call.root)];
  const bool at_root = rank_ == call.root;
  const bool here = root_host == host_of_[static_cast<std::size_t>(rank_)];
  Call step = step_of(call, OpType::reduce_scatter);
  std::vector<Part> shares = shares_of(call);
  for (const Part& share : shares)
    step.ins.push_back({call.in + (share.data - call.out), share.count});
  // The data of all but the root stays as it is.
  Part mine = shares[static_cast<std::size_t>(local_rank_)];
  if (!at_root) mine.data = room(mine.count * width);
  step.out = mine.data;
  step.count = mine.count;
  in_host(step, deadline);

  if (mine.count > 0) {
    step = later_step_of(call, OpType::reduce);
    step.root = root_host;
    step.in = step.out = mine.data;
    step.count = mine.count;
    among_hosts(step, deadline);
  }
  if (!here) return;
  finish(call.dtype, call.reduce, mine.data, mine.count, size_);

  step = later_step_of(call, OpType::gather);
  step.root = place_of(call.root, locals_);
  step.in = mine.data;
  step.count = mine.count;
  if (at_root) step.outs = std::move(shares);
  in_host(step, deadline);
}

// All ranks know the sizes of all parts: the agreement has compared them.
void TwoLevel::all_gather(const Call& call, TimePoint deadline) {
  const auto step_among = [&](const Ranks& ranks) {
    Call step = step_of(call, OpType::all_gather);
    for (const int rank : ranks) step.outs.push_back(call.outs[static_cast<std::size_t>(rank)]);
    return step;
  };
  Call between = step_among(peers_);  // copies `in` first: it may be another rank's part
  between.in = call.in;
  between.count = call.count;
  among_hosts(between, deadline);
  for (const Ranks& ranks : on_host_) {
    Call step = step_among(ranks);
    const Part& mine = step.outs[static_cast<std::size_t>(local_rank_)];
    step.in = mine.data;
    step.count = mine.count;
    in_host(std::move(step), deadline);
  }
}

// Nothing is written to call.out, which may be an input, before all inputs have been read.
void TwoLevel::reduce_scatter(const Call& call, TimePoint deadline) {
  const std::size_t width = size_of(call.dtype);
  std::uint64_t total = 0;
  for (const int peer : peers_) total += call.ins[static_cast<std::size_t>(peer)].count;
  std::byte* at = room(total * width);
  Call between = later_step_of(call, OpType::reduce_scatter);
  for (const Ranks& ranks : on_host_) {
    Call step = step_of(call, OpType::reduce_scatter);
    for (const int rank : ranks) step.ins.push_back(call.ins[static_cast<std::size_t>(rank)]);
    step.out = at;
    step.count = step.ins[static_cast<std::size_t>(local_rank_)].count;
    between.ins.push_back({at, step.count});
    at += step.count * width;
    in_host(std::move(step), deadline);
  }
  between.out = call.out;
  between.count = call.count;
  among_hosts(between, deadline);
  finish(call.dtype, call.reduce, call.out, call.count, size_);
}

}  // namespace distrun
