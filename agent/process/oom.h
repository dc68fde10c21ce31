// OomWatch: did the kernel's out-of-memory killer end a worker?  SIGKILL alone does not say.
//
// Two witnesses, and either is enough: the kernel's log (/dev/kmsg) names each pid that it killed,
// and the memory cgroup counts its kills.  The log needs the right to read it and our own pid
// namespace to be the machine's; the counter names nobody, so it is believed only when it grew
// since the last look.
#pragma once

#include <cstdint>
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

  int kernel_log_ = -1;
  std::string counter_file_;
  std::uint64_t counted_ = 0;
};

// Pure, for tests.
//
// "… Killed process 4711 (python) …" for this pid, as the kernel writes it for a machine and for a
// cgroup out of memory.
bool names_oom_kill(std::string_view kernel_log_record, pid_t pid);
// The number behind "oom_kill " in memory.events (v2) or memory.oom_control (v1); 0 if there is
// none.
std::uint64_t oom_kills(std::string_view counter_file);
// The counter file of the process whose /proc/PID/cgroup this is, below `cgroup_root`; v2 before
// v1; empty: it is in no memory cgroup.
std::string oom_counter_file(std::string_view proc_cgroup, const std::string& cgroup_root);

}  // namespace distrun::agent
