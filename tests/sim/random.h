// Random draws that mean the same with every standard library: a seed is a complete description of
// a run.
#pragma once

#include "runtime/base/time.h"

#include <random>

namespace distrun::sim {

using Random = std::mt19937_64;

inline bool chance(Random& random, double probability) {
  return static_cast<double>(random() >> 11) * 0x1p-53 < probability;
}
// In [low, high].  Not std::uniform_int_distribution: a seed must mean the same with every library.
inline int between(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1));
}
inline Duration micros(Random& random, int low, int high) {
  return std::chrono::microseconds(between(random, low, high));
}
inline Duration millis(Random& random, int low, int high) {
  return std::chrono::milliseconds(between(random, low, high));
}

}  // namespace distrun::sim
