// A transcript of the command line: what was typed, and what distrun understood.  Read by
// options_test.cc, written anew with DISTRUN_REWRITE=1.
//
//   > PET_TEE=3 $ -r 1 x.py         variables, "$", arguments; '…' keeps blanks and empty words
//   redirects all=1, tee all=3, run x.py          what differs from the defaults, in words
//
// Lines that start with # and empty lines are kept.
#pragma once

#include "launcher/options.h"

#include <string>

namespace distrun::launcher {

// Everything in `options` that is not the default; "run TARGET [arguments]" at the end.
std::string describe(const Options& options);

// The transcript with every answer as the program gives it now.
std::string replay(const std::string& transcript);

}  // namespace distrun::launcher
