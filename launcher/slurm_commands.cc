#include "launcher/slurm_commands.h"

#include "launcher/machine_files.h"
#include "launcher/text.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace distrun::launcher {
namespace {

constexpr Duration kLookupLimit = std::chrono::seconds(5);
constexpr std::size_t kOutputMax = 1U << 20U;

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Result<CommandResult> run_command(const std::vector<std::string>& argv, Duration limit,
                                  bool show_errors) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return os_error(argv.front(), errno);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  if (!show_errors) ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  std::vector<char*> words;
  words.reserve(argv.size() + 1);
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = 0;
  const int refused = ::posix_spawnp(&pid, words.front(), &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (refused != 0) {
    ::close(ends[0]);
    return os_error(argv.front(), refused);
  }

  CommandResult result;
  const TimePoint deadline = Clock::now() + limit;
  bool complete = false;
  while (!complete && result.out.size() < kOutputMax) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) break;
    pollfd readable{ends[0], POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 60'000))) <= 0) {
      continue;
    }
    char piece[4096];
    const ssize_t size = ::read(ends[0], piece, sizeof piece);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) {
      complete = true;
    } else {
      result.out.append(piece, static_cast<std::size_t>(size));
    }
  }
  ::close(ends[0]);
  if (!complete) ::kill(pid, SIGKILL);
  result.status = wait_for(pid);
  if (!complete) {
    return Error{Errc::timeout, argv.front() + ": not done after " + duration_text(limit)};
  }
  return result;
}

std::string node_address_in(std::string_view text) {
  constexpr std::string_view kName = "NodeAddr=";
  const std::size_t at = text.find(kName);
  if (at == text.npos) return {};
  text.remove_prefix(at + kName.size());
  return std::string(text.substr(0, text.find_first_of(" \t\n")));
}

std::optional<Duration> kill_wait_in(std::string_view text) {
  std::optional<Duration> found;
  for (std::string_view line : split(text, '\n')) {
    line = trim(line.substr(0, line.find('#')));
    const std::size_t equals = line.find('=');
    if (equals == line.npos || !same_word(trim(line.substr(0, equals)), "KillWait")) continue;
    if (const auto seconds = parse_int(line.substr(equals + 1), 0, 65535)) {
      found = std::chrono::seconds(*seconds);
    }
  }
  return found;
}

SlurmSources slurm_sources(const Environment& environment) {
  SlurmSources sources;
  // The C library's own look-up cannot be ended, and takes half a minute without a name server.
  sources.resolves = [](const std::string& name) {
    const auto asked = run_command({"getent", "ahosts", "--", name}, kLookupLimit);
    return asked && asked->status == 0 && !asked->out.empty();
  };
  sources.node_address = [](const std::string& node) {
    const auto asked = run_command({"scontrol", "--oneliner", "show", "node", node}, kLookupLimit);
    return asked && asked->status == 0 ? node_address_in(asked->out) : std::string();
  };
  sources.kill_wait = [&environment]() -> std::optional<Duration> {
    std::vector<std::string> files{"/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf",
                                   "/etc/slurm-llnl/slurm.conf"};
    if (const auto own = lookup(environment, "SLURM_CONF"))
      files.insert(files.begin(), std::string(*own));
    for (const std::string& file : files) {
      const std::string text = read_file(file);
      if (!text.empty()) return kill_wait_in(text);
    }
    return std::nullopt;
  };
  return sources;
}

}  // namespace distrun::launcher
