// rendezvous_sim FROM TO: runs the seeds and prints what was seen, or the first seed that fails
// with the end of its story.  Exit status 1 if one fails. rendezvous_sim count FROM TO: runs all of
// them, and counts what fails and in which seeds first. rendezvous_sim sentences: every sentence
// that can fail.
#include "rendezvous/core/invariants.h"
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
  std::printf(
      "seeds %llu to %llu: %ld events, no invariant broken; changes of phase seen: rendezvous %zu "
      "of %zu, member %zu of %zu\n",
      static_cast<unsigned long long>(from), static_cast<unsigned long long>(to), coverage.events,
      coverage.round_edges.size(), kRoundEdges.size(), coverage.member_edges.size(),
      kMemberEdges.size());
  for (const auto& [situation, times] : coverage.situations) {
    std::printf("%8d  %s\n", times, situation.c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "sentences") == 0) return sentences();
  const bool counting = argc == 4 && std::strcmp(argv[1], "count") == 0;
  const auto from = argc == 3 || counting ? number(argv[argc - 2]) : std::nullopt;
  const auto to = argc == 3 || counting ? number(argv[argc - 1]) : std::nullopt;
  if (!from || !to) {
    std::fprintf(stderr,
                 "usage: rendezvous_sim [count] FROM TO (seeds, both included) | rendezvous_sim "
                 "sentences\n");
    return 2;
  }
  return counting ? count(*from, *to) : seeds(*from, *to);
}
