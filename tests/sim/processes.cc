#include "tests/sim/processes.h"

#include <algorithm>
#include <csignal>

namespace distrun::sim {

using namespace agent;

Processes::Processes(const Faults& faults, Random& random, Later later, Events events)
    : faults_(faults), random_(random), later_(std::move(later)), events_(std::move(events)) {}

Process& Processes::add_worker(Generation generation, int local_rank, bool typo) {
  const int pid = next_pid_++;
  Process& process = table_[pid];
  process.pid = pid;
  process.generation = generation;
  process.local_rank = local_rank;
  process.stuck = chance(random_, faults_.stuck);
  live(process, typo);
  return process;
}

// What a worker will do if nobody interferes.
void Processes::live(Process& process, bool typo) {
  if (typo) {
    die_later(process, millis(random_, 20, 60), ExitedWith{1});
    return;
  }
  if (chance(random_, faults_.leaves)) {
    const int children = between(random_, 1, 3);
    for (int i = 0; i < children; ++i) {
      const int pid = process.pid;
      later_(millis(random_, 0, 3000), [this, pid] { fork(at(pid)); });
    }
  }
  const Duration life = chance(random_, 0.5) ? millis(random_, 0, 1500) : millis(random_, 0, 20000);
  if (!chance(random_, faults_.worker_fails)) {
    die_later(process, life, ExitedWith{0});
    return;
  }
  switch (between(random_, 0, 5)) {
    case 0:
      return die_later(process, life, KilledBy{SIGSEGV, true, false});
    case 1:
      return die_later(process, life, KilledBy{SIGKILL, false, chance(random_, 0.5)});
    case 2:
      return die_later(process, life, KilledBy{SIGTERM, false, false});
    default:
      return die_later(process, life, ExitedWith{between(random_, 1, 255)});
  }
}

void Processes::fork(Process& parent) {
  if (!parent.alive) return;
  const int pid = next_pid_++;
  Process child;
  child.pid = pid;
  child.generation = parent.generation;
  child.local_rank = parent.local_rank;
  child.worker = false;
  child.own_group = !parent.worker || chance(random_, 0.5);
  child.stuck = chance(random_, faults_.stuck);
  table_[pid] = child;
  if (chance(random_, 0.3)) die_later(child, millis(random_, 0, 5000), ExitedWith{0});
  if (std::count(killing_.begin(), killing_.end(), child.generation) > 0) {
    later_(micros(random_, 100, 2000), [this, pid] { signal_process(at(pid), SIGKILL); });
  }
}

Process* Processes::worker(Generation generation, int local_rank) {
  for (auto& [pid, process] : table_) {
    if (process.worker && process.generation == generation && process.local_rank == local_rank) {
      return &process;
    }
  }
  return nullptr;
}

void Processes::signal_group(Generation generation, int local_rank, int signo) {
  for (auto& [pid, process] : table_) {
    if (process.generation != generation || process.local_rank != local_rank) continue;
    if (process.worker || !process.own_group) signal_process(process, signo);
  }
}

void Processes::signal_process(Process& process, int signo) {
  if (!process.alive) {
    // Dead, but the core cannot know: to it this one was signalled.
    process.told = process.told || (signo != SIGUSR1 && signo != SIGUSR2 && signo != SIGCONT);
    return;
  }
  switch (signo) {
    case SIGUSR1:
    case SIGUSR2:
    case SIGCONT:
      ++process.notices;
      if (signo != SIGCONT && chance(random_, faults_.dies_of_notice)) {
        die_later(process, Duration{}, KilledBy{signo, false, false});
      }
      return;
    case SIGKILL:
      process.kill_sent = true;
      process.told = true;
      if (!process.stuck)
        die_later(process, micros(random_, 0, 1000), KilledBy{SIGKILL, false, false});
      // Some come out of the kernel after all, when everybody has given them up.
      if (process.stuck && chance(random_, 0.3)) {
        die_later(process, millis(random_, 0, 30000), KilledBy{SIGKILL, false, false});
      }
      return;
  }
  process.told = true;
  if (chance(random_, faults_.deaf)) return;
  if (!process.worker && chance(random_, 0.1)) fork(process);
  const Duration after =
      chance(random_, 0.9) ? micros(random_, 0, 5000) : millis(random_, 0, 40000);
  switch (between(random_, 0, 3)) {
    case 0:
      return die_later(process, after, ExitedWith{0});
    case 1:
      return die_later(process, after, ExitedWith{between(random_, 1, 255)});
    default:
      return die_later(process, after, KilledBy{signo, false, false});
  }
}

std::vector<Process*> Processes::leftovers(Generation generation) {
  std::vector<Process*> found;
  for (auto& [pid, process] : table_) {
    if (!process.worker && process.alive && process.generation == generation) {
      found.push_back(&process);
    }
  }
  return found;
}

std::vector<Process*> Processes::alive() {
  std::vector<Process*> found;
  for (auto& [pid, process] : table_) {
    if (process.alive) found.push_back(&process);
  }
  return found;
}

std::vector<Process*> Processes::reap(Generation generation) {
  std::vector<Process*> found;
  for (const int pid : deaths_) {
    Process& process = at(pid);
    if (process.reported || process.generation != generation) continue;
    process.reported = true;
    found.push_back(&process);
  }
  return found;
}

void Processes::die_later(const Process& process, Duration after, const ExitStatus& status) {
  later_(after, [this, pid = process.pid, status] { die(pid, status); });
}

void Processes::die(int pid, const ExitStatus& status) {
  Process& process = at(pid);
  if (!process.alive) return;
  process.alive = false;
  process.status = status;
  if (process.worker) deaths_.push_back(pid);
  // A failure takes others with it: their connections break.
  if (process.worker && !process.told && !succeeded(status)) {
    for (auto& [other_pid, other] : table_) {
      if (!other.worker || !other.alive || other.generation != process.generation) continue;
      if (!chance(random_, faults_.cascade)) continue;
      die_later(other, micros(random_, 0, 3000), ExitedWith{1});
    }
  }
  events_.died(process);
}

}  // namespace distrun::sim
