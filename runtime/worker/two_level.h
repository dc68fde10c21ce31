// Collectives of ranks on several hosts, some of which share one: large data crosses between hosts
// once for each host, and inside a host goes through shared memory.
//
// Hosts of as many ranks each.  Every rank has a share, and all are at it at once:
//
//                   in each host         among those of one place    in each host
//   all_reduce      reduce_scatter       all_reduce                  all_gather
//   reduce          reduce_scatter       reduce                      gather, at the root's
//   reduce_scatter  the same for each    reduce_scatter
//                   host's parts
//   all_gather                           all_gather                  the same for each host's parts
//
// Broadcast, and all_reduce of other hosts:
//
//                   in each host         among the first ranks       in each host
//   all_reduce      reduce               all_reduce                  broadcast
//   broadcast       at the root's        broadcast                   at the others
//
// All ranks agree on the call first, as without it; what is small goes with that, as a barrier
// does, and everything else goes the flat way.  Which way follows from the hosts alone, which all
// ranks know alike.
#pragma once

#include "runtime/worker/call.h"
#include "runtime/worker/collectives.h"
#include "runtime/worker/transport.h"

#include <memory>
#include <vector>

namespace distrun {

// Some ranks of a transport as a transport, on a channel of its own.
class SubTransport final : public Transport {
 public:
  // `ranks`: of `whole`, whose own is one of them.
  SubTransport(Transport& whole, std::vector<int> ranks, Channel channel);
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  std::unique_ptr<Transfer> send(int peer, std::span<const std::byte> message,
                                 Channel channel) override;
  std::unique_ptr<Transfer> receive(int peer, std::span<std::byte> room, Channel channel) override;
  std::unique_ptr<Transfer> receive_any(std::span<std::byte> room, Channel channel) override;
  void close() override { whole_.close(); }

 private:
  Transport& whole_;
  const std::vector<int> ranks_;
  const Channel channel_;
  int rank_ = 0;
};

class TwoLevel final : public CallRunner {
 public:
  // `host_of`: each rank's host, 0, 1, … in the order of their first ranks.  `host`: of the ranks
  // of this rank's host, in the order of ranks; null if it is alone there.  REQUIRES: `flat` and
  // `transport` outlive it.
  TwoLevel(Collectives& flat, Transport& transport, const std::vector<int>& host_of,
           std::unique_ptr<CallRunner> host);

  void run(const Call& call, TimePoint deadline) override;
  void close() override;

 private:
  using Ranks = std::vector<int>;

  void all_reduce(const Call& call, TimePoint deadline);
  void all_reduce_shards(const Call& call, TimePoint deadline);
  void broadcast(const Call& call, TimePoint deadline);
  void reduce(const Call& call, TimePoint deadline);
  void all_gather(const Call& call, TimePoint deadline);
  void reduce_scatter(const Call& call, TimePoint deadline);
  void in_host(Call call, TimePoint deadline);
  void among_hosts(const Call& call, TimePoint deadline);
  bool leads() const { return local_rank_ == 0; }
  std::vector<Part> shares_of(const Call& call) const;
  std::byte* room(std::size_t bytes);

  Collectives& flat_;
  const int rank_;
  const int size_;
  const std::vector<int> host_of_;
  std::vector<Ranks> on_host_;
  Ranks locals_;         // the ranks of this host
  Ranks peers_;          // between hosts: the first of each, or those of this rank's place
  bool shards_ = false;  // peers_: the latter
  int local_rank_ = 0;
  const std::unique_ptr<CallRunner> host_;
  std::unique_ptr<SubTransport> between_;
  std::unique_ptr<Collectives> hosts_;  // of peers_; null: there are none
  std::uint64_t steps_ = 0;
  std::vector<std::byte> scratch_;
};

}  // namespace distrun
