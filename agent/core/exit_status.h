// ExitStatus: how a worker ended, as the kernel or the spawn told it: it exited, a signal killed
// it, or it never started.  With it, the text for people and the exit code that the launcher takes
// over.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

namespace distrun::agent {

// What a new process has to get through before the worker's program runs.  A spawn that fails names
// the stage, so that "No such file or directory" is never about an unknown thing.
enum class ExecStage {
  log_file,             // the agent: opening the worker's output files
  pipe,                 // the agent: pipes for output
  fork,                 // the agent: making the process
  pidfd,                // the agent: a handle on it
  session,              // the child: its own session and process group
  parent_death_signal,  // the child: dying with the agent
  signals,              // the child: signal mask and dispositions
  cpus,                 // the child: its CPU set and memory policy
  streams,              // the child: stdin, stdout, stderr
  chdir,                // the child: the working directory
  exec,                 // the child: the program itself
};
inline constexpr std::array kExecStageTexts{
    std::string_view{"log file"},       std::string_view{"pipe"},
    std::string_view{"fork"},           std::string_view{"pidfd"},
    std::string_view{"session"},        std::string_view{"parent-death signal"},
    std::string_view{"signal mask"},    std::string_view{"CPU affinity"},
    std::string_view{"output streams"}, std::string_view{"chdir"},
    std::string_view{"exec"},
};
static_assert(kExecStageTexts.size() == static_cast<std::size_t>(ExecStage::exec) + 1,
              "each stage has its text");

std::string_view to_string(ExecStage stage);

struct ExitedWith {
  int code = 0;
  bool operator==(const ExitedWith&) const = default;
};

struct KilledBy {
  int signo = 0;
  bool core_dumped = false;
  bool oom_killed = false;  // the kernel's OOM killer did it (cgroup memory.events, kernel log)
  bool operator==(const KilledBy&) const = default;
};

struct NeverStarted {
  ExecStage stage = ExecStage::exec;
  int error = 0;  // errno; 0: the edge has said why
  bool operator==(const NeverStarted&) const = default;
};

using ExitStatus = std::variant<ExitedWith, KilledBy, NeverStarted>;

bool succeeded(const ExitStatus& status);

// The system was short of something that it may have again in a moment (processes, memory, file
// descriptors; a program file still being written): another try is not blind.
bool may_pass(const NeverStarted& failure);

// "exited with status 3" · "killed by SIGSEGV (core dumped)" ·
// "killed by SIGKILL (out of memory: the kernel's OOM killer)" ·
// "could not start: chdir: No such file or directory"
std::string to_text(const ExitStatus& status);

// "SIGTERM"; "signal 77" for a number without a name.
std::string signal_name(int signo);

// What a shell would say: n for exit status n, 128+s for signal s, 127 for a program that was not
// found, 126 for one that cannot be executed; 71 (EX_OSERR) for a spawn that failed before its
// exec.
int process_exit_code(const ExitStatus& status);

// The process did this to itself: it exited, or crashed (SIGSEGV, SIGABRT…).  False for a signal
// that somebody sent (SIGKILL, SIGTERM…) and for a worker that never was.
bool by_itself(const ExitStatus& status);

}  // namespace distrun::agent
