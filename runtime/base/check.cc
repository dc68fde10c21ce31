#include "runtime/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace distrun {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "distrun: a promise of its own is broken: %s (%s:%d); please report this\n",
               condition, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace distrun
