// Runs a job on several hosts: a guard, an ssh client for each host, and the rules of FanOut.
//
//   guard process ── HostsLauncher: Signals, Console, FanOut ── ssh, ssh, … ── distrun on each host
//
// When this process dies, however it dies, the clients die with it; the distrun on each host
// notices that nobody is there any more and stops its workers (starting_side.h).
#pragma once

#include "launcher/environment.h"
#include "launcher/hosts/hosts_job.h"
#include "launcher/options.h"

#include <span>
#include <string_view>

namespace distrun::launcher {

// How often each host hears from here.
inline constexpr Duration kBeat = std::chrono::seconds(5);

// The program's exit status. Call with no other thread in the process.
int run_on_hosts(const Options& options, std::span<const std::string_view> arguments,
                 const Environment& environment);

}  // namespace distrun::launcher
