#include "launcher/hosts/host_order.h"

#include <gtest/gtest.h>

namespace distrun::launcher {
namespace {

// Fed in pieces of `piece` bytes; an error's text if there is one.
Result<HostOrder> read(const std::string& bytes, std::size_t piece) {
  FrameReader frames;
  OrderReader order;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    frames.feed(std::string_view(bytes).substr(at, piece));
    for (;;) {
      const auto frame = frames.next();
      if (!frame) return frame.error();
      if (!*frame) break;
      const auto complete = order.take(**frame);
      if (!complete) return complete.error();
      if (*complete) return order.order();
    }
  }
  return Error{Errc::closed, "not complete"};
}

// The value; a test that has none fails and says why.
template <class T>
T got(Result<T> result) {
  EXPECT_TRUE(result) << (result ? "" : result.error().detail);
  return result ? std::move(*result) : T();
}

HostOrder sample() {
  return {.mark = "m1",
          .name = "h1",
          .folder = "/a b",
          .token = "t",
          .environment = {{"A", "x=y"}, {"B", ""}},
          .arguments = {"--nnodes=2:2", "--", "train.py", "", "a\nb 3:c", "\xff'\""}};
}

TEST(HostOrder, ArrivesInPiecesOfAnySize) {
  const std::string bytes = to_frames(sample());
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
    EXPECT_EQ(got(read(bytes, piece)), sample());
  }
}

TEST(HostOrder, IsReadableOnTheWire) {
  HostOrder order;
  order.mark = "m";
  order.name = "h1";
  order.folder = "/w";
  order.arguments = {"a b"};
  EXPECT_EQ(to_frames(order), "distrun 1:1\nmark 1:m\nname 2:h1\nfolder 2:/w\narg 3:a b\ngo 0:\n");
}

TEST(HostOrder, BeatsBeforeItIsCompleteMeanNothing) {
  EXPECT_EQ(got(read(to_frame("beat", "") + to_frames(sample()), 1000)), sample());
}

TEST(HostOrder, WhatFollowsItStaysForTheNextReader) {
  FrameReader frames;
  frames.feed("go 0:\nsignal 2:15\nbea");
  EXPECT_EQ(got(frames.next()), (Frame{"go", ""}));
  EXPECT_EQ(got(frames.next()), (Frame{"signal", "15"}));
  EXPECT_EQ(got(frames.next()), std::nullopt);
}

TEST(HostOrder, OtherBytesAreRefusedInWords) {
  const auto why = [](const std::string& bytes) { return read(bytes, 1000).error().detail; };
  EXPECT_EQ(why("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"),
            "not what a starting distrun says: 'GET / HTTP/1.1\\x0d\\x0aHost'");
  EXPECT_EQ(why("arg 2000000:x"), "not what a starting distrun says: 'arg 2000000'");
  EXPECT_EQ(why("arg -1:x"), "not what a starting distrun says: 'arg -1'");
  EXPECT_EQ(why("arg 1:xy\n"), "not what a starting distrun says: no end of 'arg 1'");
  EXPECT_EQ(why(std::string(100, 'x')),
            "not what a starting distrun says: '" + std::string(40, 'x') + "'");
  EXPECT_EQ(why("arg 1:x\n"), "not protocol 1, but 'arg' 'x'");
  EXPECT_EQ(why("distrun 1:2\n"), "not protocol 1, but 'distrun' '2'");
  EXPECT_EQ(why("distrun 1:1\nnew 1:x\n"), "an order with 'new'");
  EXPECT_EQ(why("distrun 1:1\nenv 2:=x\n"), "a variable without a name");
  EXPECT_EQ(why("distrun 1:1\ngo 0:\n"), "an order without its mark");
}

TEST(HostOrder, HasALimit) {
  OrderReader order;
  ASSERT_TRUE(order.take({"distrun", "1"}));
  const Frame large{"arg", std::string(FrameReader::kValueMax, 'x')};
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(order.take(large));
  EXPECT_EQ(order.take(large).error().detail, "an order of more than 8 MiB");
}

TEST(HostLine, AGreetingTellsWhoAndWhere) {
  const Greeting greeting{"0.1.0", "10.0.0.2", "fe80::1%eth0", 20123};
  const auto word = parse_host_line(to_line(greeting), "").word;
  ASSERT_TRUE(word);
  EXPECT_EQ(word->kind, HostWord::Kind::greeting);
  EXPECT_EQ(word->greeting, greeting);
}

TEST(HostLine, WhatIsNotKnownOfAConnectionIsEmpty) {
  EXPECT_EQ(to_line(Greeting{"0.1.0", "", "", 5}),
            "\x1e"
            "distrun 1 0.1.0 - - 5\n");
  EXPECT_EQ(parse_host_line("\x1e"
                            "distrun 1 0.1.0 - - 5\n",
                            "")
                .word->greeting,
            (Greeting{"0.1.0", "", "", 5}));
}

TEST(HostLine, AnotherProtocolIsAnotherVersion) {
  EXPECT_EQ(parse_host_line("\x1e"
                            "distrun 2 7.0 what ever\n",
                            "")
                .word->greeting.version,
            "7.0 (protocol 2)");
}

TEST(HostLine, SshSaysWhereTheConnectionIs) {
  const Environment environment{{"SSH_CONNECTION", "10.0.0.1 5000 10.0.0.2 22"}};
  EXPECT_EQ(greeting_of(environment, "1", 7), (Greeting{"1", "10.0.0.2", "10.0.0.1", 7}));
  EXPECT_EQ(greeting_of({}, "1", 7), (Greeting{"1", "", "", 7}));
}

TEST(HostLine, OwnWordsCarryTheMarkAndKeepTheirText) {
  EXPECT_EQ(marked("m", "report", "a\n\nb\n"), "\x1em report a\n\x1em report \n\x1em report b\n");
  const auto word = parse_host_line("\x1em report  a b\n", "m").word;
  ASSERT_TRUE(word);
  EXPECT_EQ(word->kind, HostWord::Kind::report);
  EXPECT_EQ(word->text, " a b");
  EXPECT_EQ(parse_host_line("\x1em end 137\n", "m").word->status, 137);
}

TEST(HostLine, AWordMayFollowAWorkersLineThatHasNoEnd) {
  const HostLine line = parse_host_line("50 %\x1e!\x1em end 0\n", "m");
  EXPECT_EQ(line.workers, "50 %\x1e!");
  ASSERT_TRUE(line.word);
  EXPECT_EQ(line.word->kind, HostWord::Kind::end);
  EXPECT_EQ(parse_host_line("50 %\n", "m").workers, "50 %\n");
}

TEST(HostLine, AWorkerThatDoesNotKnowTheMarkCannotSpeakForDistrun) {
  for (const char* line : {"\x1em end 0\n", "\x1e end 0\n", "\x1e\n", "end 0\n", "\n", ""}) {
    EXPECT_FALSE(parse_host_line(line, "other").word) << line;
  }
  EXPECT_FALSE(parse_host_line("\x1e end 0\n", "").word);
}

TEST(HostLine, AnEndNeedsAStatus) {
  for (const char* line : {"\x1em end\n", "\x1em end x\n", "\x1em end 256\n", "\x1em end -1\n"}) {
    EXPECT_FALSE(parse_host_line(line, "m").word) << line;
  }
}

}  // namespace
}  // namespace distrun::launcher
