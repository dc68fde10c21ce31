// The program's own log, on stderr: text for people, one JSON object a line on request.  The only
// user of spdlog is log.cc.  Workers' output never passes through here (agent/process/output.h).
//
// A message is one sentence; facts that a machine may want are fields beside it:
//
//   log::warn("worker was killed", {{"rank", "3"}, {"signal", "SIGKILL"}});
//
//   text   distrun: warning: worker was killed (rank=3, signal=SIGKILL)
//   json   {"time":"2026-…","level":"warning","text":"worker was killed","rank":"3",…}
//
// Not thread-safe; one thread.  Before start() the level is info and the format text.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distrun::log {

enum class Level { debug, info, warning, error };
enum class Format { text, json };

struct Options {
  Level level = Level::info;
  Format format = Format::text;
};

using Fields = std::vector<std::pair<std::string_view, std::string>>;

void start(const Options& options);
void debug(std::string_view text, const Fields& fields = {});
void info(std::string_view text, const Fields& fields = {});
void warn(std::string_view text, const Fields& fields = {});
void error(std::string_view text, const Fields& fields = {});

// Called with each finished line (newline included) instead of writing it to fd 2: the console
// shares stderr with workers' lines and a progress line, and must order them.  Empty: fd 2 again.
void set_sink(std::function<void(std::string_view)> sink);

}  // namespace distrun::log
