// A group's corner of the store: NCCL's ids, the group's first failure, and where each rank is.
//
//   nccl/id/<lane>/<root>     a root's unique id, with the version of its library
//   nccl/failure/claims       who counts 1 here writes the failure that counts…
//   nccl/failure/cause        …at once, so that all stop,
//   nccl/failure/at/<rank>    sees where the others are, which they tell then,
//   nccl/failure/verdict      and writes what to make of it: the same text on all ranks
#pragma once

#include "runtime/nccl/api.h"
#include "runtime/nccl/core/watch.h"
#include "runtime/nccl/store_access.h"

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace distrun::nccl {

class Board {
 public:
  Board(const drb_store& lent, int rank, int world_size);

  void publish_id(const std::string& lane, int root, const UniqueId& id, int version);
  // Waits until it is there, the deadline (Failed, timeout), or `given_up` (then: nothing).  A
  // library of another version than ours is an error.  `starter`: whose id it is, for errors.
  std::optional<UniqueId> wait_id(const std::string& lane, int root, int version,
                                  const std::string& starter, TimePoint deadline,
                                  const std::function<bool()>& given_up);

  // The failure that counts, if somebody has written one.
  std::optional<Failure> failure();
  // Writes this one unless there is one, and tells our position.  Who has written it collects the
  // others' positions, if that may help, for at most `patience`; the others wait for his verdict.
  // Returns what to tell people.
  Failure report(Failure failure, const Progress& position, std::chrono::milliseconds patience);

 private:
  // In short slices, so that nobody keeps the others from the store for long.  Nothing: not there.
  std::optional<std::string> wait_for(const std::string& key, TimePoint deadline);
  Failure judge(const Failure& failure, const Progress& position, TimePoint deadline);

  std::mutex mutex_;
  StoreAccess store_;  // guarded by mutex_
  const int rank_;
  const int world_size_;
};

// Runs board->report() beside, for at most `limit`: a store that hangs does not keep a group from
// being aborted.  If there is no answer, the failure itself comes back.
Failure report_in_time(const std::shared_ptr<Board>& board, const Failure& failure,
                       const Progress& position, std::chrono::milliseconds patience,
                       std::chrono::milliseconds limit);

}  // namespace distrun::nccl
