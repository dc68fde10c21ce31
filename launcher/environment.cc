#include "launcher/environment.h"

namespace distrun::launcher {

Environment read_environment(const char* const* entries) {
  Environment result;
  for (; entries != nullptr && *entries != nullptr; ++entries) {
    const std::string_view entry(*entries);
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    result.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return result;
}

std::optional<std::string_view> lookup(const Environment& environment, std::string_view name) {
  const auto it = environment.find(name);
  if (it == environment.end()) return std::nullopt;
  return it->second;
}

}  // namespace distrun::launcher
