#include "runtime/worker/shm/lockstep.h"

#include <algorithm>
#include <cstring>
#include <sched.h>
#include <string>
#include <unistd.h>
#include <utility>

namespace distrun::shm {

Lockstep::Lockstep(Membership membership)
    : rank_(membership.rank),
      size_(membership.layout.ranks),
      layout_(membership.layout),
      waiting_(membership.waiting),
      segments_(std::move(membership.segments)),
      liveness_(std::move(membership.liveness)),
      process_(::getpid()) {
  for (const Segment& segment : segments_) bases_.push_back(segment.data());
  for (std::uint32_t round = 0; round < 2; ++round)
    for (int rank = 0; rank < size_; ++rank) calls_[round].push_back(&post(rank, round).call);
}

Lockstep::~Lockstep() {
  leave(Leave::closed);
}

std::span<std::uint64_t> Lockstep::table() {
  std::byte* const base = bases_[static_cast<std::size_t>(rank_)] + layout_.table_at(round_);
  return {reinterpret_cast<std::uint64_t*>(base), 2 * static_cast<std::size_t>(size_)};
}

void Lockstep::lend(const Lent& mine) {
  std::memcpy(inline_data(), &mine, sizeof mine);
}

Lent Lockstep::lent(int peer) const {
  Lent its;
  std::memcpy(&its, inline_data(peer), sizeof its);
  return its;
}

void Lockstep::require_member() const {
  if (control(rank_).left.load(std::memory_order_acquire) != left_word(Leave::no, 0))
    throw PeerLost(rank_, "this rank has left the group");
}

void Lockstep::publish() {
  Post& mine = post(rank_, round_);
  if (waiting_.look_where_others_run)
    mine.cpu.store(static_cast<std::uint32_t>(::sched_getcpu()), std::memory_order_relaxed);
  // In one order, seen by all, with what sleepers write before they look at `round` a last time.
  mine.round.store(++round_, std::memory_order_seq_cst);
  bool asleep = false;
  for (int peer = 0; peer < size_; ++peer)
    asleep |= control(peer).sleeps_on.load(std::memory_order_seq_cst) ==
              static_cast<std::uint32_t>(rank_ + 1);
  if (asleep) futex_wake(mine.round);
}

bool Lockstep::arrived(int peer) const {
  return post(peer, round_ - 1).round.load(std::memory_order_acquire) == round_;
}

void Lockstep::await_all(TimePoint deadline) {
  for (int peer = 0; peer < size_; ++peer)
    if (!arrived(peer)) wait_for(peer, deadline);
}

void Lockstep::wait_for(int peer, TimePoint deadline) {
  if (spin_for(peer) || yield_for(peer)) return;
  TimePoint look = Clock::now() + kStep;
  while (!arrived(peer)) {
    look_for_leavers(peer);
    sleep_for(peer, std::min(look, deadline));
    const TimePoint now = Clock::now();
    if (now >= look || now >= deadline) {
      look_for_dead(peer);  // a dead rank is not called late
      look = now + kStep;
    }
    if (now < deadline) continue;
    if (std::vector<int> late = missing(); !late.empty()) throw PeersLate(std::move(late));
  }
}

// Where it was a round ago; -1: it does not tell.
int Lockstep::cpu_of(int peer) const {
  const std::uint32_t cpu = post(peer, round_).cpu.load(std::memory_order_relaxed);
  return cpu < kMaxCpus ? static_cast<int>(cpu) : -1;
}

void Lockstep::move_apart() {
  const TimePoint now = Clock::now();
  if (now < may_move_) return;
  may_move_ = now + kBetweenMoves;
  CpuSet taken;
  for (int rank = 0; rank < size_; ++rank)
    if (const int cpu = cpu_of(rank); cpu >= 0) taken.set(static_cast<std::size_t>(cpu));
  move_away_from(taken);
}

bool Lockstep::spin_for(int peer) {
  constexpr int kLookEvery = 32;
  for (int i = 0; i < waiting_.spins; ++i) {
    if (arrived(peer)) return true;
    pause_cpu();
    if (!waiting_.look_where_others_run || i % kLookEvery != kLookEvery - 1) continue;
    if (cpu_of(peer) != ::sched_getcpu()) continue;
    if (rank_ > peer) move_apart();  // one of the two, not both
    return false;
  }
  return false;
}

bool Lockstep::yield_for(int peer) const {
  const TimePoint until = Clock::now() + waiting_.yields;
  do {
    ::sched_yield();
    if (arrived(peer)) return true;
  } while (Clock::now() < until);
  return false;
}

void Lockstep::sleep_for(int peer, TimePoint until) {
  auto& sleeps_on = control(rank_).sleeps_on;
  sleeps_on.store(static_cast<std::uint32_t>(peer + 1), std::memory_order_seq_cst);
  const auto& word = post(peer, round_ - 1).round;
  const std::uint32_t value = word.load(std::memory_order_seq_cst);
  if (value != round_) futex_sleep(word, value, until - Clock::now());
  sleeps_on.store(0, std::memory_order_relaxed);
}

// Whoever leaves in good order has seen everybody in its last round, and so had this rank's
// current round not begun or is it complete: what is still missing after that will not come.
void Lockstep::look_for_leavers(int waiting_for) const {
  require_member();
  for (int rank = 0; rank < size_; ++rank) {
    const std::uint64_t left = control(rank).left.load(std::memory_order_acquire);
    if (why_left(left) != Leave::no && !arrived(waiting_for)) blame_cause(rank, left);
  }
}

void Lockstep::require_all() const {
  require_member();
  for (int rank = 0; rank < size_; ++rank) {
    const std::uint64_t left = control(rank).left.load(std::memory_order_acquire);
    if (rank != rank_ && why_left(left) != Leave::no) blame_cause(rank, left);
  }
}

// The one that it lost may have left a word itself.
void Lockstep::blame_cause(int rank, std::uint64_t left) const {
  const int about = why_left(left) == Leave::lost ? left_about(left) : rank;
  if (about < 0 || about >= size_ || about == rank_) blame(rank, left);
  const std::uint64_t its = control(about).left.load(std::memory_order_acquire);
  why_left(its) == Leave::no ? blame(rank, left) : blame(about, its);
}

void Lockstep::look_for_dead(int waiting_for) const {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_ || liveness_.alive(rank)) continue;
    look_for_leavers(waiting_for);  // it may have told more before it ended
    if (!arrived(waiting_for)) throw PeerLost(rank, "its process ended");
  }
}

