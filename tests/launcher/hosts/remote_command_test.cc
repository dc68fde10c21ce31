#include "launcher/hosts/remote_command.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>

namespace distrun::launcher {
namespace {

using Words = std::vector<std::string>;

// The value; a test that has none fails and says why.
template <class T>
T got(Result<T> result) {
  EXPECT_TRUE(result) << (result ? "" : result.error().detail);
  return result ? std::move(*result) : T();
}

// What a real shell makes of it.
std::string said_by_sh(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                             ::pclose);
  std::string text;
  std::array<char, 4096> buffer;
  for (std::size_t n = 1; n > 0;) {
    n = std::fread(buffer.data(), 1, buffer.size(), pipe.get());
    text.append(buffer.data(), n);
  }
  return text;
}

TEST(SplitWords, AsAShellCutsWords) {
  EXPECT_EQ(got(split_words("ssh -p 2222  -F\t'a b' \"c \\\" d\" e\\ f ''")),
            (Words{"ssh", "-p", "2222", "-F", "a b", "c \" d", "e f", ""}));
  EXPECT_EQ(got(split_words("a'b'\"c\"d")), (Words{"abcd"}));
  EXPECT_EQ(got(split_words(R"('a\b' "a\b")")), (Words{R"(a\b)", R"(a\b)"}));
  EXPECT_EQ(got(split_words("ssh $HOME `id`")), (Words{"ssh", "$HOME", "`id`"}));
}

TEST(SplitWords, WhatIsNotFinishedIsRefused) {
  EXPECT_EQ(split_words("ssh 'a").error().detail, "a quote that is not closed: 'ssh 'a'");
  EXPECT_EQ(split_words("ssh \\").error().detail, "nothing follows the backslash: 'ssh \\'");
  EXPECT_EQ(split_words("  ").error().detail, "no command: '  '");
  EXPECT_EQ(split_words("'' x").error().detail, "no command: ''' x'");
}

TEST(ShellQuote, PlainWordsStayAsTheyAre) {
  EXPECT_EQ(shell_quote("/opt/distrun-0.1/bin/distrun"), "/opt/distrun-0.1/bin/distrun");
}

TEST(ShellQuote, AShellReadsBackEveryByte) {
  std::string all;
  for (int c = 1; c < 256; ++c) all += static_cast<char>(c);
  for (const std::string& word : {all, std::string(), std::string("a'b"), std::string("'"),
                                  std::string("$(id) `id` $HOME !! \\ \" *\n~")}) {
    EXPECT_EQ(said_by_sh("printf %s " + shell_quote(word)), word);
  }
}

TEST(RemoteCommand, TheSamePathAsHereIfItIsThereElseTheOneInPath) {
  EXPECT_EQ(remote_command("/opt/d/distrun", ""),
            "exec sh -c 'if [ -x \"$0\" ]; then exec \"$0\" --from-stdin; else exec distrun "
            "--from-stdin; fi' /opt/d/distrun");
  EXPECT_EQ(remote_command("", ""), "exec distrun --from-stdin");
}

TEST(RemoteCommand, RunsTheOneAtThePathWhateverIsInThePath) {
  EXPECT_EQ(said_by_sh(remote_command("/bin/echo", "")), "--from-stdin\n");
}

TEST(RemoteCommand, OneThatIsNamedIsTheOnlyOne) {
  EXPECT_EQ(remote_command("/opt/d/distrun", "/my dir/distrun"),
            "exec '/my dir/distrun' --from-stdin");
  EXPECT_EQ(said_by_sh(remote_command("/nowhere", "echo")), "--from-stdin\n");
  EXPECT_EQ(remote_command("", "~/my bin/distrun"), "exec \"$HOME\"'/my bin/distrun' --from-stdin");
}

TEST(SshArguments, TheUsersOwnOptionsComeFirstAndNothingBehindTheHostIsOne) {
  const Words argv = ssh_arguments({"ssh", "-o", "ConnectTimeout=3"}, "ann@h1", "exec distrun");
  EXPECT_EQ(Words(argv.begin(), argv.begin() + 3), (Words{"ssh", "-o", "ConnectTimeout=3"}));
  EXPECT_EQ(Words(argv.end() - 4, argv.end()), (Words{"-T", "--", "ann@h1", "exec distrun"}));
  EXPECT_NE(std::find(argv.begin(), argv.end(), "BatchMode=yes"), argv.end());
}

}  // namespace
}  // namespace distrun::launcher
