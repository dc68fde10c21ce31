#include "agent/process/descendants.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <optional>
#include <signal.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace distrun::agent {
namespace {

struct Stat {
  Process process;
  char state = '?';
};

// /proc/PID/stat: "pid (name) state ppid …"; the name may hold blanks and brackets.
std::optional<Stat> read_stat(const char* pid_text) {
  char path[64] = "/proc/";
  if (std::strlen(pid_text) > 32) return std::nullopt;
  std::strcat(std::strcat(path, pid_text), "/stat");
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;  // gone meanwhile
  char buffer[512];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  ::close(fd);
  if (n <= 0) return std::nullopt;
  const std::string_view text(buffer, static_cast<std::size_t>(n));
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(')');
  if (open == text.npos || close == text.npos || close + 4 > text.size()) return std::nullopt;
  Stat stat;
  stat.state = text[close + 2];
  stat.process.name = text.substr(open + 1, close - open - 1);
  std::from_chars(text.data(), text.data() + open, stat.process.pid);
  const auto [after, ec] =
      std::from_chars(text.data() + close + 4, text.data() + text.size(), stat.process.parent);
  if (ec != std::errc() || after + 1 >= text.data() + text.size()) return std::nullopt;
  std::from_chars(after + 1, text.data() + text.size(), stat.process.group);
  return stat;
}

std::vector<Stat> all_processes() {
  std::vector<Stat> all;
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return all;
  while (const dirent* entry = ::readdir(proc)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    if (auto stat = read_stat(entry->d_name)) all.push_back(std::move(*stat));
  }
  ::closedir(proc);
  return all;
}

std::vector<Process> living_below(pid_t root) {
  const std::vector<Stat> all = all_processes();
  std::vector<Process> found;
  std::vector<pid_t> parents{root};
  // Zombies are walked through: a dead thread leader can still be the parent of living children.
  while (!parents.empty()) {
    const pid_t parent = parents.back();
    parents.pop_back();
    for (const Stat& stat : all) {
      const pid_t pid = stat.process.pid;
      if (stat.process.parent != parent || pid == parent) continue;
      parents.push_back(pid);
      if (stat.state != 'Z' && stat.state != 'X') found.push_back(stat.process);
    }
  }
  return found;
}

}  // namespace

void become_subreaper() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

std::vector<pid_t> children() {
  const std::string path = "/proc/self/task/" + std::to_string(::getpid()) + "/children";
  std::vector<pid_t> pids;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return pids;
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(fd);
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    pid_t pid = 0;
    const auto [next, ec] = std::from_chars(at, end, pid);
    if (ec == std::errc()) pids.push_back(pid);
    at = next + 1;
  }
  return pids;
}

std::vector<Process> descendants() {
  return living_below(::getpid());
}

std::vector<Process> kill_descendants() {
  std::vector<Process> found = living_below(::getpid());
  // A pid read from /proc a moment ago may be reused only after its parent reaped it; a foreign
  // parent could.  The window is microseconds wide and pids are handed out in circles.
  for (const Process& process : found) ::kill(process.pid, SIGKILL);
  // Those that slipped through the scan have become our children by now.
  for (const pid_t pid : children()) ::kill(pid, SIGKILL);
  return found;
}

void reap_orphans(const std::vector<pid_t>& tracked) {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (std::find(tracked.begin(), tracked.end(), info.si_pid) != tracked.end()) return;
    siginfo_t reaped{};
    ::waitid(P_PID, static_cast<id_t>(info.si_pid), &reaped, WEXITED | WNOHANG);
  }
}

}  // namespace distrun::agent