void Lockstep::blame(int leaver, std::uint64_t left) const {
  const std::string name = "rank " + std::to_string(leaver);
  switch (why_left(left)) {
    case Leave::lost: {
      const int about = left_about(left);
      if (about == rank_) throw PeerLost(leaver, "it has lost this rank, and left");
      if (about < 0 || about >= size_) break;
      throw PeerLost(about, "its process ended, as " + name + " found");
    }
    case Leave::late: {
      std::vector<int> late;
      for (int rank = 0; rank < size_; ++rank) {
        const auto at = static_cast<unsigned>(rank);
        const auto word = control(leaver).late[at / 64].load(std::memory_order_relaxed);
        if ((word >> at % 64 & 1) != 0) late.push_back(rank);
      }
      if (late.empty() || std::ranges::count(late, rank_) > 0)
        throw PeerLost(leaver, "it has waited for this rank until its deadline, and left");
      throw PeersLate(std::move(late));
    }
    case Leave::differs:
      throw PeerLost(leaver, "it has left the group, since calls differed");
    case Leave::closed:
    case Leave::no:
      break;
  }
  throw PeerLost(leaver, "it has left the group");
}

std::vector<int> Lockstep::missing() const {
  std::vector<int> ranks;
  for (int peer = 0; peer < size_; ++peer)
    if (!arrived(peer)) ranks.push_back(peer);
  return ranks;
}

std::vector<Said> Lockstep::said() const {
  std::vector<Said> all;
  for (int rank = 0; rank < size_; ++rank) {
    if (!arrived(rank)) continue;
    Said said{rank, post(rank, round_ - 1).call,
              std::vector<std::uint64_t>(2 * static_cast<std::size_t>(size_))};
    if (said.call.kind == Parts::even) std::ranges::fill(said.table, said.call.parts);
    if (said.call.kind == Parts::uneven) {
      const auto* const table = reinterpret_cast<const std::uint64_t*>(
          bases_[static_cast<std::size_t>(rank)] + layout_.table_at(round_ - 1));
      std::copy_n(table, said.table.size(), said.table.begin());
    }
    all.push_back(std::move(said));
  }
  return all;
}

void Lockstep::leave(Leave why, int about) {
  if (::getpid() != process_) return;
  std::uint64_t none = left_word(Leave::no, 0);
  if (control(rank_).left.compare_exchange_strong(none, left_word(why, about))) wake_all();
}

void Lockstep::leave_late(std::span<const int> ranks) {
  for (const int rank : ranks) {
    const auto at = static_cast<unsigned>(rank);
    control(rank_).late[at / 64].fetch_or(std::uint64_t{1} << at % 64, std::memory_order_relaxed);
  }
  leave(Leave::late);
}

void Lockstep::wake_all() const {
  for (int rank = 0; rank < size_; ++rank)
    for (std::uint32_t round = 0; round < 2; ++round) futex_wake(post(rank, round).round);
}

}  // namespace distrun::shm
