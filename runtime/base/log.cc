#include "runtime/base/log.h"

#include <nlohmann/json.hpp>
#include <spdlog/details/null_mutex.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include <memory>
#include <unistd.h>

namespace distrun::log {
namespace {

// spdlog decides what is logged and gives time and level; the sink carries the finished line out.
class LineSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  std::function<void(std::string_view)> out;

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const std::string_view text(line.data(), line.size());
    if (out) {
      out(text);
      return;
    }
    for (std::string_view rest = text; !rest.empty();) {
      const ssize_t n = ::write(STDERR_FILENO, rest.data(), rest.size());
      if (n <= 0) return;  // nobody can be told that stderr is gone
      rest.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void flush_() override {}
};

struct Log {
  std::shared_ptr<LineSink> sink = std::make_shared<LineSink>();
  spdlog::logger logger{"distrun", sink};
  Format format = Format::text;
  Log() { logger.set_pattern("distrun: %v"); }
};

Log& the_log() {
  static Log log;
  return log;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::string as_text(Level level, std::string_view text, const Fields& fields) {
  std::string line;
  if (level == Level::warning) line += "warning: ";
  if (level == Level::error) line += "error: ";
  if (level == Level::debug) line += "debug: ";
  line += text;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    line += i == 0 ? " (" : ", ";
    line.append(fields[i].first).append("=").append(fields[i].second);
  }
  if (!fields.empty()) line += ")";
  // Some of it comes from the network, and a terminal obeys control characters.
  for (char& c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) c = '?';
  }
  return line;
}

// The members behind time and level, which the pattern writes.
std::string as_json(std::string_view text, const Fields& fields) {
  nlohmann::ordered_json object;
  object["text"] = text;
  for (const auto& [name, value] : fields) object[std::string(name)] = value;
  const std::string all =
      object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return all.substr(1);
}

void write(Level level, std::string_view text, const Fields& fields) {
  Log& log = the_log();
  const auto spd_level = to_spdlog(level);
  if (!log.logger.should_log(spd_level)) return;
  const std::string line =
      log.format == Format::json ? as_json(text, fields) : as_text(level, text, fields);
  log.logger.log(spd_level, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace

void start(const Options& options) {
  Log& log = the_log();
  log.format = options.format;
  log.logger.set_level(to_spdlog(options.level));
  log.logger.set_pattern(options.format == Format::json
                             ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v)"
                             : "distrun: %v");
}

void debug(std::string_view text, const Fields& fields) {
  write(Level::debug, text, fields);
}
void info(std::string_view text, const Fields& fields) {
  write(Level::info, text, fields);
}
void warn(std::string_view text, const Fields& fields) {
  write(Level::warning, text, fields);
}
void error(std::string_view text, const Fields& fields) {
  write(Level::error, text, fields);
}

void set_sink(std::function<void(std::string_view)> sink) {
  the_log().sink->out = std::move(sink);
}

}  // namespace distrun::log
