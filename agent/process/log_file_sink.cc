#include "agent/process/log_file_sink.h"

#include "runtime/base/log.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace distrun::agent {

Result<int> open_log_file(const std::string& path) {
  const int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
  if (fd < 0) return os_error("cannot open the log file " + path, errno);
  return fd;
}

LogFileSink::LogFileSink(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

LogFileSink::LogFileSink(LogFileSink&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

LogFileSink& LogFileSink::operator=(LogFileSink&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

LogFileSink::~LogFileSink() {
  close();
}

void LogFileSink::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void LogFileSink::write(std::string_view bytes) {
  while (fd_ >= 0 && !bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      log::error("a log file cannot be written any more; its worker and the console go on",
                 {{"file", path_}, {"reason", std::strerror(errno)}});
      close();
    }
  }
}

}  // namespace distrun::agent
