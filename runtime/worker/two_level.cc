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
    : flat_(flat), size_(transport.size()), host_of_(host_of), host_(std::move(host)) {
  const int own = host_of_[static_cast<std::size_t>(transport.rank())];
  std::vector<std::vector<int>> on_host;
  for (int rank = 0; rank < size_; ++rank) {
    const auto its = static_cast<std::size_t>(host_of_[static_cast<std::size_t>(rank)]);
    if (its == on_host.size()) on_host.emplace_back();
    on_host[its].push_back(rank);
  }
  locals_ = on_host[static_cast<std::size_t>(own)];
  local_rank_ = static_cast<int>(std::find(locals_.begin(), locals_.end(), transport.rank()) -
                                 locals_.begin());
  shards_ = locals_.size() > 1 && std::all_of(on_host.begin(), on_host.end(), [&](const auto& one) {
              return one.size() == locals_.size();
            });
  for (const auto& ranks : on_host)
    peers_.push_back(shards_ ? ranks[static_cast<std::size_t>(local_rank_)] : ranks.front());
  if (on_host.size() == 1 || (!shards_ && !leads())) return;
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
  if (call.op == OpType::all_reduce) return all_reduce(call, deadline);
  if (call.op == OpType::broadcast) return broadcast(call, deadline);
  flat_.move(call, deadline);
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
  const std::size_t width = size_of(call.dtype);
  const std::size_t ranks = locals_.size();
  Call step = call;
  step.root = 0;
  std::vector<Part> shards;
  std::uint64_t at = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t count = call.count / ranks + (rank < call.count % ranks ? 1 : 0);
    step.ins.push_back({call.in + at * width, count});
    shards.push_back({call.out + at * width, count});
    at += count;
  }
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
  if (shards_) return all_reduce_shards(call, deadline);
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

}  // namespace distrun
