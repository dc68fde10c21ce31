#include "agent/process/oom.h"

#include "agent/process/cgroup.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace distrun::agent {
namespace {

// A file of the kernel's, of which the first 256 KiB are of interest.
std::string read_file(const std::string& path) {
  constexpr std::size_t kMax = 262144;
  std::string contents;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return contents;
  char buffer[4096];
  while (contents.size() < kMax) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n <= 0) break;
    contents.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(fd);
  return contents;
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
  counter_file_ = oom_counter_file("");
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
  return counter_file_.empty() ? 0 : oom_kills(read_file(counter_file_));
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

std::string oom_counter_file(const std::string& root) {
  const std::string memberships = read_file(root + "/proc/self/cgroup");
  const std::string mounts = read_file(root + "/proc/self/mountinfo");
  for (const Cgroup& cgroup : find_cgroups("memory", memberships, mounts)) {
    for (const std::string& folder : cgroup.folders()) {
      std::string file = root + folder;
      file += cgroup.v2 ? "/memory.events" : "/memory.oom_control";
      if (::access(file.c_str(), R_OK) == 0) return file;
    }
  }
  return {};
}

}  // namespace distrun::agent
