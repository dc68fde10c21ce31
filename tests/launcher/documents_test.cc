// The manual page and the shells' completions are written by hand; these tests keep them complete.
#include "launcher/options.h"
#include "tests/launcher/support.h"

#include <gtest/gtest.h>

namespace distrun::launcher {
namespace {

// Not HasSubstr: a failure would print the whole file.
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Documents, BashCompletesEveryLongOption) {
  const std::string text = contents(source_path("configs/completions/distrun.bash"));
  for (const OptionInfo& option : option_table()) {
    EXPECT_TRUE(has(text, "--" + std::string(option.name) + "\n")) << option.name;
  }
}

TEST(Documents, ZshCompletesEveryLongOption) {
  const std::string text = contents(source_path("configs/completions/_distrun"));
  for (const OptionInfo& option : option_table()) {
    const std::string name = "--" + std::string(option.name) + (option.value.empty() ? "" : "=");
    // With a letter it stands in {-x,--name}, alone in '--name[what it is]'.
    EXPECT_TRUE(has(text, option.letter != 0 ? "," + name + "}" : name + "[")) << name;
    if (option.letter != 0) {
      EXPECT_TRUE(has(text, std::string("{-") + option.letter)) << option.letter;
    }
  }
}

TEST(Documents, FishCompletesEveryLongOption) {
  const std::string text = contents(source_path("configs/completions/distrun.fish"));
  for (const OptionInfo& option : option_table()) {
    EXPECT_TRUE(has(text, "-l " + std::string(option.name) + " ")) << option.name;
    if (option.letter != 0) {
      EXPECT_TRUE(has(text, std::string("-s ") + option.letter + " -l ")) << option.letter;
    }
  }
}

TEST(Documents, TheManualPageNamesEveryOption) {
  const std::string page = contents(source_path("docs/man/distrun.1"));
  for (const OptionInfo& option : option_table()) {
    std::string name(option.name);
    for (std::size_t at = 0; (at = name.find('-', at)) != std::string::npos; at += 2) {
      name.replace(at, 1, "\\-");
    }
    const std::string entry = "\n.BR \\-\\-" + name;
    EXPECT_TRUE(has(page, entry + " ") || has(page, entry + "\n")) << option.name;
  }
}

TEST(Documents, TheManualPageHasEveryExitStatus) {
  const std::string page = contents(source_path("docs/man/distrun.1"));
  for (const char* status : {"0", "2", "70", "71", "126", "127"}) {
    EXPECT_TRUE(has(page, "\n.B " + std::string(status) + "\n")) << status;
  }
  EXPECT_TRUE(has(page, "\n.BI 128+ n\n"));
}

}  // namespace
}  // namespace distrun::launcher
