// Any command line and any PET_ variables: parse_options() answers, and what follows the script
// comes through untouched.  Input: words ended by '\n'; one that starts with '@' is a variable,
// "@NODE_RANK=1".
#include "launcher/options.h"
#include "launcher/text.h"
#include "runtime/base/check.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

using namespace distrun::launcher;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  std::vector<std::string_view> arguments;
  Environment environment;
  for (const std::string_view word : split(input, '\n')) {
    const std::size_t equals = word.find('=');
    if (word.starts_with('@') && equals != std::string_view::npos) {
      environment.emplace("PET_" + std::string(word.substr(1, equals - 1)),
                          word.substr(equals + 1));
    } else {
      arguments.push_back(word);
    }
  }

  const auto options = parse_options(arguments, environment);
  if (!options) {
    DISTRUN_CHECK(!options.error().detail.empty());
    DISTRUN_CHECK(options.error().detail.size() < 2000);
    return 0;
  }
  if (options->action != Action::run) return 0;
  const std::size_t count = options->target_arguments.size();
  DISTRUN_CHECK(count < arguments.size());
  const std::size_t script = arguments.size() - count - 1;
  DISTRUN_CHECK(options->target == arguments[script]);
  for (std::size_t i = 0; i < count; ++i) {
    DISTRUN_CHECK(options->target_arguments[i] == arguments[script + 1 + i]);
  }
  DISTRUN_CHECK(options->min_nodes >= 1 && options->min_nodes <= options->max_nodes);
  DISTRUN_CHECK(options->nproc.count >= 1);
  return 0;
}
