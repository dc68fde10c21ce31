// LogFileSink: one file of logs.  The bytes as they are; a write error (disk full) is told once
// with path and reason, and from then on the file gets nothing more: the worker and the console go
// on.
#pragma once

#include "runtime/base/result.h"

#include <string>
#include <string_view>

namespace distrun::agent {

// Opened for truncation and appending: a worker that opens its own stdout anew (/dev/stdout) adds
// to it.  Close-on-exec.
Result<int> open_log_file(const std::string& path);

class LogFileSink {
 public:
  LogFileSink() = default;  // swallows everything
  LogFileSink(int fd, std::string path);
  LogFileSink(LogFileSink&& other) noexcept;
  LogFileSink& operator=(LogFileSink&& other) noexcept;
  ~LogFileSink();

  void write(std::string_view bytes);
  void close();
  const std::string& path() const { return path_; }

 private:
  int fd_ = -1;
  std::string path_;
};

}  // namespace distrun::agent
