#include "launcher/redirects.h"

#include "launcher/text.h"

#include <optional>
#include <string>

namespace distrun::launcher {
namespace {

constexpr std::size_t kRankDigitsMax = 5;

std::optional<agent::StreamSet> parse_digit(std::string_view text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return std::nullopt;
  const int bits = text[0] - '0';
  return agent::StreamSet{(bits & 1) != 0, (bits & 2) != 0};
}

std::optional<int> parse_rank(std::string_view text) {
  if (text.empty() || text.size() > kRankDigitsMax) return std::nullopt;
  int rank = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;  // no signs, no blanks: as torchrun's pattern
    rank = rank * 10 + (c - '0');
  }
  return rank;
}

}  // namespace

Result<Redirects> parse_redirects(std::string_view text) {
  Redirects result;
  if (const auto digit = parse_digit(text)) {
    result.all = *digit;
    return result;
  }
  for (const std::string_view pair : split(text, ',')) {
    const std::size_t colon = pair.find(':');
    const auto rank = parse_rank(pair.substr(0, colon));
    const auto digit =
        colon == std::string_view::npos ? std::nullopt : parse_digit(pair.substr(colon + 1));
    if (!rank || !digit) {
      return Error{Errc::invalid_argument,
                   "neither 0, 1, 2 or 3 (none, stdout, stderr, both) nor a list such as 0:1,12:3 "
                   "(local rank:digit): " +
                       quote(text)};
    }
    result.by_rank[*rank] = *digit;
  }
  return result;
}

std::vector<agent::StreamSet> expand(const Redirects& redirects, int nproc) {
  std::vector<agent::StreamSet> result(static_cast<std::size_t>(nproc), redirects.all);
  for (const auto& [rank, streams] : redirects.by_rank) {
    if (rank < nproc) result[static_cast<std::size_t>(rank)] = streams;
  }
  return result;
}

}  // namespace distrun::launcher
