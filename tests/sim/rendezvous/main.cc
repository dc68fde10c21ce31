// rendezvous_sim FROM TO: runs the seeds and prints what was seen, or the first seed that fails
// with the end of its story.  Exit status 1 if one fails. rendezvous_sim count FROM TO: runs all of
// them, and counts what fails and in which seeds first. rendezvous_sim sentences: every sentence
// that can fail.
#include "rendezvous/core/invariants.h"
#include "tests/sim/rendezvous/bars.h"
#include "tests/sim/rendezvous/world.h"

#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace distrun::rendezvous;

std::optional<std::uint64_t> number(const char* text) {
  std::uint64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

int sentences() {
  for (const auto& list : {invariant_sentences(), sim::Referee::sentences()}) {
    for (const std::string_view sentence : list) std::puts(std::string(sentence).c_str());
  }
  return 0;
}

int count(std::uint64_t from, std::uint64_t to) {
  std::map<std::string, std::vector<std::uint64_t>> failed;
  sim::Coverage coverage;
  for (std::uint64_t seed = from; seed <= to; ++seed) {
    sim::World world(seed, coverage);
    const std::string broken = world.run();
    if (!broken.empty()) failed[broken].push_back(seed);
  }
  for (const auto& [sentence, seeds_of] : failed) {
    std::printf("%6zd  %s: seeds", std::ssize(seeds_of), sentence.c_str());
    for (std::size_t i = 0; i < seeds_of.size() && i < 6; ++i) {
      std::printf(" %llu", static_cast<unsigned long long>(seeds_of[i]));
    }
    std::puts("");
  }
  return failed.empty() ? 0 : 1;
}

template <class Edges, class Seen>
void say_unseen(const char* whose, const Edges& edges, const Seen& seen) {
  for (const auto& [from, to] : edges) {
    if (seen.contains({from, to})) continue;
    std::printf("never seen: %s, %s to %s\n", whose, std::string(to_string(from)).c_str(),
                std::string(to_string(to)).c_str());
  }
}

int seeds(std::uint64_t from, std::uint64_t to) {
  sim::Coverage coverage;
  for (std::uint64_t seed = from; seed <= to; ++seed) {
    sim::World world(seed, coverage);
    if (world.run().empty()) continue;
    sim::Coverage again;
    sim::World told(seed, again, true);
    const std::string broken = told.run();
    std::printf("%sseed %llu, step %ld: %s\n", told.story().c_str(),
                static_cast<unsigned long long>(seed), told.steps(), broken.c_str());
    return 1;
  }
  std::printf("seeds %llu to %llu: %ld events, no invariant broken\n",
              static_cast<unsigned long long>(from), static_cast<unsigned long long>(to),
              coverage.events);
  say_unseen("rendezvous", kRoundEdges, coverage.round_edges);
  say_unseen("member", kMemberEdges, coverage.member_edges);
  for (const auto& [situation, times] : coverage.situations) {
    std::printf("%8d  %s\n", times, situation.c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "sentences") == 0) return sentences();
  const auto size = argc == 3 ? number(argv[2]) : std::nullopt;
  if (size && *size > 0 && *size <= 1'000'000) {
    const int n = static_cast<int>(*size);
    if (std::strcmp(argv[1], "scale") == 0) return sim::bar_scale(n) ? 0 : 1;
    if (std::strcmp(argv[1], "hour") == 0) return sim::bar_hour(n) ? 0 : 1;
    if (std::strcmp(argv[1], "calm") == 0) return sim::bar_calm(n) ? 0 : 1;
  }
  const bool counting = argc == 4 && std::strcmp(argv[1], "count") == 0;
  const auto from = argc == 3 || counting ? number(argv[argc - 2]) : std::nullopt;
  const auto to = argc == 3 || counting ? number(argv[argc - 1]) : std::nullopt;
  if (!from || !to) {
    std::fprintf(
        stderr,
        "usage: rendezvous_sim [count] FROM TO (seeds, both included) | scale AGENTS | hour "
        "AGENTS | calm HOURS | sentences\n");
    return 2;
  }
  return counting ? count(*from, *to) : seeds(*from, *to);
}
