#include "agent/process/line_prefix.h"

#include <cctype>
#include <optional>

namespace distrun::agent {
namespace {

// The macro at the beginning of `text`, which begins with '$'.
struct Macro {
  std::string_view name;
  std::size_t length = 0;  // of the whole, from '$' on
};

std::optional<Macro> macro_at(std::string_view text) {
  const bool braces = text.size() > 1 && text[1] == '{';
  const std::size_t begin = braces ? 2 : 1;
  std::size_t end = begin;
  const auto is_name = [&](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return c == '_' || (end == begin ? std::isalpha(byte) != 0 : std::isalnum(byte) != 0);
  };
  while (end < text.size() && is_name(text[end])) ++end;
  if (end == begin || (braces && (end == text.size() || text[end] != '}'))) return std::nullopt;
  return Macro{text.substr(begin, end - begin), braces ? end + 1 : end};
}

}  // namespace

std::string line_prefix(std::string_view pattern, std::string_view role, Rank rank,
                        LocalRank local_rank, std::string_view host) {
  if (pattern.empty()) pattern = "[${role_name}${local_rank}]:";
  std::string prefix;
  while (!pattern.empty() && prefix.size() < kLongestPrefix) {
    std::size_t taken = 1;
    if (pattern.front() != '$') {
      prefix += pattern.front();
    } else if (pattern.starts_with("$$")) {
      prefix += '$';
      taken = 2;
    } else if (const auto macro = macro_at(pattern)) {
      taken = macro->length;
      if (macro->name == "role_name") {
        prefix += role;
      } else if (macro->name == "rank") {
        prefix += std::to_string(rank.value);
      } else if (macro->name == "local_rank") {
        prefix += std::to_string(local_rank.value);
      } else if (macro->name == "hostname") {
        prefix += host;
      } else {
        prefix += pattern.substr(0, taken);
      }
    } else {
      prefix += '$';
    }
    pattern.remove_prefix(taken);
  }
  return prefix.substr(0, kLongestPrefix);
}

}  // namespace distrun::agent
