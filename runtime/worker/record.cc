// record(): the C++ twin of the decorator that PyTorch's launcher reads error files from.
#include "runtime/base/result.h"
#include "runtime/worker/error_file.h"
#include <distrun/worker.h>

#include <nlohmann/json.hpp>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <exception>
#include <fcntl.h>
#include <memory>
#include <typeinfo>
#include <unistd.h>

namespace distrun {
namespace {

std::string type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : type.name();
}

std::string current_exception_text() {
  try {
    throw;
  } catch (const std::exception& error) {
    return type_name(typeid(error)) + ": " + error.what();
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return type == nullptr ? "unknown exception" : type_name(*type) + ": (no text)";
  }
}

bool write_whole(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

std::string error_file_text(const std::string& message, std::int64_t unix_seconds) {
  const nlohmann::ordered_json extra{{"py_callstack", message + " (a C++ worker: no traceback)"},
                                     {"timestamp", std::to_string(unix_seconds)}};
  const nlohmann::ordered_json inner{{"message", message}, {"extraInfo", extra}};
  const nlohmann::ordered_json outer{{"message", inner}};
  return outer.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// The reader may come at any moment: it sees the whole file, or none.
std::string write_error_file(const std::string& path, const std::string& text) {
  const std::string part = path + ".part." + std::to_string(::getpid());
  const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return os_error("open " + part, errno).detail;
  const bool written = write_whole(fd, text);
  const int failure = errno;
  ::close(fd);
  if (written && ::rename(part.c_str(), path.c_str()) == 0) return "";
  std::string problem = os_error("write " + path, written ? errno : failure).detail;
  ::unlink(part.c_str());
  return problem;
}

int record(const std::function<int()>& body) {
  try {
    return body();
  } catch (...) {
    const std::string message = current_exception_text();
    const char* rank = std::getenv("RANK");
    std::fprintf(stderr, "%s%s%s\n", rank == nullptr ? "" : "rank ", rank == nullptr ? "" : rank,
                 ((rank == nullptr ? "" : ": ") + message).c_str());
    const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
    if (path == nullptr || *path == '\0') return 1;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
    const std::string problem = write_error_file(path, error_file_text(message, seconds));
    if (!problem.empty())
      std::fprintf(stderr, "the error file could not be written: %s\n", problem.c_str());
    return 1;
  }
}

}  // namespace distrun
