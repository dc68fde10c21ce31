// The schedule of each collective over messages: who sends what to whom, in which order.  Knows a
// Transport, and neither Gloo, sockets nor stores.
//
// Before any data moves all ranks agree on the call (agreement.h), through rank 0:
//
//   rank r --notice, small data--> rank 0 compares --verdict, small result--> rank r
//
// so a rank that calls something else is named on every rank instead of corrupting memory, and
// small operations (up to 16 KiB) are over with that one round trip.  Larger ones go on:
// broadcast down a binomial tree; all_reduce, reduce and reduce_scatter around a ring in pieces;
// all_gather around the ring; gather, scatter and all_to_all straight from each to each.
//
// Every result is computed once and then copied: bit for bit the same on every rank.
#pragma once

#include "runtime/base/time.h"
#include "runtime/worker/agreement.h"
#include "runtime/worker/call.h"
#include "runtime/worker/transport.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace distrun {

// A group of one.
void run_alone(const Call& call);

class Collectives final : public CallRunner {
 public:
  // Called now and then, in a call that is slow, with the ranks that this one waits for.  May throw
  // what run() may.
  using Waiting = std::function<void(const Call& call, const std::vector<int>& ranks)>;

  // `small`: bytes of one rank's data that go with the agreement, the same on all ranks; 0: what
  // fits the number of ranks.  REQUIRES: more than one rank; `transport` outlives it.
  Collectives(Transport& transport, Waiting waiting, std::size_t small = 0);

  void run(const Call& call, TimePoint deadline) override;
  void close() override { transport_.close(); }
  const Waiting& waiting() const { return waiting_; }
  // The two halves of run().  True: it was small, and is done.
  bool agree(const Call& call, TimePoint deadline);
  // REQUIRES: all ranks have agreed on the call.
  void move(const Call& call, TimePoint deadline);

 private:
  struct Piece {
    std::size_t offset;
    std::size_t bytes;
  };
  using Pieces = std::vector<Piece>;  // one for each rank
  struct Pending {
    int peer = 0;
    std::unique_ptr<Transfer> transfer;  // null: none, or done
  };

  bool lead(const Call& call, TimePoint deadline);    // the agreement, as rank 0
  bool follow(const Call& call, TimePoint deadline);  // as any other.  True: all is done
  std::vector<Notice> collect(const Call& call, TimePoint deadline);
  void disagree(const Difference& difference, TimePoint deadline);
  void complete(const Call& call, std::span<Pending> pending, TimePoint deadline);
  void combine_small(const Call& call, std::span<const Notice> notices);
  std::span<const std::byte> small_input(const Call& call, const Notice& notice);
  void take_small_result(const Call& call, std::span<const std::byte> result);

  void broadcast_tree(const Call& call, TimePoint deadline);
  void all_reduce_ring(const Call& call, TimePoint deadline);
  void reduce_ring(const Call& call, TimePoint deadline);
  void reduce_scatter(const Call& call, TimePoint deadline);
  void all_gather_ring(const Call& call, TimePoint deadline);
  void gather(const Call& call, TimePoint deadline);
  void scatter(const Call& call, TimePoint deadline);
  void all_to_all(const Call& call, TimePoint deadline);
  void reduce_scatter_ring(const Call& call, const Pieces& pieces, std::byte* data,
                           TimePoint deadline);

  Pieces even_pieces(const Call& call) const;
  int wrap(int index) const { return (index % size_ + size_) % size_; }
  int right() const { return wrap(rank_ + 1); }
  int left() const { return wrap(rank_ - 1); }
  void send(const Call& call, int peer, std::span<const std::byte> message, TimePoint deadline);
  void receive(const Call& call, int peer, std::span<std::byte> room, TimePoint deadline);
  void exchange(const Call& call, std::span<const std::byte> to_right,
                std::span<std::byte> from_left, TimePoint deadline);

  Transport& transport_;
  const Waiting waiting_;
  const int rank_;
  const int size_;
  const std::size_t small_;  // data of one rank that goes with a notice, or result with a verdict
  const std::size_t slot_;   // room for one notice
  std::vector<std::byte> notices_;   // rank 0: what the others sent
  std::vector<std::byte> message_;   // what this rank sends
  std::vector<std::byte> verdicts_;  // one for each rank on rank 0, else the one
  std::vector<std::byte> input_;
  std::vector<std::byte> scratch_;
};

}  // namespace distrun
