#include "launcher/text.h"

#include <algorithm>
#include <charconv>

namespace distrun::launcher {
namespace {

constexpr std::size_t kQuotedMax = 80;

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\n\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n\r") - first + 1);
}

std::optional<std::int64_t> parse_int(std::string_view text, std::int64_t low, std::int64_t high) {
  text = trim(text);
  // from_chars takes a minus but no plus; "+-3" must not slip through.
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < low || value > high) return std::nullopt;
  return value;
}

std::optional<Duration> parse_seconds(std::string_view text) {
  text = trim(text);
  constexpr double kMax = 365.0 * 24 * 3600;
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!(value >= 0 && value <= kMax)) return std::nullopt;  // also refuses NaN
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (true) {
    const std::size_t at = text.find(separator);
    pieces.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return pieces;
    text.remove_prefix(at + 1);
  }
}

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  if (word.size() > kQuotedMax) return {};
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(word.size() / 3, 1) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, kQuotedMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      result += c;
      continue;
    }
    constexpr char kHex[] = "0123456789abcdef";
    result += "\\x";
    result += kHex[byte >> 4];
    result += kHex[byte & 15];
  }
  if (text.size() > kQuotedMax) result += "...";
  return result;
}

std::string quote(std::string_view text) {
  return "'" + printable(text) + "'";
}

std::string join(const std::vector<std::string_view>& pieces, std::string_view separator) {
  std::string result;
  for (const std::string_view piece : pieces) {
    if (!result.empty()) result += separator;
    result += piece;
  }
  return result;
}

}  // namespace distrun::launcher
