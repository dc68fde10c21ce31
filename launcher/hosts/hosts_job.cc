#include "launcher/hosts/hosts_job.h"

#include "launcher/hosts/host_list.h"
#include "launcher/hosts/remote_command.h"
#include "launcher/machine_files.h"
#include "launcher/stop_signals.h"
#include "launcher/text.h"

#include <algorithm>
#include <array>

namespace distrun::launcher {
namespace {

constexpr std::string_view kGraceVariable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
constexpr std::string_view kToken = "DISTRUN_TOKEN";

// Ours, or different on each host.
constexpr std::array<std::string_view, 8> kNotSent{"hosts",          "hostfile", "ssh-command",
                                                   "remote-distrun", "env",      "host-prefix",
                                                   "nnodes",         "node-rank"};

Error wrong(std::string text) {
  return Error{Errc::invalid_argument, std::move(text)};
}

std::string option(std::string_view name, std::string_view value) {
  return "--" + std::string(name) + "=" + std::string(value);
}

class HostsJobMaker {
 public:
  HostsJobMaker(const Options& options, std::span<const std::string_view> arguments,
                const Environment& environment, const HostsSources& sources)
      : options_(options), arguments_(arguments), environment_(environment), sources_(sources) {}

  Result<HostsJob> run() {
    using Step = Result<void> (HostsJobMaker::*)();
    for (const Step step :
         {&HostsJobMaker::hosts, &HostsJobMaker::refuse_what_cannot_be, &HostsJobMaker::nodes,
          &HostsJobMaker::variables, &HostsJobMaker::orders, &HostsJobMaker::clients}) {
      if (const auto done = (this->*step)(); !done) return done.error();
    }
    job_.plan.version = sources_.version;
    job_.prefix_lines = options_.host_prefix;
    StopSignals signals = parse_stop_signals(options_.signals_to_handle);
    job_.stop_signals = std::move(signals.numbers);
    job_.log.format = options_.log_format;
    job_.log.level = options_.verbose ? log::Level::debug
                     : options_.quiet ? log::Level::warning
                                      : log::Level::info;
    return std::move(job_);
  }

 private:
  Result<void> hosts() {
    if (!options_.hosts.empty() && !options_.hostfile.empty()) {
      return wrong("--hosts and --hostfile cannot be given together");
    }
    hosts_ = options_.hosts;
    if (options_.hostfile.empty()) return {};
    if (!exists(options_.hostfile)) {
      return Error{Errc::not_found, "--hostfile: no such file: " + quote(options_.hostfile)};
    }
    auto read = parse_hostfile(read_file(options_.hostfile));
    if (!read) {
      return Error{read.error().code,
                   "--hostfile: " + printable(options_.hostfile) + ": " + read.error().detail};
    }
    hosts_ = std::move(*read);
    return {};
  }

  Result<void> refuse_what_cannot_be() {
    const auto refuse = [](std::string_view name, std::string_view why) {
      return wrong("--" + std::string(name) +
                   " and --hosts cannot be given together: " + std::string(why));
    };
    if (options_.standalone) return refuse("standalone", "it is for a job of this node alone");
    if (options_.node_rank) return refuse("node-rank", "the order of the hosts is their rank");
    if (options_.local_addr) return refuse("local-addr", "each host has its own");
    if (options_.master_addr) {
      return refuse("master-addr",
                    "the hosts meet at the first one; another place is --rdzv-endpoint");
    }
    return {};
  }

  Result<void> nodes() {
    const auto count = static_cast<int>(hosts_.size());
    min_ = max_ = count;
    for (const GivenOption& given : given_options(arguments_, environment_)) {
      if (given.name != "nnodes") continue;
      min_ = options_.min_nodes;
      max_ = options_.max_nodes;
    }
    if (max_ > count) {
      return wrong("--nnodes: " + std::to_string(max_) + ", but there " +
                   (count == 1 ? "is one host" : "are " + std::to_string(count) + " hosts"));
    }
    if (max_ == 1 && count > 1) {
      return wrong("--nnodes: 1, but there are " + std::to_string(count) +
                   " hosts; a job that may take another's place is 1:2 or more");
    }
    job_.plan.min_hosts = static_cast<std::size_t>(min_);
    job_.plan.find_meeting_place = count > 1 && !options_.endpoint;
    if (options_.shutdown_timeout) job_.plan.grace = *options_.shutdown_timeout;
    return {};
  }

