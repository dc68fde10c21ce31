// Environment: the variables the launcher was started with, as a value.  main() reads it once;
// nothing in this folder calls getenv, so a test says what the environment is.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace distrun::launcher {

using Environment = std::map<std::string, std::string, std::less<>>;

// `entries` is like ::environ: NAME=value strings, null at the end.  Of a name that is there twice
// the first counts, as with getenv; an entry without '=' is dropped.
Environment read_environment(const char* const* entries);

// The value of a variable; nullopt: not set.  A variable may be set and empty.
std::optional<std::string_view> lookup(const Environment& environment, std::string_view name);

}  // namespace distrun::launcher
