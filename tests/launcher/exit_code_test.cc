#include "launcher/exit_code.h"

#include <gtest/gtest.h>

#include <csignal>

namespace distrun::launcher {
namespace {

TEST(ExitCode, StartErrorsHaveTheCodesOfTheTable) {
  EXPECT_EQ(exit_for_start_error(Errc::invalid_argument), 2);
  EXPECT_EQ(exit_for_start_error(Errc::unsupported), 2);
  EXPECT_EQ(exit_for_start_error(Errc::not_found), 127);
  EXPECT_EQ(exit_for_start_error(Errc::io), 126);
  EXPECT_EQ(exit_for_start_error(Errc::protocol), 70);
}

TEST(ExitCode, ASignalIsToldAsShellsTellIt) {
  EXPECT_EQ(exit_for_signal(SIGTERM), 143);
}

}  // namespace
}  // namespace distrun::launcher
