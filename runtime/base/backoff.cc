#include "runtime/base/backoff.h"

#include <algorithm>

namespace distrun {

Duration Backoff::next(std::mt19937_64& random) {
  const Duration base = std::min(base_, limits_.cap);
  base_ = std::min(std::chrono::duration_cast<Duration>(
                       std::chrono::duration<double, Duration::period>(base) * limits_.factor),
                   limits_.cap);
  std::uniform_int_distribution<Duration::rep> pause(base.count() / 2, base.count());
  return Duration(pause(random));
}

}  // namespace distrun
