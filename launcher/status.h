// `distrun status`: what a coordinator knows of its jobs, once or again and again.
//
//   distrun status --rdzv-endpoint HOST[:PORT] [--job ID] [--json] [--watch]
//
// `status` is this verb only as the very first argument; a script of that name is run as ./status.
#pragma once

#include "launcher/endpoint.h"
#include "launcher/environment.h"
#include "runtime/base/result.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace distrun::launcher {

struct StatusOptions {
  Endpoint endpoint;
  std::string job;  // empty: all
  bool json = false;
  bool watch = false;
  bool help = false;
};

// `arguments` behind the word "status".  PET_RDZV_ENDPOINT counts where the option is missing.
Result<StatusOptions> parse_status_options(std::span<const std::string_view> arguments,
                                           const Environment& environment);

// The whole verb.  Exit status: 0 shown; 1 that job is not there; 2 wrong usage; 69 no coordinator
// answered; 71 standard output took no more.
int run_status(std::span<const std::string_view> arguments, const Environment& environment);

}  // namespace distrun::launcher
