#include "agent/process/guard.h"

#include "agent/process/descendants.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <signal.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace distrun::agent {
namespace {

// What is still there after this long is stuck in the kernel, and no signal can end it.
constexpr auto kKillPatience = std::chrono::seconds(10);
// An agent that is killed for being stuck had this long for the stop before.
constexpr auto kTimeForTheLast = std::chrono::seconds(1);

void kill_all_that_is_left() {
  const TimePoint deadline = Clock::now() + kKillPatience;
  for (;;) {
    reap_orphans();
    if (!has_children()) return;
    const std::vector<Process> left = kill_descendants();
    if (Clock::now() > deadline) {
      for (const Process& process : left) {
        log::error("a process does not end, even by SIGKILL",
                   {{"pid", std::to_string(process.pid)}, {"name", process.name}});
      }
      return;
    }
    const timespec pause{0, 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

struct Ended {
  int status = 0;
  bool killed = false;
};

// Reaps everything that has ended; the agent's own status if it is among them.
std::optional<Ended> reap_until_agent(pid_t agent) {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) {
      return std::nullopt;
    }
    if (info.si_pid == agent) return Ended{info.si_status, info.si_code != CLD_EXITED};
  }
}

int guard(pid_t agent, int fd, const sigset_t& wanted, int stops_until_killed) {
  int stops = 0;
  TimePoint before{};
  for (;;) {
    siginfo_t info{};
    const int signo = ::sigwaitinfo(&wanted, &info);
    if (signo < 0) continue;  // EINTR by a stop and continue of ourselves
    if (signo == SIGCHLD) {
      const std::optional<Ended> ended = reap_until_agent(agent);
      if (!ended) continue;
      kill_all_that_is_left();
      if (!ended->killed) return ended->status;
      log::error(std::string("the agent process was killed by signal ") +
                 std::to_string(ended->status) + "; everything that it had started is ended");
      return 128 + ended->status;
    }
    if (signo == SIGINT || signo == SIGTERM) {
      const TimePoint now = Clock::now();
      if (++stops < stops_until_killed) before = now;
      if (stops >= stops_until_killed && now - before >= kTimeForTheLast) {
        ::kill(agent, SIGKILL);
      }
    }
    const auto byte = static_cast<unsigned char>(signo);
    // A full socket means that hundreds of signals are unread: one more would add nothing.
    (void)!::send(fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

}  // namespace

std::vector<int> guarded_signals(const std::vector<int>& stop_signals) {
  std::vector<int> wanted = stop_signals;
  for (const int passed : {SIGUSR1, SIGUSR2, SIGCONT}) {
    if (std::find(wanted.begin(), wanted.end(), passed) == wanted.end()) wanted.push_back(passed);
  }
  std::erase_if(wanted, [](int signo) {
    struct sigaction now {};
    return ::sigaction(signo, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
  });
  return wanted;
}

int run_guarded(const std::vector<int>& signals, const std::function<int(int fd)>& agent,
                int stops_until_killed) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    log::error(std::string("socketpair: ") + std::strerror(errno));
    return 70;
  }
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  for (const int signo : signals) sigaddset(&wanted, signo);
  // As a background group the agent may not be stopped for writing to the terminal.
  sigset_t agent_blocks = wanted;
  sigaddset(&agent_blocks, SIGTTOU);
  // Blocked before the fork, so that none is lost between here and the agent's own handling.
  ::sigprocmask(SIG_BLOCK, &agent_blocks, nullptr);
  become_subreaper();
  const pid_t child = ::fork();
  if (child < 0) {
    log::error(std::string("fork: ") + std::strerror(errno));
    return 70;
  }
  if (child == 0) {
    ::close(ends[0]);
    // Its own group: `kill -9 %1` in a shell, and Ctrl-C, are for the group of the guard.
    ::setpgid(0, 0);
    become_subreaper();  // not inherited
    std::exit(agent(ends[1]));
  }
  ::close(ends[1]);
  return guard(child, ends[0], wanted, stops_until_killed);
}

}  // namespace distrun::agent
