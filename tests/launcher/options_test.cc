#include "launcher/options.h"

#include "launcher/text.h"
#include "tests/launcher/options_transcript.h"
#include "tests/launcher/support.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <vector>

namespace distrun::launcher {
namespace {

using ::testing::HasSubstr;

Result<Options> parse(const std::vector<std::string_view>& arguments,
                      const Environment& environment = {}) {
  return parse_options(arguments, environment);
}

TEST(Options, TranscriptHolds) {
  const std::string path = source_path("tests/launcher/golden/options.txt");
  const std::string expected = contents(path);
  const std::string actual = replay(expected);
  if (std::getenv("DISTRUN_REWRITE") != nullptr) {
    std::ofstream(path, std::ios::binary) << actual;
    return;
  }
  // Line by line, so that a failure shows the case and not two whole files.
  const auto old_lines = split(expected, '\n');
  const auto new_lines = split(actual, '\n');
  ASSERT_EQ(old_lines.size(), new_lines.size())
      << "an answer is missing; DISTRUN_REWRITE=1 adds it";
  for (std::size_t i = 1; i < new_lines.size(); ++i) {
    EXPECT_EQ(old_lines[i], new_lines[i]) << "line " << i + 1 << ", after " << old_lines[i - 1];
  }
}

TEST(Options, TranscriptMeetsEveryOption) {
  const std::string transcript = contents(source_path("tests/launcher/golden/options.txt"));
  for (const OptionInfo& option : option_table()) {
    EXPECT_NE(transcript.find("--" + std::string(option.name)), std::string::npos) << option.name;
  }
}

TEST(Options, TableHasTorchrunsNamesDefaultsAndVariables) {
  std::string table;
  for (const OptionInfo& option : option_table()) {
    if (!option.of_torchrun || option.name == "help") continue;
    table += std::string(option.letter != 0 ? std::string(1, option.letter) : " ") + " " +
             std::string(option.name) + ": " +
             (option.value.empty()      ? "flag"
              : option.fallback.empty() ? "none"
                                        : std::string(option.fallback)) +
             (option.has_variable ? "" : ", no variable") + "\n";
  }
  EXPECT_EQ(table, contents(source_path("tests/launcher/golden/torchrun_table.txt")));
}

// The help's text of a default is written by hand; this keeps it true.
TEST(Options, DefaultsInTheTableAreTheDefaultsOfTheProgram) {
  const auto plain = parse({"x.py"});
  ASSERT_TRUE(plain);
  for (const OptionInfo& option : option_table()) {
    if (option.value.empty() || option.fallback.empty()) continue;
    const std::string given = "--" + std::string(option.name) + "=" + std::string(option.fallback);
    const auto same = parse({given, "x.py"});
    ASSERT_TRUE(same) << given;
    Options cleared = *same;
    // What is only a default if not given at all.
    if (option.name == "rdzv-id") cleared.rdzv_id.reset();
    if (option.name == "master-addr") cleared.master_addr.reset();
    if (option.name == "shutdown-timeout") cleared.shutdown_timeout.reset();
    EXPECT_EQ(describe(cleared), describe(*plain)) << given;
  }
}

TEST(Options, EveryRefusalIsOneLine) {
  for (const OptionInfo& option : option_table()) {
    if (option.value.empty()) continue;
    const std::string bad = "--" + std::string(option.name) + "=\x01 bad\n";
    const auto result = parse({bad, "x.py"});
    if (result) continue;  // an option that takes any text
    EXPECT_EQ(result.error().code, Errc::invalid_argument);
    EXPECT_THAT(result.error().detail, HasSubstr("--" + std::string(option.name) + ": "));
    EXPECT_EQ(result.error().detail.find('\n'), std::string::npos);
  }
}

TEST(Options, AVeryLongValueIsNotRepeatedInFull) {
  const std::string value(100'000, 'x');
  const auto result = parse({"--nproc-per-node", value, "x.py"});
  ASSERT_FALSE(result);
  EXPECT_LT(result.error().detail.size(), 300U);
}

TEST(Options, EveryPetVariableIsRead) {
  for (const OptionInfo& option : option_table()) {
    if (!option.has_variable || option.fallback == "none") continue;
    std::string variable = "PET_" + std::string(option.name);
    for (char& c : variable) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
    // "1" is a value that each type takes, or one that it refuses by the variable's name.
    const auto with = parse({"x.py"}, {{variable, "1"}});
    if (!with) {
      EXPECT_THAT(with.error().detail, HasSubstr(variable));
      continue;
    }
    const bool without_effect = option.name == "monitor-interval" || option.name == "nnodes" ||
                                option.name == "nproc-per-node";
    if (!without_effect) {
      EXPECT_NE(describe(*with), "run x.py") << variable;
    }
  }
}

TEST(Options, HelpNamesEveryOption) {
  const std::string help = help_text();
  for (const OptionInfo& option : option_table()) {
    EXPECT_NE(help.find("--" + std::string(option.name)), std::string::npos) << option.name;
  }
  for (const std::string_view line : split(help, '\n')) EXPECT_LE(line.size(), 100U) << line;
}

TEST(Options, VersionIsTheProjects) {
  EXPECT_THAT(version_text(), ::testing::MatchesRegex("distrun [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

}  // namespace
}  // namespace distrun::launcher
