// Deadlines of blocking calls: a caller's Timeout becomes a point in time once, at the start.
#pragma once

#include "runtime/base/time.h"
#include <distrun/store.h>

#include <string>

namespace distrun {

// Both throw DistArgumentError for a negative timeout, with `what` in front.
void require_not_negative(Timeout timeout, const char* what);
TimePoint deadline_after(Timeout timeout, const char* what);

// "250 ms", or "ever" for kNoTimeout.
std::string to_string(Timeout timeout);

}  // namespace distrun
