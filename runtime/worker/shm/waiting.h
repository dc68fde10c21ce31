// How a rank waits for a word in shared memory: what to try, for how long, before it sleeps.
//
//   spin     costs nothing to end (0.1 us), and keeps a CPU busy: only where each rank has its own
//   yield    lets another rank of this CPU run; about as cheap if nobody else wants it
//   sleep    a futex: 10 to 50 us until it runs again, in steps, so that it can look around
//
// Two ranks that the scheduler has put on one CPU would spin against each other for whole time
// slices.  So whoever spins looks where the other one ran last, and yields if that is here.  Where
// there are CPUs for all, one of the two goes to a free one: by itself the scheduler leaves two
// that take turns every microsecond where they are (measured: 3 us for a call, for seconds).
#pragma once

#include "runtime/base/time.h"

#include <atomic>
#include <bitset>
#include <chrono>
#include <cstdint>
#include <sched.h>
#include <span>

namespace distrun::shm {

inline constexpr std::size_t kMaxCpus = 1024;
using CpuSet = std::bitset<kMaxCpus>;

// Those the calling thread may run on; all of them if the kernel knows more than fit.
CpuSet usable_cpus();

enum class Placement : std::uint8_t {
  apart,    // no two ranks can meet on one CPU
  roomy,    // there is a CPU for each, but they may meet
  crowded,  // fewer CPUs than ranks
};
Placement placement_of(std::span<const CpuSet> cpus_of_ranks);

struct WaitPolicy {
  int spins = 0;                       // looks, each with a pause instruction
  bool look_where_others_run = false;  // see above
  std::chrono::microseconds yields{};  // then so long, at least once
  bool operator==(const WaitPolicy&) const = default;
};
WaitPolicy policy_for(Placement placement);

// Puts the calling thread on a CPU that it may use and that is not in `taken`, and then lets it run
// wherever it could before.  False: there is none.
bool move_away_from(const CpuSet& taken);
// No more often than this: the scheduler may have its reasons.
inline constexpr auto kBetweenMoves = std::chrono::milliseconds(10);

// How long a sleeper sleeps before it looks for what would wake nobody: a dead rank, its deadline.
inline constexpr auto kStep = std::chrono::milliseconds(50);

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Returns when woken, after `at_most`, or at once if `word` is not `value`; or for no reason.
void futex_sleep(const std::atomic<std::uint32_t>& word, std::uint32_t value, Duration at_most);
// All that sleep on it, in whatever process.
void futex_wake(const std::atomic<std::uint32_t>& word);

}  // namespace distrun::shm
