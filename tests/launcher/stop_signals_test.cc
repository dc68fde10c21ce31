#include "launcher/stop_signals.h"

#include <gmock/gmock.h>

#include <csignal>

namespace distrun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(StopSignals, NamesMayLackSigAndBeInAnyCase) {
  const StopSignals signals = parse_stop_signals("SIGTERM,int, Hup ,sigquit,USR1");
  EXPECT_THAT(signals.numbers, ElementsAre(SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1));
  EXPECT_THAT(signals.warnings, IsEmpty());
}

TEST(StopSignals, NumbersAreTaken) {
  EXPECT_THAT(parse_stop_signals("15,10").numbers, ElementsAre(SIGTERM, SIGUSR1));
}

TEST(StopSignals, OneThatIsNamedTwiceCountsOnce) {
  EXPECT_THAT(parse_stop_signals("TERM,SIGTERM,15").numbers, ElementsAre(SIGTERM));
}

TEST(StopSignals, AnUnknownNameIsAWarningAndTheOthersStay) {
  const StopSignals signals = parse_stop_signals("SIGTERM,SIGBREAK,0,999");
  EXPECT_THAT(signals.numbers, ElementsAre(SIGTERM));
  EXPECT_THAT(signals.warnings,
              ElementsAre(HasSubstr("'SIGBREAK'"), HasSubstr("'0'"), HasSubstr("'999'")));
}

TEST(StopSignals, WhatCannotBeHandledIsLeftOutAloud) {
  for (const char* name : {"SIGKILL", "SIGSTOP", "SIGCHLD", "SIGSEGV"}) {
    const StopSignals signals = parse_stop_signals(name);
    EXPECT_THAT(signals.numbers, IsEmpty()) << name;
    EXPECT_THAT(signals.warnings, ElementsAre(HasSubstr("cannot be handled"))) << name;
  }
}

TEST(StopSignals, AnEmptyTextIsNoSignalAndAWarning) {
  EXPECT_THAT(parse_stop_signals("").numbers, IsEmpty());
  EXPECT_EQ(parse_stop_signals("").warnings.size(), 1U);
}

}  // namespace
}  // namespace distrun::launcher
