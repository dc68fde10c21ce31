// distrun_replay FILE: scripts/replay runs it.
#include "tests/support/replay_events.h"

#include <cstdio>
#include <fstream>
#include <iostream>

namespace {
constexpr int kSame = 0;
constexpr int kDifferent = 1;
constexpr int kUsage = 2;
}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: distrun_replay FILE\n", stderr);
    return kUsage;
  }
  std::ifstream events(argv[1]);
  if (!events) {
    std::perror(argv[1]);
    return kUsage;
  }
  const auto result = distrun::test::replay_events(events, std::cout);
  if (!result.unreadable.empty()) {
    std::cout << std::flush;
    std::cerr << argv[1] << ": not an event file: " << result.unreadable << '\n';
    return kUsage;
  }
  if (!result.difference.empty()) {
    std::cout << "different: " << result.difference << std::endl;
    return kDifferent;
  }
  if (!result.incomplete.empty()) std::cout << "not replayed: " << result.incomplete << '\n';
  std::cout << "same: " << result.happenings << " happenings out of " << result.inputs
            << " inputs of " << result.coordinators << " coordinator(s)" << std::endl;
  return kSame;
}
