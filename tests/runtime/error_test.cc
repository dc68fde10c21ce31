#include "runtime/base/check.h"
#include "runtime/base/result.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace distrun {
namespace {

TEST(Error, OsErrorNamesTheThingAndTheSystemsWords) {
  EXPECT_EQ(os_error("open /x", ENOENT),
            (Error{Errc::not_found, "open /x: No such file or directory"}));
  EXPECT_EQ(os_error("bind", EADDRINUSE).code, Errc::io);
}

TEST(CheckDeathTest, ABrokenPromiseAbortsAndNamesTheCondition) {
  EXPECT_DEATH(DISTRUN_CHECK(1 + 1 == 3), "1 \\+ 1 == 3");
}

}  // namespace
}  // namespace distrun
