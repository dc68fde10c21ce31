// Reading numbers and lists out of text that a person typed.  All of it is total: any input gives a
// value or nullopt, never a silent default.
#pragma once

#include "runtime/base/time.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

std::string_view trim(std::string_view text);

// Decimal digits with an optional sign and blanks around, within [low, high].
std::optional<std::int64_t> parse_int(std::string_view text, std::int64_t low, std::int64_t high);

// Seconds, whole or with a fraction: "30", "0.5".  Within [0, one year].
std::optional<Duration> parse_seconds(std::string_view text);

// The pieces between separators; empty text is one empty piece.
std::vector<std::string_view> split(std::string_view text, char separator);

// Of `candidates`, the one that `word` was most likely meant to be; empty: none is close.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates);

// For an error's text: on one line whatever it holds, and cut short if it is very long.
std::string printable(std::string_view text);
std::string quote(std::string_view text);  // the same between ' and '

std::string join(const std::vector<std::string_view>& pieces, std::string_view separator);

}  // namespace distrun::launcher
