// The manual page and the shells' completions are written by hand; these tests keep them complete.
#include "launcher/options.h"
#include "tests/launcher/support.h"

#include <gmock/gmock.h>

namespace distrun::launcher {
namespace {

using ::testing::HasSubstr;

TEST(Documents, BashCompletesEveryLongOption) {
  const std::string text = contents(source_path("configs/completions/distrun.bash"));
  for (const OptionInfo& option : option_table()) {
    EXPECT_THAT(text, HasSubstr("--" + std::string(option.name) + "\n")) << option.name;
  }
}

TEST(Documents, ZshCompletesEveryLongOption) {
  const std::string text = contents(source_path("configs/completions/_distrun"));
  for (const OptionInfo& option : option_table()) {
    const std::string ending = option.value.empty() ? "[" : "=[";
    EXPECT_THAT(text, HasSubstr("--" + std::string(option.name) + ending)) << option.name;
    if (option.letter != 0) {
      EXPECT_THAT(text, HasSubstr(std::string("-") + option.letter));
    }
  }
}

TEST(Documents, FishCompletesEveryLongOption) {
  const std::string text = contents(source_path("configs/completions/distrun.fish"));
  for (const OptionInfo& option : option_table()) {
    EXPECT_THAT(text, HasSubstr("-l " + std::string(option.name) + " ")) << option.name;
    if (option.letter != 0) {
      EXPECT_THAT(text, HasSubstr(std::string("-s ") + option.letter + " -l " +
                                  std::string(option.name) + " "));
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
    EXPECT_THAT(page, HasSubstr("\n.BR \\-\\-" + name)) << option.name;
  }
}

TEST(Documents, TheManualPageHasEveryExitStatus) {
  const std::string page = contents(source_path("docs/man/distrun.1"));
  for (const char* status : {"0", "2", "70", "71", "126", "127"}) {
    EXPECT_THAT(page, HasSubstr("\n.B " + std::string(status) + "\n")) << status;
  }
  EXPECT_THAT(page, HasSubstr("\n.BI 128+ n\n"));
}

}  // namespace
}  // namespace distrun::launcher
