#include "rendezvous/core/ranks.h"

#include <algorithm>

namespace distrun::rendezvous {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The run of digits that text starts with, without leading zeros; text moves past it.
std::string_view take_number(std::string_view& text) {
  std::size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::string_view number = text.substr(0, end);
  text.remove_prefix(end);
  while (number.size() > 1 && number.front() == '0') number.remove_prefix(1);
  return number;
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view x = take_number(a);
      const std::string_view y = take_number(b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      continue;
    }
    if (a.front() != b.front()) return a.front() < b.front();
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.empty() && !b.empty();
}

std::vector<std::size_t> assign_ranks(const std::vector<Candidate>& candidates) {
  constexpr std::size_t kFree = static_cast<std::size_t>(-1);
  const std::size_t n = candidates.size();
  std::vector<std::size_t> seats(n, kFree);
  std::vector<bool> placed(n, false);
  const auto place = [&](std::optional<NodeRank> rank, std::size_t candidate) {
    if (!rank || placed[candidate]) return;
    const auto seat = static_cast<std::size_t>(rank->value);
    if (rank->value < 0 || seat >= n || seats[seat] != kFree) return;
    seats[seat] = candidate;
    placed[candidate] = true;
  };
  for (std::size_t i = 0; i < n; ++i) place(candidates[i].had, i);
  for (std::size_t i = 0; i < n; ++i) place(candidates[i].asked, i);

  std::vector<std::size_t> rest;
  for (std::size_t i = 0; i < n; ++i) {
    if (!placed[i]) rest.push_back(i);
  }
  std::stable_sort(rest.begin(), rest.end(), [&](std::size_t a, std::size_t b) {
    const Candidate& x = candidates[a];
    const Candidate& y = candidates[b];
    if (x.hosts != y.hosts) return x.hosts;
    return natural_less(x.host, y.host);
  });
  std::size_t seat = 0;
  for (const std::size_t candidate : rest) {
    while (seats[seat] != kFree) ++seat;
    seats[seat] = candidate;
  }
  return seats;
}

}  // namespace distrun::rendezvous
