#include "agent/process/oom.h"

#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace distrun::agent {
namespace {

// Small files of the kernel's: at most 4 KiB are of interest.
std::string read_small_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char buffer[4096];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  ::close(fd);
  return n > 0 ? std::string(buffer, static_cast<std::size_t>(n)) : std::string();
}

}  // namespace

OomWatch::~OomWatch() {
  if (kernel_log_ >= 0) ::close(kernel_log_);
}

void OomWatch::start() {
  // The inode of the machine's own pid namespace is a constant of the kernel's.
  constexpr ino_t kInitialPidNamespace = 0xEFFFFFFC;
  struct stat space {};
  if (::stat("/proc/self/ns/pid", &space) == 0 && space.st_ino == kInitialPidNamespace) {
    kernel_log_ = ::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (kernel_log_ >= 0) ::lseek(kernel_log_, 0, SEEK_END);
  }
  counter_file_ = oom_counter_file(read_small_file("/proc/self/cgroup"), "/sys/fs/cgroup");
  explained_ = counter();
}

bool OomWatch::killed(pid_t pid) {
  if (kernel_log_ >= 0) {
    read_kernel_log();
    return named_.erase(pid) > 0;
  }
  if (counter() <= explained_) return false;
  ++explained_;
  return true;
}

void OomWatch::read_kernel_log() {
  // Bounded by the kernel's ring; EPIPE says that records were overwritten before we came.
  for (;;) {
    char record[8192];
    const ssize_t n = ::read(kernel_log_, record, sizeof record);
    if (n < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (n <= 0) return;
    if (const pid_t pid = oom_killed_pid({record, static_cast<std::size_t>(n)})) named_.insert(pid);
  }
}

std::uint64_t OomWatch::counter() const {
  return counter_file_.empty() ? 0 : oom_kills(read_small_file(counter_file_));
}

pid_t oom_killed_pid(std::string_view record) {
  constexpr std::string_view kSentence = "Killed process ";
  const std::size_t at = record.find(kSentence);
  pid_t pid = 0;
  if (at != record.npos) {
    std::from_chars(record.data() + at + kSentence.size(), record.data() + record.size(), pid);
  }
  return pid;
}

std::uint64_t oom_kills(std::string_view counter_file) {
  const std::string_view text = counter_file;
  constexpr std::string_view kName = "oom_kill ";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(kName)) {
      std::uint64_t value = 0;
      std::from_chars(line.data() + kName.size(), line.data() + line.size(), value);
      return value;
    }
    at = end + 1;
  }
  return 0;
}

std::string oom_counter_file(std::string_view proc_cgroup, const std::string& cgroup_root) {
  const std::string_view text = proc_cgroup;
  std::string v1;
  std::string v2;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);  // "ID:controllers:/path"
    at = end + 1;
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    for (std::size_t c = 0; c < controllers.size();) {
      const std::size_t comma = std::min(controllers.find(',', c), controllers.size());
      if (controllers.substr(c, comma - c) == "memory") {
        v1 = cgroup_root + "/memory";
        v1 += path;
        v1 += "/memory.oom_control";
      }
      c = comma + 1;
    }
    if (controllers.empty()) v2 = cgroup_root + path + "/memory.events";
  }
  // A hybrid machine lists both; the memory controller is then v1's.
  return v1.empty() ? v2 : v1;
}

}  // namespace distrun::agent
