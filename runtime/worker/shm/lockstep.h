// All ranks of a host in step, round by round, over memory that each owns and the others read.
//
//   round n:   fill data() ─► publish() ─► await_all() ─► read data(peer)
//
// A rank publishes round n + 1 only when it has read what it wants of round n.  So whoever has seen
// all ranks in round n + 1 may fill again the buffer of round n: two buffers in turn are enough,
// and a round costs one synchronisation.  Nothing that decides what memory is touched is ever read
// from another rank's memory.
#pragma once

#include "runtime/base/time.h"
#include "runtime/worker/shm/heap.h"
#include "runtime/worker/shm/liveness.h"
#include "runtime/worker/shm/segment.h"
#include "runtime/worker/shm/waiting.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace distrun::shm {

// What joining (join.h) gives: this rank's place among the ranks of its host.
struct Membership {
  int rank = 0;
  Layout layout;
  std::vector<Segment> segments;  // by rank; the own one can be written
  Liveness liveness;
  WaitPolicy waiting;
  // By rank, what each gives its user; empty: not every rank has one, or not everyone's.
  std::vector<std::shared_ptr<const HeapView>> heaps;
};

// Where in its heap a rank's tensors lie, which others may read until the call's last round.
struct Lent {
  static constexpr std::uint64_t kNot = ~std::uint64_t{0};
  std::uint64_t in = kNot;
  std::uint64_t out = kNot;
};
static_assert(sizeof(Lent) == kInlineBytes);

class Lockstep {
 public:
  explicit Lockstep(Membership membership);
  // Tells the others that this rank is gone, if nothing else was told before.
  ~Lockstep();
  Lockstep(const Lockstep&) = delete;
  Lockstep& operator=(const Lockstep&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::size_t data_bytes() const { return layout_.data_bytes; }

  // Whether that rank's process still runs.  From any thread.
  bool alive(int rank) const { return liveness_.alive(rank); }
  // Throws PeerLost if this rank has left.
  void require_member() const;

  // ---- the coming round, which others do not see yet ----
  std::byte* data() { return at(rank_, round_) + kLine; }             // room for data_bytes()
  std::byte* inline_data() { return at(rank_, round_) + kInlineAt; }  // kInlineBytes, instead
  Fingerprint& call() { return post(rank_, round_).call; }
  std::span<std::uint64_t> table();
  void lend(const Lent& mine);  // instead of inline data

  // Makes it the current one.
  void publish();

  // ---- the current round ----
  // Until every rank has published it.  Throws PeerLost or PeersLate; it is for the caller then to
  // leave().
  void await_all(TimePoint deadline);
  const std::byte* data(int peer) const { return at(peer, round_ - 1) + kLine; }
  const std::byte* inline_data(int peer) const { return at(peer, round_ - 1) + kInlineAt; }
  Lent lent(int peer) const;  // what it has told in place of inline data
  std::span<const Fingerprint* const> calls() const { return calls_[(round_ - 1) % 2]; }
  // Throws PeerLost if any rank has left.  REQUIRES: none can have left in good order.
  void require_all() const;
  // What those said that have published it.
  std::vector<Said> said() const;

  // Ends it for all, with the first reason that is given; the others need not be waiting.  From
  // any thread.
  void leave(Leave why, int about = 0);
  // `ranks` were waited for too long.
  void leave_late(std::span<const int> ranks);

 private:
  std::byte* at(int rank, std::uint32_t round) const {
    return bases_[static_cast<std::size_t>(rank)] + layout_.buffer_at(round);
  }
  Post& post(int rank, std::uint32_t round) const {
    return *reinterpret_cast<Post*>(at(rank, round));
  }
  Control& control(int rank) const {
    return *reinterpret_cast<Control*>(bases_[static_cast<std::size_t>(rank)]);
  }
  bool arrived(int peer) const;
  void wait_for(int peer, TimePoint deadline);
  bool spin_for(int peer);
  int cpu_of(int peer) const;
  void move_apart();
  bool yield_for(int peer) const;
  void sleep_for(int peer, TimePoint until);
  void look_for_leavers(int waiting_for) const;
  void look_for_dead(int waiting_for) const;
  [[noreturn]] void blame_cause(int rank, std::uint64_t left) const;
  [[noreturn]] void blame(int leaver, std::uint64_t left) const;
  std::vector<int> missing() const;
  void wake_all() const;

  const int rank_;
  const int size_;
  const Layout layout_;
  const WaitPolicy waiting_;
  const std::vector<Segment> segments_;
  const Liveness liveness_;
  const int process_;  // whose this is: not a child's that was forked
  std::vector<std::byte*> bases_;
  std::vector<const Fingerprint*> calls_[2];
  std::uint32_t round_ = 0;  // the coming one
  TimePoint may_move_;
};

}  // namespace distrun::shm
