// time_run ROUNDS TIMEOUT_MS COMMAND... [--- COMMAND...]...: runs the commands in turn, A B A B,
// and prints one line for each run:
//
//   command round wall_us user_us system_us max_rss_kib status left_behind
//
// wall_us is from just before the spawn until the command itself has been waited for. status is the
// exit status, 128+n for signal n, or -1 for a run that was killed because it took TIMEOUT_MS.
// left_behind counts processes of the command that outlived it; they are waited for (two seconds,
// then killed) before the next run begins, so that no run pays for the one before it. Commands'
// output goes to /dev/null. Every process ends before time_run does.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <spawn.h>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern char** environ;

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kLeftoverPatience{2};

long long micros(const timeval& time) {
  return time.tv_sec * 1'000'000LL + time.tv_usec;
}

// Waits until the pid is waitable or the time is up.
bool ended_within(pid_t pid, int timeout_ms) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return true;
  pollfd wait{fd, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&wait, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  ::close(fd);
  return ready > 0;
}

// All our children: the command and, as we are a subreaper, whatever it orphaned.
std::vector<pid_t> children() {
  std::ifstream file("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  std::vector<pid_t> found;
  for (pid_t pid = 0; file >> pid;) found.push_back(pid);
  return found;
}

int reap_leftovers(bool at_once) {
  int count = 0;
  const auto deadline = Clock::now() + (at_once ? Clock::duration::zero() : kLeftoverPatience);
  for (;;) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid > 0) {
      ++count;
      continue;
    }
    if (pid < 0 && errno == ECHILD) return count;
    if (Clock::now() > deadline) {
      for (const pid_t child : children()) ::kill(child, SIGKILL);
    }
    ::usleep(200);
  }
}

struct Run {
  long long wall_us = 0;
  rusage usage{};
  int status = 0;
  int left = 0;
};

Run run(char** command, int timeout_ms, const posix_spawn_file_actions_t& actions) {
  Run result;
  pid_t pid = 0;
  const auto start = Clock::now();
  const int error = ::posix_spawnp(&pid, command[0], &actions, nullptr, command, environ);
  if (error != 0) {
    std::fprintf(stderr, "time_run: %s: %s\n", command[0], std::strerror(error));
    std::exit(1);
  }
  const bool ended = ended_within(pid, timeout_ms);
  if (!ended) ::kill(pid, SIGKILL);
  int status = 0;
  while (::wait4(pid, &status, 0, &result.usage) < 0 && errno == EINTR) continue;
  result.wall_us =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
  result.status = !ended ? -1 : WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  result.left = reap_leftovers(!ended);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const long rounds = argc > 3 ? std::strtol(argv[1], nullptr, 10) : 0;
  const int timeout_ms = argc > 3 ? std::atoi(argv[2]) : 0;
  if (rounds < 1 || timeout_ms < 1) {
    std::fputs("usage: time_run ROUNDS TIMEOUT_MS COMMAND... [--- COMMAND...]...\n", stderr);
    return 2;
  }
  std::vector<char**> commands{argv + 3};
  for (int i = 3; i < argc; ++i) {
    if (std::strcmp(argv[i], "---") != 0) continue;
    argv[i] = nullptr;
    commands.push_back(argv + i + 1);
  }
  for (char** command : commands) {
    if (*command == nullptr) return 2;
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);

  for (long round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < commands.size(); ++i) {
      const Run result = run(commands[i], timeout_ms, actions);
      std::printf("%zu %ld %lld %lld %lld %ld %d %d\n", i, round, result.wall_us,
                  micros(result.usage.ru_utime), micros(result.usage.ru_stime),
                  result.usage.ru_maxrss, result.status, result.left);
      std::fflush(stdout);
    }
  }
  ::posix_spawn_file_actions_destroy(&actions);
  return 0;
}
