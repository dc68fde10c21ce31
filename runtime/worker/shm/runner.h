// Every collective, over ranks in lockstep: what each puts into its buffer in each round, and what
// it takes out of the others'.
//
//   all_reduce, small   each its data ─► every rank reduces all of it, in the order of ranks
//   all_reduce, large   by chunks: each its raw shares for others, and its finished share of the
//                       chunk before ─► its own share of this chunk; the others' of the one before
//   reduce              the same; only the root takes results
//   broadcast, all_gather, gather      the writer a piece ─► who wants it copies it
//   scatter, reduce_scatter, all_to_all      the buffer has an area for each rank
//
// What lies in heaps (heap.h) on all ranks that give data is not put into a buffer: who gives says
// where it is, who wants it reads it there, and a last round tells everyone that it has been read.
// If only some give so, which shows in the first round, everything goes as above from the next on.
//
//   all_reduce          by chunks: its own share of this chunk out of all ranks' memory into its
//   own;
//                       the others' of the one before out of theirs
//   the others          all that it wants at once
//
// Every result of all_reduce is the same on all ranks bit for bit: small data is reduced by the
// same code in the same order everywhere, large data by one owner.
#pragma once

#include "runtime/worker/call.h"
#include "runtime/worker/shm/lockstep.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

namespace distrun::shm {

// What all ranks of a group must have alike.
struct Tuning {
  // Up to this many bytes every rank reduces everything.
  std::size_t flat_bytes = 0;
  // Of an all_reduce in one round.
  std::size_t chunk_bytes = 0;
  // From here on tensors are read where they lie, if they can be; of an all_reduce so much in one
  // round.
  std::size_t lend_bytes = std::numeric_limits<std::size_t>::max();
  std::size_t lent_chunk_bytes = 0;
  bool operator==(const Tuning&) const = default;
};
Tuning tuning_for(const Layout& layout, Placement placement);

class Runner final : public CallRunner {
 public:
  Runner(Membership membership, const Tuning& tuning);

  void run(const Call& call, TimePoint deadline) override;
  void close() override { ranks_.leave(Leave::closed); }
  bool alive(int rank) const override { return ranks_.alive(rank); }

 private:
  void dispatch(const Call& call, TimePoint deadline);
  void begin(const Call& call);
  void agree(TimePoint deadline);
  void compare_calls(bool all_have_come);

  void barrier(TimePoint deadline);
  void broadcast(const Call& call, TimePoint deadline);
  void reduce_flat(const Call& call, TimePoint deadline);
  void reduce_shares(const Call& call, TimePoint deadline);
  void gather(const Call& call, TimePoint deadline);  // and all_gather
  void scatter(const Call& call, TimePoint deadline);
  void reduce_scatter(const Call& call, TimePoint deadline);
  void all_to_all(const Call& call, TimePoint deadline);

  enum class Givers { all, root, all_but_root };
  // The first round.  True: every giver lends its data, what `mine` says if this rank is one.
  // False: all have done as much as fill() of the first round puts into the buffer.
  template <class Fill>
  bool meet(const Call& call, Givers givers, const std::optional<Lent>& mine, TimePoint deadline,
            Fill fill);
  // The last round of a call that lends: nobody reads any more.
  void all_have_read(TimePoint deadline);
  // For meet(); nullopt: it is not to be lent.  `largest`: what of this call any rank lends.
  std::optional<Lent> lend(const Call& call, const std::byte* in, const std::byte* out,
                           std::uint64_t bytes, std::uint64_t largest) const;
  std::optional<Lent> lend_parts(const Call& call, bool all_alike) const;
  // Within what a rank lends.  Throws PeerLost if it has no such memory.
  const std::byte* read(int peer, std::uint64_t base, std::uint64_t at, std::uint64_t bytes) const;
  const std::byte* read_in(int peer, std::uint64_t at, std::uint64_t bytes) const;
  const std::byte* read_out(int peer, std::uint64_t at, std::uint64_t bytes) const;

  // The rounds after meet(), until what any rank called the largest part has been moved, `unit`
  // bytes at a time.  fill(round) fills the coming round's data, drain(round) takes out of the
  // current one's.
  template <class Fill, class Drain>
  void rounds(std::size_t width, std::size_t unit, TimePoint deadline, Fill fill, Drain drain);

  // This rank's share of `count` elements, from all ranks' inputs, finished, into `target`, which
  // overlaps no input or is one, and from there to `also` unless null.
  void combine(const Call& call, std::byte* target, std::byte* also, std::size_t count);

  const std::vector<std::shared_ptr<const HeapView>> heaps_;  // empty: nothing is lent
  const Heap* const heap_;                                    // this process's
  Lockstep ranks_;
  const Tuning tuning_;
  const int rank_;
  const int size_;
  std::vector<const void*> inputs_;  // by rank
  std::vector<const void*> block_;   // the same, at one block
  std::vector<Lent> lent_;           // by rank, in this call
};

}  // namespace distrun::shm
