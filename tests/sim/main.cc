// agent_sim FROM TO: runs the seeds and prints what was seen, or the first seed that fails with the
// end of its transcript.  Exit status 1 if one fails.
// agent_sim sentences: every sentence that can fail.
#include "agent/core/invariants.h"
#include "tests/sim/world.h"

#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

namespace {

using namespace distrun;

std::optional<std::uint64_t> number(const char* text) {
  std::uint64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "sentences") == 0) {
    for (const auto& sentences : {agent::invariant_sentences(), sim::world_sentences()}) {
      for (const std::string_view sentence : sentences) std::puts(std::string(sentence).c_str());
    }
    return 0;
  }
  const auto from = argc == 3 ? number(argv[1]) : std::nullopt;
  const auto to = argc == 3 ? number(argv[2]) : std::nullopt;
  if (!from || !to) {
    std::fprintf(stderr, "usage: agent_sim FROM TO (seeds, both included) | agent_sim sentences\n");
    return 2;
  }
  sim::Coverage coverage;
  for (std::uint64_t seed = *from; seed <= *to; ++seed) {
    sim::World world(seed, coverage);
    const std::string broken = world.run();
    if (broken.empty()) continue;
    std::printf("%sseed %llu, step %d: %s\n", world.tail().c_str(),
                static_cast<unsigned long long>(seed), world.steps(), broken.c_str());
    return 1;
  }
  std::printf(
      "seeds %llu to %llu: %ld events, no invariant broken; changes of phase seen: group %zu of "
      "%zu, agent %zu of %zu\n",
      static_cast<unsigned long long>(*from), static_cast<unsigned long long>(*to), coverage.events,
      coverage.group_edges.size(), agent::kGroupEdges.size(), coverage.agent_edges.size(),
      agent::kAgentEdges.size());
  for (const auto& [situation, times] : coverage.situations) {
    std::printf("%8d  %s\n", times, situation.c_str());
  }
  return 0;
}
