// Collectives of ranks on several hosts, some of which share one: large data crosses between hosts
// once for each host, and inside a host goes through shared memory.
//
//   all_reduce   reduce in each host -> all_reduce among the first ranks of the hosts -> broadcast
//                hosts of as many ranks each: every rank its shard, all at once:
//                reduce_scatter      -> all_reduce among those of one place          -> all_gather
//   broadcast    in the root's host  -> among the first ranks                         -> broadcast
//
// All ranks agree on the call first, as without it; what is small, and every other operation, goes
// the flat way.
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
  void all_reduce(const Call& call, TimePoint deadline);
  void all_reduce_shards(const Call& call, TimePoint deadline);
  void broadcast(const Call& call, TimePoint deadline);
  void in_host(Call call, TimePoint deadline);
  void among_hosts(const Call& call, TimePoint deadline);
  bool leads() const { return local_rank_ == 0; }

  Collectives& flat_;
  const int size_;
  const std::vector<int> host_of_;
  std::vector<int> locals_;  // the ranks of this host
  std::vector<int> peers_;   // between hosts: the first of each, or those of this rank's place
  bool shards_ = false;      // the latter
  int local_rank_ = 0;
  const std::unique_ptr<CallRunner> host_;
  std::unique_ptr<SubTransport> between_;
  std::unique_ptr<Collectives> hosts_;  // of peers_; null: there are none
  std::uint64_t steps_ = 0;
};

}  // namespace distrun
