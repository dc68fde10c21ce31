#include "runtime/worker/shm/waiting.h"

#include <climits>

#include <algorithm>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace distrun::shm {

CpuSet usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return CpuSet().set();
  CpuSet cpus;
  for (std::size_t cpu = 0; cpu < std::min<std::size_t>(kMaxCpus, CPU_SETSIZE); ++cpu)
    cpus[cpu] = CPU_ISSET(cpu, &set);
  return cpus;
}

Placement placement_of(std::span<const CpuSet> cpus_of_ranks) {
  CpuSet all;
  bool apart = true;
  for (const CpuSet& cpus : cpus_of_ranks) {
    apart = apart && cpus.any() && (all & cpus).none();
    all |= cpus;
  }
  if (apart) return Placement::apart;
  return all.count() >= cpus_of_ranks.size() ? Placement::roomy : Placement::crowded;
}

WaitPolicy policy_for(Placement placement) {
  using std::chrono::microseconds;
  switch (placement) {
    case Placement::apart:
      return {.spins = 4000, .look_where_others_run = false, .yields = microseconds(20)};
    case Placement::roomy:
      return {.spins = 2000, .look_where_others_run = true, .yields = microseconds(100)};
    case Placement::crowded:
      return {.spins = 0, .look_where_others_run = false, .yields = microseconds(100)};
  }
  return {};
}

bool move_away_from(const CpuSet& taken) {
  cpu_set_t all;
  CPU_ZERO(&all);
  if (::sched_getaffinity(0, sizeof all, &all) != 0) return false;
  cpu_set_t rest = all;
  for (std::size_t cpu = 0; cpu < std::min<std::size_t>(kMaxCpus, CPU_SETSIZE); ++cpu)
    if (taken[cpu]) CPU_CLR(cpu, &rest);
  if (CPU_COUNT(&rest) == 0 || ::sched_setaffinity(0, sizeof rest, &rest) != 0) return false;
  return ::sched_setaffinity(0, sizeof all, &all) == 0;
}

void futex_sleep(const std::atomic<std::uint32_t>& word, std::uint32_t value, Duration at_most) {
  const auto ns = std::chrono::nanoseconds(std::max(at_most, Duration::zero())).count();
  const timespec timeout{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  static_assert(sizeof word == sizeof(std::uint32_t));
  // Every outcome is one for the caller to look at the word again.
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

void futex_wake(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace distrun::shm