  Result<void> variables() {
    for (const std::string& entry : options_.env) {
      const std::size_t equals = entry.find('=');
      const std::string name = entry.substr(0, equals);
      if (name == kToken) return wrong("--env: " + name + " goes to the hosts by itself");
      if (equals != entry.npos) {
        order_.environment.emplace_back(name, entry.substr(equals + 1));
        continue;
      }
      const auto value = lookup(environment_, name);
      if (!value) {
        return wrong("--env: " + quote(name) + " is not set here; give it a value: --env " +
                     printable(name) + "=VALUE");
      }
      order_.environment.emplace_back(name, *value);
    }
    return {};
  }

  Result<void> orders() {
    order_.mark = sources_.fresh_secret.substr(0, sources_.fresh_secret.size() / 2);
    order_.folder = sources_.working_folder;
    // One that the user's distrund knows, or none, if the hosts meet there.
    order_.token = lookup(environment_, kToken).value_or("");
    if (order_.token.empty() && job_.plan.find_meeting_place) {
      order_.token = sources_.fresh_secret.substr(sources_.fresh_secret.size() / 2);
    }
    std::vector<std::string> common;
    for (const GivenOption& given : given_options(arguments_, environment_)) {
      if (std::find(kNotSent.begin(), kNotSent.end(), given.name) != kNotSent.end()) continue;
      common.push_back(given.is_flag ? "--" + std::string(given.name)
                                     : option(given.name, given.value));
    }
    common.push_back(option("nnodes", std::to_string(min_) + ":" + std::to_string(max_)));
    if (!options_.rdzv_id || options_.rdzv_id->empty()) {
      common.push_back(option("rdzv-id", sources_.fresh_id));
    }
    // A setting of the launcher, though a variable: it is meant for the whole job.
    if (const auto grace = lookup(environment_, kGraceVariable);
        grace && !options_.shutdown_timeout) {
      const auto seconds = parse_seconds(*grace);
      if (!seconds) {
        return wrong(std::string(kGraceVariable) +
                     ": not a number of seconds from 0 up: " + quote(*grace));
      }
      job_.plan.grace = *seconds;
      common.push_back(option("shutdown-timeout", *grace));
    } else if (!options_.shutdown_timeout) {
      // A host may have another one by its own variable; here it is known how long to wait.
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(job_.plan.grace);
      common.push_back(option("shutdown-timeout", std::to_string(seconds.count())));
    }
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      HostOrder order = order_;
      order.name = address_of(hosts_[i]);
      order.arguments = common;
      if (hosts_[i].workers) {
        order.arguments.push_back(option("nproc-per-node", std::to_string(*hosts_[i].workers)));
      }
      // A spare has no rank until it takes a lost host's.
      if (hosts_.size() > 1 && i < static_cast<std::size_t>(max_)) {
        order.arguments.push_back(option("node-rank", std::to_string(i)));
      }
      order.arguments.emplace_back("--");
      order.arguments.push_back(options_.target);
      order.arguments.insert(order.arguments.end(), options_.target_arguments.begin(),
                             options_.target_arguments.end());
      job_.orders.push_back(std::move(order));
      job_.plan.names.push_back(hosts_[i].name);
    }
    return {};
  }

  Result<void> clients() {
    const auto client = split_words(options_.ssh_command);
    if (!client) return Error{client.error().code, "--ssh-command: " + client.error().detail};
    const std::string command = remote_command(sources_.own_path, options_.remote_distrun);
    for (const Host& host : hosts_) {
      job_.ssh.push_back(ssh_arguments(*client, host.name, command));
    }
    for (const auto& [name, value] : environment_) {
      if (name != kToken) job_.ssh_environment.emplace_back(name, value);
    }
    job_.notes.push_back("each host is asked to run: " + command);
    return {};
  }

  const Options& options_;
  std::span<const std::string_view> arguments_;
  const Environment& environment_;
  const HostsSources& sources_;
  std::vector<Host> hosts_;
  int min_ = 1;
  int max_ = 1;
  HostOrder order_;  // what is the same for all
  HostsJob job_;
};

}  // namespace

bool names_hosts(const Options& options) {
  return !options.hosts.empty() || !options.hostfile.empty();
}

Result<HostsJob> make_hosts_job(const Options& options, std::span<const std::string_view> arguments,
                                const Environment& environment, const HostsSources& sources) {
  return HostsJobMaker(options, arguments, environment, sources).run();
}

HostOrder at(HostOrder order, const Endpoint& meeting_place) {
  const bool v6 = meeting_place.host.find(':') != std::string::npos;
  std::string address = v6 ? "[" + meeting_place.host + "]" : meeting_place.host;
  if (meeting_place.port) address += ":" + std::to_string(*meeting_place.port);
  order.arguments.insert(order.arguments.begin(),
                         {option("rdzv-backend", "c10d"), option("rdzv-endpoint", address)});
  return order;
}

}  // namespace distrun::launcher
