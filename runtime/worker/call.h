// One collective operation as it runs inside the library, and what it can end with.  Between the
// public face (process_group.cc), which checks arguments, and whatever carries it out: messages
// between ranks (collectives.h), memory that the ranks of one host share (shm/).
//
// All ranks of a group make the same calls in the same order; whoever carries a call out compares
// them before any data is touched, and says on every rank which two differ.
#pragma once

#include "runtime/base/time.h"
#include <distrun/process_group.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace distrun {

struct ConstPart {
  const std::byte* data = nullptr;
  std::uint64_t count = 0;  // of elements
  bool operator==(const ConstPart&) const = default;
};
struct Part {
  std::byte* data = nullptr;
  std::uint64_t count = 0;
  bool operator==(const Part&) const = default;
};

// op              in, count                ins        out              outs
// broadcast       the data (at the root)              the data
// all_reduce      the data                            the same
// reduce          the data                            the same (written at the root only)
// all_gather      this rank's                                          one part for each rank
// gather          this rank's                                          at the root: one for each
// scatter                                  root: p    this rank's
// reduce_scatter                           p parts    this rank's
// all_to_all                               p parts                     p parts
// barrier
//
// p is the number of ranks.  `count` is that of this rank's part, in or out; 0 for all_to_all.
// Parts may differ in size, if all ranks agree on it.  `in` may be this rank's part of `outs`, and
// `out` this rank's part of `ins`.
struct Call {
  OpType op = OpType::barrier;
  ReduceOp reduce = ReduceOp::sum;
  DType dtype = DType::float32;
  Device device;  // of all its tensors
  int root = 0;
  double factor = 1;  // premul_sum: of this rank's data
  // Of several tensors that go as one: a hash of their sizes; else 0.
  std::int32_t layout = 0;
  std::uint64_t count = 0;
  std::uint64_t sequence = 0;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::vector<ConstPart> ins;
  std::vector<Part> outs;
  bool whole = false;  // the parts were given as one tensor
};

// "all_reduce 5 (float32 x 1000, sum)"
std::string to_string(const Call& call);

// The connection to one rank is gone.
struct PeerLost : std::runtime_error {
  PeerLost(int lost_peer, const std::string& why) : std::runtime_error(why), peer(lost_peer) {}
  int peer;
};

// The deadline passed, and these ranks had not done their part.
struct PeersLate : std::runtime_error {
  explicit PeersLate(std::vector<int> late, bool waiting = false)
      : std::runtime_error("late"), peers(std::move(late)), may_wait(waiting) {}
  std::vector<int> peers;
  bool may_wait;  // they may have begun it, and wait for others themselves
};

// Two ranks called different things.  The text names both calls and what differs.  `peer`: of the
// two the one that is not this rank (of others' dispute, the one that differs from rank 0).
struct CallsDiffer : std::runtime_error {
  CallsDiffer(int differing_peer, const std::string& text)
      : std::runtime_error(text), peer(differing_peer) {}
  int peer;
};

// Carries calls out, one at a time.
class CallRunner {
 public:
  virtual ~CallRunner() = default;
  // Returns when this rank's part is done: its results are there, and its inputs are its own again.
  // Throws PeerLost, PeersLate or CallsDiffer; it is of no more use then.
  virtual void run(const Call& call, TimePoint deadline) = 0;
  // From any thread: ends what is under way, here and at the other ranks, with PeerLost.
  virtual void close() = 0;
  // Whether the process of one of its ranks still runs, as far as it knows.  From any thread.
  virtual bool alive(int /*rank*/) const { return true; }
};

}  // namespace distrun
