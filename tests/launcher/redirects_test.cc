#include "launcher/redirects.h"

#include <gmock/gmock.h>

namespace distrun::launcher {
namespace {

using agent::StreamSet;
using ::testing::ElementsAre;

constexpr StreamSet kNone{false, false};
constexpr StreamSet kOut{true, false};
constexpr StreamSet kErr{false, true};
constexpr StreamSet kBoth{true, true};

TEST(Redirects, OneDigitSpeaksForAllRanks) {
  EXPECT_THAT(expand(*parse_redirects("0"), 2), ElementsAre(kNone, kNone));
  EXPECT_THAT(expand(*parse_redirects("1"), 2), ElementsAre(kOut, kOut));
  EXPECT_THAT(expand(*parse_redirects("2"), 2), ElementsAre(kErr, kErr));
  EXPECT_THAT(expand(*parse_redirects("3"), 2), ElementsAre(kBoth, kBoth));
}

TEST(Redirects, RanksThatAreNotNamedGetNothing) {
  EXPECT_THAT(expand(*parse_redirects("0:1,2:3"), 3), ElementsAre(kOut, kNone, kBoth));
}

TEST(Redirects, ARankMayHaveSeveralDigits) {
  const auto streams = expand(*parse_redirects("11:2"), 12);
  EXPECT_EQ(streams[11], kErr);
  EXPECT_EQ(streams[1], kNone);
}

TEST(Redirects, OfARankThatIsNamedTwiceTheLastCounts) {
  EXPECT_THAT(expand(*parse_redirects("0:1,0:2"), 1), ElementsAre(kErr));
}

TEST(Redirects, ARankThatDoesNotExistChangesNobody) {
  EXPECT_THAT(expand(*parse_redirects("7:3"), 2), ElementsAre(kNone, kNone));
}

TEST(Redirects, RefusesWhatIsNotInTheGrammar) {
  for (const char* text :
       {"",         "4",  "-1", "00",  "0:",   ":1",   "0:4",  "0:1,",     ",0:1", "0:1,,1:1",
        "0:1, 1:1", " 1", "1 ", "x:1", "-1:1", "+1:1", "0:11", "123456:1", "0=1",  "0:1;1:1"}) {
    const auto result = parse_redirects(text);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code, Errc::invalid_argument);
  }
}

}  // namespace
}  // namespace distrun::launcher
