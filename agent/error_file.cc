// The error file of torch.distributed.elastic: read_error_file and write_root_cause.  With log.cc
// the only user of nlohmann in the agent's process.
#include "agent/failure_report.h"
#include "runtime/base/log.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace distrun::agent {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLargestFile = std::size_t{1} << 20;
constexpr int kDeepest = 32;  // writing JSON recurses

std::string read_file(int fd, std::string& problem) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    problem = "not a regular file";
    return {};
  }
  std::string text(kLargestFile + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = ::read(fd, text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) problem = os_error("cannot be read", errno).detail;
    if (n <= 0) break;
    size += static_cast<std::size_t>(n);
  }
  text.resize(size);
  if (size > kLargestFile) problem = "larger than 1 MiB";
  return text;
}

// Discarded if it is not JSON, or too deep.
Json parse(const std::string& text) {
  bool too_deep = false;
  const Json::parser_callback_t watch = [&too_deep](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kDeepest;
    return !too_deep;
  };
  Json json = Json::parse(text, watch, false);
  return too_deep ? Json(Json::value_t::discarded) : json;
}

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string string_member(const Json& object, const char* name) {
  const Json* value = member(object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

// A number, or a number in a string.
std::int64_t timestamp_of(const Json& object) {
  const Json* value = member(object, "timestamp");
  if (value == nullptr) return 0;
  if (value->is_number_integer()) return value->get<std::int64_t>();
  std::int64_t seconds = 0;
  if (value->is_string()) {
    const auto& text = value->get_ref<const std::string&>();
    std::from_chars(text.data(), text.data() + text.size(), seconds);
  }
  return seconds;
}

void understand(ErrorFile& file) {
  const Json json = parse(file.text);
  const Json* message = member(json, "message");
  if (message == nullptr) {
    file.problem = json.is_discarded() ? "not JSON" : "JSON without a \"message\"";
  } else if (message->is_string()) {
    file.message = message->get<std::string>();
    file.timestamp = timestamp_of(json);
  } else {
    file.message = string_member(*message, "message");
    if (const Json* extra = member(*message, "extraInfo")) {
      file.traceback = string_member(*extra, "py_callstack");
      file.timestamp = timestamp_of(*extra);
    }
    if (file.message.empty() && file.traceback.empty()) file.problem = "JSON without a text";
  }
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text.append(line).append("\n");
  return text;
}

Json root_cause_json(const WorkerEnd& end) {
  Json json = end.error.exists && end.error.problem.empty() ? parse(end.error.text) : Json();
  if (!json.is_object()) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(end.ended.time_since_epoch()).count();
    const Json extra{{"py_callstack", joined(end.last_err)},
                     {"timestamp", std::to_string(seconds)}};
    json = {{"message", {{"message", to_text(end.status)}, {"extraInfo", extra}}}};
  }
  if (json["message"].is_object()) json["message"]["errorCode"] = elastic_exit_code(end.status);
  return json;
}

// Whole or not at all, unless the path is a device or a pipe.
Result<bool> replace_file(const std::string& path, std::string_view text) {
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  const bool in_place = exists && !S_ISREG(status.st_mode);
  if (exists && !in_place && status.st_size > 0) {
    log::warn("replaces an error file that was there already", {{"file", path}});
  }
  const std::string target = in_place ? path : path + "." + std::to_string(::getpid());
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  const int fd = ::open(target.c_str(), flags, 0666);
  if (fd < 0) return os_error("cannot write the error file " + path, errno);
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  int why = text.empty() ? 0 : errno;
  if (::close(fd) != 0 && why == 0) why = errno;
  if (why == 0 && !in_place && std::rename(target.c_str(), path.c_str()) != 0) why = errno;
  if (why == 0) return true;
  if (!in_place) ::unlink(target.c_str());
  return os_error("cannot write the error file " + path, why);
}

}  // namespace

ErrorFile read_error_file(const std::string& path) {
  ErrorFile file;
  if (path.empty()) return file;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    file.exists = errno != ENOENT && errno != ENOTDIR;
    if (file.exists) file.problem = os_error("cannot be opened", errno).detail;
    return file;
  }
  file.text = read_file(fd, file.problem);
  ::close(fd);
  file.exists = !file.text.empty() || !file.problem.empty();
  if (file.exists && file.problem.empty()) understand(file);
  return file;
}

Result<bool> write_root_cause(const FailureReport& report, const std::string& path) {
  for (const WorkerEnd& end : report.ends) {
    if (end.part != Part::first_failure) continue;
    return replace_file(path,
                        root_cause_json(end).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return Error{Errc::invalid_argument, "no first failure to write into " + path};
}

}  // namespace distrun::agent
