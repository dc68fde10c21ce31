// The text of --signals-to-handle as signal numbers: names with or without SIG in any case, or
// numbers, separated by commas.  As in torchrun a name that means nothing is a warning, no error:
// one command line has to do on several systems.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

struct StopSignals {
  std::vector<int> numbers;           // each once, in the order given
  std::vector<std::string> warnings;  // one sentence each
};

StopSignals parse_stop_signals(std::string_view text);

}  // namespace distrun::launcher
