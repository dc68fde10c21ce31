#include "agent/process/last_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <stdlib.h>
#include <string>
#include <unistd.h>

namespace distrun::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LastLines, OfNothingAreNone) {
  EXPECT_THAT(last_lines("", false), IsEmpty());
}

TEST(LastLines, KeepTheirOrderAndEmptyLinesAndAnUnfinishedOne) {
  EXPECT_THAT(last_lines("a\n\nb\nc", false), ElementsAre("a", "", "b", "c"));
}

TEST(LastLines, AreAtMostTheLastTwenty) {
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += std::to_string(i) + "\n";
  const auto lines = last_lines(bytes, false);
  ASSERT_EQ(lines.size(), kTailLines);
  EXPECT_EQ(lines.front(), "80");
  EXPECT_EQ(lines.back(), "99");
}

TEST(LastLines, LeaveOutALineWhoseBeginningIsLostUnlessItIsAlone) {
  EXPECT_THAT(last_lines("alf\nwhole\n", true), ElementsAre("whole"));
  EXPECT_THAT(last_lines("ery long line", true), ElementsAre("ery long line"));
}

TEST(LastLines, ShowOfAProgressBarWhatATerminalWouldShow) {
  EXPECT_EQ(printable(" 10%|#  \r 50%|## \r100%|###\r"), "100%|###");
}

TEST(LastLines, CannotSendEscapesToTheTerminal) {
  EXPECT_EQ(printable(std::string_view("\x1b[31mred\0\tv\xc3\xa9\x7f", 14)),
            "\\x1b[31mred\\x00\tv\xc3\xa9\\x7f");
}

TEST(ByteTail, IsTheEndOfAllThatWasAppended) {
  std::mt19937_64 random(3);
  ByteTail tail;
  std::string all;
  for (int i = 0; i < 300; ++i) {
    const std::string piece(random() % (i % 50 == 0 ? 30000 : 500),
                            static_cast<char>('a' + i % 26));
    all += piece;
    tail.append(piece);
    ASSERT_TRUE(all.ends_with(tail.bytes()));
    ASSERT_GE(tail.bytes().size(), std::min(all.size(), kTailBytes));
    ASSERT_LE(tail.bytes().size(), 2 * kTailBytes);
    ASSERT_EQ(tail.cut(), tail.bytes().size() < all.size());
  }
}

TEST(LastLinesOfFile, ComeFromTheFilesEnd) {
  char path[] = "/tmp/distrun_last_lines_XXXXXX";
  const int fd = ::mkstemp(path);
  ASSERT_GE(fd, 0);
  std::string bytes(3 * kTailBytes, 'x');
  bytes += "\nlast but one\nlast\n";
  ASSERT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  ::close(fd);
  EXPECT_THAT(last_lines_of_file(path), ElementsAre("last but one", "last"));
  ::unlink(path);
  EXPECT_THAT(last_lines_of_file(path), IsEmpty());
}

TEST(LastLinesOfFile, DoNotWaitForADeviceOrAFifo) {
  EXPECT_THAT(last_lines_of_file("/dev/zero"), IsEmpty());
}

}  // namespace
}  // namespace distrun::agent
