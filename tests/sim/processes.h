// A process table with a mind of its own: workers and what they leave behind, dying at any moment
// with any status, deaf to signals, stuck in the kernel.  It knows the truth (who died first, who
// was signalled before), against which the cores' words are checked.
#pragma once

#include "agent/core/events.h"
#include "tests/sim/faults.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace distrun::sim {

struct Process {
  int pid = 0;
  Generation generation;
  int local_rank = 0;  // of a worker; of a leftover: the worker it stems from
  bool worker = true;
  bool own_group = true;  // false: a leftover in its worker's process group
  bool alive = true;
  bool reported = false;  // its death was told to the core
  bool told = false;      // sent a stop signal before its death was reported
  bool kill_sent = false;
  bool stuck = false;
  int notices = 0;
  agent::ExitStatus status;
};

class Processes {
 public:
  using Later = std::function<void(Duration, std::function<void()>)>;
  struct Events {
    std::function<void(const Process&)> died;
  };

  Processes(const Faults& faults, Random& random, Later later, Events events);

  Process& add_worker(Generation generation, int local_rank, bool typo);
  Process* worker(Generation generation, int local_rank);
  void signal_group(Generation generation, int local_rank, int signo);
  void signal_process(Process& process, int signo);

  std::vector<Process*> leftovers(Generation generation);  // alive
  std::vector<Process*> alive();
  // Dead and not yet reported, in the order of their deaths; marks them reported.
  std::vector<Process*> reap(Generation generation);
  // SIGKILL is repeated for what this generation forks from now on.
  void keep_killing(Generation generation) { killing_.push_back(generation); }

 private:
  void live(Process& process, bool typo);
  void fork(Process& parent);
  void die(int pid, const agent::ExitStatus& status);
  void die_later(const Process& process, Duration after, const agent::ExitStatus& status);
  Process& at(int pid) { return table_.at(pid); }

  const Faults& faults_;
  Random& random_;
  Later later_;
  Events events_;
  int next_pid_ = 100;
  std::map<int, Process> table_;
  std::vector<int> deaths_;  // of workers, pids in order
  std::vector<Generation> killing_;
};

}  // namespace distrun::sim
