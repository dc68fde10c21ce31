// OomWatch: did the kernel's out-of-memory killer end a worker?  SIGKILL alone does not say.
//
// Two witnesses.  The kernel's log (/dev/kmsg) names each pid that it killed: where it can be read
// and our pids are the machine's (not those of a namespace), it alone is believed.  Else the memory
// cgroup's counter of kills, which names nobody: each kill that it counts explains one worker.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace distrun::agent {

class OomWatch {
 public:
  OomWatch() = default;
  ~OomWatch();
  OomWatch(const OomWatch&) = delete;
  OomWatch& operator=(const OomWatch&) = delete;

  // Opens the witnesses; from now on kills are seen.  Costs some 50 us: after the workers' start is
  // early enough.
  void start();

  // Whether `pid`, which has just died by SIGKILL, was the OOM killer's.
  bool killed(pid_t pid);

 private:
  std::uint64_t counter() const;
  void read_kernel_log();

  int kernel_log_ = -1;  // open only if it is to be believed
  std::set<pid_t> named_;
  std::string counter_file_;
  std::uint64_t explained_ = 0;  // kills that were there before us, or explain a worker already
};

// Pure, for tests.
//
// The pid in "… Killed process 4711 (python) …", as the kernel writes it for a machine and for a
// cgroup out of memory; 0: the record is about something else.
pid_t oom_killed_pid(std::string_view kernel_log_record);
// The number behind "oom_kill " in memory.events (v2) or memory.oom_control (v1); 0 if there is
// none.
std::uint64_t oom_kills(std::string_view counter_file);

// The file with the counter of this process's memory cgroup, or of the nearest one above it that
// can be read; empty: there is none.  All paths are below `root`, so that a test may build one.
std::string oom_counter_file(const std::string& root);

}  // namespace distrun::agent
