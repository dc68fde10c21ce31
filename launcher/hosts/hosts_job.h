// HostsJob: a job that this distrun starts on several hosts through ssh, checked as a whole before
// anything is started.
//
//   options, arguments, environment ──make_hosts_job──► HostsJob ──run_on_hosts──► exit status
//
// The options of the job itself are sent as they were given; whether the script exists and what a
// host can do is found out there. Nothing of this environment goes to the hosts but what --env
// names, and DISTRUN_TOKEN.
#pragma once

#include "launcher/environment.h"
#include "launcher/hosts/fan_out.h"
#include "launcher/hosts/host_order.h"
#include "launcher/options.h"
#include "runtime/base/log.h"
#include "runtime/base/result.h"

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distrun::launcher {

struct HostsJob {
  FanOutPlan plan;
  // For each host, in the plan's order; the meeting place is put in front of its arguments.
  std::vector<HostOrder> orders;
  std::vector<std::vector<std::string>> ssh;  // argv of each host's client
  std::vector<std::pair<std::string, std::string>> ssh_environment;
  bool prefix_lines = false;
  std::vector<int> stop_signals;
  log::Options log;
  std::vector<std::string> warnings;
  std::vector<std::string> notes;
};

// What is not in options and environment.
struct HostsSources {
  std::string working_folder;
  std::string own_path;  // of this program; empty: not known
  std::string version;
  std::string fresh_id;  // random, of this job
  std::string fresh_secret;
};

// Whether the options name hosts.
bool names_hosts(const Options& options);

// Reads the file of --hostfile.
Result<HostsJob> make_hosts_job(const Options& options, std::span<const std::string_view> arguments,
                                const Environment& environment, const HostsSources& sources);

// The order's arguments for a meeting place.
HostOrder at(HostOrder order, const Endpoint& meeting_place);

}  // namespace distrun::launcher
