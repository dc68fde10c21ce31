// The schedule of each collective: who sends what to whom, in which order.  Knows messages between
// ranks (transport.h), and neither Gloo, sockets nor stores.
//
// Before any data moves all ranks agree on the call, through rank 0:
//
//   rank r ──call, small data──► rank 0 compares ──verdict, small result──► rank r
//
// so a rank that calls something else is named on every rank instead of corrupting memory, and
// small operations (up to kInlineBytes) are over with that one round trip.  Larger ones go on:
// broadcast down a binomial tree; all_reduce and reduce around a ring in pieces; all_gather around
// the ring.
//
// Every result is computed once and then copied: bit for bit the same on every rank.
#pragma once

#include "runtime/base/time.h"
#include "runtime/worker/transport.h"
#include <distrun/process_group.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace distrun {

inline constexpr std::size_t kInlineBytes = std::size_t{16} * 1024;

struct Call {
  OpType op = OpType::barrier;
  ReduceOp reduce = ReduceOp::sum;
  DType dtype = DType::float32;
  int root = 0;
  std::uint64_t count = 0;  // elements that one rank puts in
  std::uint64_t sequence = 0;
  const void* in = nullptr;
  void* out = nullptr;  // the same as `in`, but for all_gather
};

// "all_reduce 5 (float32 x 1000, sum)"
std::string to_string(const Call& call);

// The deadline passed, and these ranks had not done their part.
struct PeersLate : std::runtime_error {
  explicit PeersLate(std::vector<int> late) : std::runtime_error("late"), peers(std::move(late)) {}
  std::vector<int> peers;
};

// Two ranks called different things.  The text names both calls and what differs.
struct CallsDiffer : std::runtime_error {
  CallsDiffer(int differing_peer, const std::string& text)
      : std::runtime_error(text), peer(differing_peer) {}
  int peer;
};

class Collectives {
 public:
  // Called on rank 0 with the ranks it still waits for, once in a call that is slow to start.
  using Waiting = std::function<void(const Call& call, const std::vector<int>& ranks)>;

  Collectives(Transport& transport, Waiting waiting);

  // Throws PeerLost, PeersLate or CallsDiffer; the transport is of no more use then.
  void run(const Call& call, TimePoint deadline);

 private:
  void lead(const Call& call, TimePoint deadline);    // the agreement, as rank 0
  void follow(const Call& call, TimePoint deadline);  // as any other
  void collect_calls(const Call& call, TimePoint deadline);
  void compare_calls(const Call& call, TimePoint deadline);
  std::size_t combine_inline(const Call& call);

  void broadcast_tree(const Call& call, TimePoint deadline);
  void all_reduce_ring(const Call& call, TimePoint deadline);
  void reduce_ring(const Call& call, TimePoint deadline);
  void all_gather_ring(const Call& call, TimePoint deadline);
  void reduce_scatter_ring(const Call& call, std::byte* data, TimePoint deadline);

  struct Piece {
    std::size_t offset;
    std::size_t bytes;
  };
  Piece piece(const Call& call, int index) const;
  int right() const { return (rank_ + 1) % size_; }
  int left() const { return (rank_ + size_ - 1) % size_; }
  void send(int peer, std::span<const std::byte> message, TimePoint deadline);
  void receive(int peer, std::span<std::byte> room, TimePoint deadline);
  void exchange(std::span<const std::byte> to_right, std::span<std::byte> from_left,
                TimePoint deadline);

  Transport& transport_;
  const Waiting waiting_;
  const int rank_;
  const int size_;
  std::vector<std::byte> calls_;    // rank 0: what the others sent; others: what they send
  std::vector<std::byte> verdict_;  // with the small result behind it
  std::vector<std::byte> scratch_;
};

}  // namespace distrun
