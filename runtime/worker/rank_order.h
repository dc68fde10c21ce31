// Reductions whose result depends on the ranks' data and their order alone: not on who shares a
// host, how much data there is, or which way it goes.  Made of calls that only move data, so that
// whatever carries those out gives the same bits.
//
//   all_reduce       each rank's part to it (all_to_all) -> reduced there, ranks in order ->
//   all_gather reduce           the same -> gather reduce_scatter   the same, and that is all
//
// Every element is reduced in one pass over the ranks (reduction.h, combine_all), as shared memory
// does it, too.  Costs memory for the data once more, and a second agreement.
#pragma once

#include "runtime/worker/call.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace distrun {

class RankOrder final : public CallRunner {
 public:
  RankOrder(std::unique_ptr<CallRunner> mover, int rank, int size);

  void run(const Call& call, TimePoint deadline) override;
  void close() override { mover_->close(); }

 private:
  // This rank's part, reduced, to `out`.  `ins`: a part for each rank.
  void reduce_own_part(const Call& call, const std::vector<ConstPart>& ins, std::byte* out,
                       TimePoint deadline);
  void all_reduce(const Call& call, TimePoint deadline);

  const std::unique_ptr<CallRunner> mover_;
  const int rank_;
  const int size_;
  std::vector<std::max_align_t> prepared_;  // what this rank puts in
  std::vector<std::max_align_t> received_;  // every rank's share of this rank's part
  std::vector<std::max_align_t> own_;       // this rank's part of the result
};

}  // namespace distrun
