// DISTRUN_CHECK(condition): our own promise, kept also in release builds.  A broken one prints the
// condition and its place on stderr and aborts.  Never for what the world does: a peer's bytes, a
// worker's death or a user's flag is an event or an Error, not a failed check.
#pragma once

namespace distrun {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace distrun

#define DISTRUN_CHECK(condition)                                               \
  do {                                                                         \
    if (!(condition)) ::distrun::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
