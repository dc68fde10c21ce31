// http_get: one page from a coordinator, for `distrun status`.  Blocking, with deadlines; nothing
// of the launcher runs beside it.
#pragma once

#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace distrun::launcher {

struct HttpLimits {
  Duration connect = std::chrono::seconds(2);  // each address of the name, of which at most eight
  Duration answer = std::chrono::seconds(5);
  std::size_t bytes = 64UL * 1024 * 1024;
  int hops = 4;  // from one that stands by to the coordinator
};

// The body of the page.  The error says in one sentence which addresses were tried, what answered
// (nothing, a refusal, something else than a coordinator) and what to do.
Result<std::string> http_get(const std::string& host, std::uint16_t port, const std::string& path,
                             const HttpLimits& limits = {});

}  // namespace distrun::launcher
