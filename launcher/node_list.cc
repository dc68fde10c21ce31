#include "launcher/node_list.h"

#include "launcher/text.h"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace distrun::launcher {
namespace {

constexpr std::size_t kDigitsMax = 18;
constexpr std::size_t kNameMax = 255;
constexpr std::size_t kBracketsMax = 8;

Error wrong(std::string_view text, std::string_view why) {
  return Error{Errc::invalid_argument,
               "not a list of nodes: " + quote(text) + ": " + std::string(why)};
}

std::optional<std::int64_t> number(std::string_view digits) {
  if (digits.empty() || digits.size() > kDigitsMax) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

// What stands between brackets, as the texts it stands for.
Result<std::vector<std::string>> expand_ranges(std::string_view list, std::string_view inside) {
  std::vector<std::string> texts;
  for (const std::string_view piece : split(inside, ',')) {
    const std::size_t dash = piece.find('-');
    const std::string_view low = piece.substr(0, dash);
    const std::string_view high = dash == piece.npos ? low : piece.substr(dash + 1);
    const auto first = number(low);
    const auto last = number(high);
    if (!first || !last) return wrong(list, quote(piece) + " is neither a number nor a range");
    if (*last < *first) return wrong(list, quote(piece) + " runs backwards");
    if (*last - *first >= static_cast<std::int64_t>(kNodesMax - texts.size())) {
      return wrong(list, "more than " + std::to_string(kNodesMax) + " nodes");
    }
    for (std::int64_t n = *first; n <= *last; ++n) {
      std::string digits = std::to_string(n);
      if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
      texts.push_back(std::move(digits));
    }
  }
  return texts;
}

bool may_be_in_a_name(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c > ' ' && c < 127 && c != '(' && c != ')' && c != '/' && c != ']';
  });
}

// One element, "r[0-1]n[0-2]".
Result<std::vector<std::string>> expand_element(std::string_view list, std::string_view element) {
  std::vector<std::string> names{""};
  std::size_t brackets = 0;
  while (!element.empty()) {
    std::vector<std::string> parts;
    if (element.front() == '[') {
      const std::size_t end = element.find(']');
      if (end == element.npos) return wrong(list, "a bracket is not closed");
      if (++brackets > kBracketsMax) return wrong(list, "too many brackets in one name");
      auto ranges = expand_ranges(list, element.substr(1, end - 1));
      if (!ranges) return ranges;
      parts = std::move(*ranges);
      element.remove_prefix(end + 1);
    } else {
      const std::string_view plain = element.substr(0, element.find('['));
      if (!may_be_in_a_name(plain)) return wrong(list, quote(plain) + " is no part of a name");
      parts.emplace_back(plain);
      element.remove_prefix(plain.size());
    }
    if (names.size() * parts.size() > kNodesMax) {
      return wrong(list, "more than " + std::to_string(kNodesMax) + " nodes");
    }
    std::vector<std::string> longer;
    longer.reserve(names.size() * parts.size());
    for (const std::string& name : names) {
      for (const std::string& part : parts) longer.push_back(name + part);
    }
    names = std::move(longer);
    if (names.back().size() > kNameMax) return wrong(list, "a name is too long");
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> expand_node_list(std::string_view text) {
  std::vector<std::string> names;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    if (at < text.size()) {
      if (text[at] == '[') inside = true;
      if (text[at] == ']') inside = false;
      if (text[at] != ',' || inside) continue;
    }
    const std::string_view element = text.substr(begin, at - begin);
    if (element.empty()) return wrong(text, "a name is empty");
    auto some = expand_element(text, element);
    if (!some) return some;
    if (names.size() + some->size() > kNodesMax) {
      return wrong(text, "more than " + std::to_string(kNodesMax) + " nodes");
    }
    names.insert(names.end(), some->begin(), some->end());
    begin = at + 1;
  }
  return names;
}

Result<std::vector<int>> expand_counts(std::string_view text) {
  constexpr int kCountMax = 1'000'000;
  const Error error{Errc::invalid_argument, "not a list of counts such as 3,1(x2): " + quote(text)};
  std::vector<int> counts;
  for (const std::string_view piece : split(text, ',')) {
    const std::size_t bracket = piece.find('(');
    const auto count = number(piece.substr(0, bracket));
    std::optional<std::int64_t> times = 1;
    if (bracket != piece.npos) {
      std::string_view rest = piece.substr(bracket);
      if (!rest.starts_with("(x") || !rest.ends_with(")")) return error;
      rest.remove_prefix(2);
      rest.remove_suffix(1);
      times = number(rest);
    }
    if (!count || *count > kCountMax || !times || *times < 1 ||
        *times > static_cast<std::int64_t>(kNodesMax - counts.size())) {
      return error;
    }
    counts.insert(counts.end(), static_cast<std::size_t>(*times), static_cast<int>(*count));
  }
  return counts;
}

}  // namespace distrun::launcher
