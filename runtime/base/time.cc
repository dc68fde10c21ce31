#include "runtime/base/time.h"

#include <cstdint>

namespace distrun {

std::string duration_text(Duration duration) {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  const std::int64_t ms = duration_cast<milliseconds>(duration).count();
  if (ms < 1000 && ms > -1000) return std::to_string(ms) + " ms";
  if (ms % 60'000 == 0 && ms >= 120'000) return std::to_string(ms / 60'000) + " min";
  std::string text = std::to_string(ms / 1000);
  if (const std::int64_t tenths = (ms < 0 ? -ms : ms) % 1000 / 100) {
    text += "." + std::to_string(tenths);
  }
  return text + " s";
}

}  // namespace distrun
