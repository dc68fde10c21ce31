#include "runtime/base/result.h"
#include "runtime/base/time.h"
#include <distrun/spawn.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace distrun {
namespace {

constexpr std::size_t kMaxWords = 4000;
constexpr auto kLook = std::chrono::milliseconds(20);
constexpr auto kMoment = std::chrono::milliseconds(300);
constexpr int kUnknown = -1;  // no status of wait()

struct Child {
  pid_t pid = -1;
  int words = -1;  // read end: what it threw
  std::optional<int> status;
  std::string thrown;
  bool blames_another = false;
};

// In front of the words: whether they blame another rank.
constexpr char kOwn = 'o', kAnother = 'a';

// Where the ranks meet; gone with it.
class Folder {
 public:
  Folder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "distrun_spawn.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      throw DistStoreError("spawn: " + os_error("mkdtemp " + pattern, errno).detail);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

int threads_of_this_process() {
  int threads = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++threads;
  return threads;
}

[[noreturn]] void run_child(int words, pid_t parent,
                            const std::function<void(const GroupOptions&)>& body,
                            const GroupOptions& options) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  std::string what(1, kOwn);
  try {
    body(options);
    std::fflush(nullptr);
    ::_exit(0);
  } catch (const DistError& error) {
    if (error.peer_rank()) what[0] = kAnother;
    what += error.what();
  } catch (const std::exception& error) {
    what += error.what();
  } catch (...) {
    what += "an exception that is no std::exception";
  }
  what.resize(std::min(what.size(), kMaxWords));  // fits a pipe
  [[maybe_unused]] const ssize_t written = ::write(words, what.data(), what.size());
  std::fflush(nullptr);
  ::_exit(1);
}

std::string how_it_ended(const Child& child) {
  if (!child.thrown.empty()) return child.thrown;
  const int status = child.status.value_or(0);
  if (status == kUnknown) return "ended, and something else in this process took its exit status";
  if (WIFSIGNALED(status))
    return std::string("killed by signal ") + std::to_string(WTERMSIG(status)) + " (" +
           ::strsignal(WTERMSIG(status)) + ")";
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

class Family {
 public:
  explicit Family(Timeout grace) : grace_(grace) {}
  // Whatever happened here, nobody stays.
  ~Family() {
    for (Child& child : children_) {
      if (child.pid > 0 && !child.status) {
        ::kill(child.pid, SIGKILL);
        ::waitpid(child.pid, nullptr, 0);
      }
      if (child.words >= 0) ::close(child.words);
    }
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  void add(const std::function<void(const GroupOptions&)>& body, const GroupOptions& options) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw DistStoreError("spawn: " + os_error("pipe", errno).detail);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(ends[0]);
      run_child(ends[1], parent, body, options);
    }
    const int failure = errno;
    ::close(ends[1]);
    children_.push_back({pid, ends[0], std::nullopt, {}});
    if (pid < 0) throw DistStoreError("spawn: " + os_error("fork", failure).detail);
  }

  // The rank of the first that failed.  Of several within a moment, one that blames no other: whose
  // group broke because of another's failure may end before that one.
  std::optional<int> wait() {
    std::optional<int> failed;
    TimePoint settled = TimePoint::max(), kill_at = TimePoint::max();
    for (;;) {
      bool all = true;
      for (std::size_t rank = 0; rank < children_.size(); ++rank) {
        Child& child = children_[rank];
        if (child.status) continue;
        if (!has_ended(child)) {
          all = false;
          continue;
        }
        if (*child.status == 0) continue;
        const bool better = failed && Clock::now() < settled && !child.blames_another &&
                            children_[static_cast<std::size_t>(*failed)].blames_another;
        if (!failed) settled = Clock::now() + kMoment;
        if (!failed || better) failed = static_cast<int>(rank);
      }
      if (all) return failed;
      const TimePoint now = Clock::now();
      const bool named = failed && (now >= settled ||
                                    !children_[static_cast<std::size_t>(*failed)].blames_another);
      if (named && kill_at == TimePoint::max() && !std::exchange(told_, true)) {
        kill_at = now + grace_;
        signal_all(SIGTERM);
      }
      if (now >= kill_at) {
        signal_all(SIGKILL);
        kill_at = TimePoint::max();
      }
      ::poll(nullptr, 0, static_cast<int>(std::chrono::milliseconds(kLook).count()));
    }
  }

  std::string words_of(int rank) const {
    return how_it_ended(children_[static_cast<std::size_t>(rank)]);
  }

 private:
  static bool has_ended(Child& child) {
    int status = 0;
    const pid_t ended = ::waitpid(child.pid, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
    // Somebody else has taken its status: how it ended is not known, and so not that it went well.
    child.status = ended == child.pid ? status : kUnknown;
    read_words(child);
    return true;
  }
  static void read_words(Child& child) {
    char room[kMaxWords];
    pollfd readable{child.words, POLLIN, 0};
    if (::poll(&readable, 1, 0) <= 0 || (readable.revents & POLLIN) == 0) return;
    const ssize_t n = ::read(child.words, room, sizeof room);
    if (n < 2) return;
    child.blames_another = room[0] == kAnother;
    child.thrown.assign(room + 1, static_cast<std::size_t>(n - 1));
  }
  void signal_all(int signo) {
    for (const Child& child : children_)
      if (!child.status) ::kill(child.pid, signo);
  }

  const Timeout grace_;
  bool told_ = false;
  std::vector<Child> children_;
};

}  // namespace

void spawn(int processes, const std::function<void(const GroupOptions& options)>& body,
           const SpawnOptions& options) {
  if (processes < 1)
    throw DistArgumentError("spawn: " + std::to_string(processes) + " processes; at least one");
  if (const int threads = threads_of_this_process(); threads != 1)
    throw DistArgumentError("spawn: this process has " + std::to_string(threads) +
                            " threads, and only one would go on after fork(); spawn before groups "
                            "and threads are made");
  struct sigaction reaping {};
  ::sigaction(SIGCHLD, nullptr, &reaping);
  if (reaping.sa_handler == SIG_IGN || (reaping.sa_flags & SA_NOCLDWAIT) != 0)
    throw DistArgumentError(
        "spawn: SIGCHLD is ignored in this process, so that nobody could learn how a rank ended");
  const Folder folder;
  std::fflush(nullptr);  // else each child would write it, too
  Family family(options.grace);
  for (int rank = 0; rank < processes; ++rank) {
    GroupOptions group;
    group.init_method = "file://" + folder.path() + "/store";
    group.rank = rank;
    group.world_size = processes;
    family.add(body, group);
  }
  if (const auto failed = family.wait())
    throw DistProcessError("spawn: rank " + std::to_string(*failed) + " of " +
                               std::to_string(processes) + ": " + family.words_of(*failed),
                           *failed);
}

}  // namespace distrun
