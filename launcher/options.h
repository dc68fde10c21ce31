// Options: what the user asked for, from the command line and the PET_ variables, each value
// checked by itself.  How they go together, and what the machine says to it, is job.h's concern.
//
// The grammar is torchrun's:
//   - options end at the first token that is not one: the script.  Nothing after it is looked at;
//     a "--" before it is dropped.
//   - --opt value, --opt=value, -r3, -r 3, and dashes and underscores mean the same in names.
//   - a long option may be shortened to a prefix that fits only one (torchrun's options go before
//     ours, so that a prefix torchrun takes is taken here).
//   - a value that starts with '-' and is not a number must be given as --opt=value.
//   - command line > PET_<NAME> variable > default.  A variable that is set and empty counts.
// All options are rows of one table (options.cc); option_table() shows them to tests and to the
// help.
#pragma once

#include "launcher/endpoint.h"
#include "launcher/environment.h"
#include "launcher/hosts/host_list.h"
#include "launcher/numa.h"
#include "launcher/rdzv_conf.h"
#include "launcher/redirects.h"
#include "runtime/base/log.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

enum class Action { run, help, version };

// auto: a single worker on a terminal has the terminal itself; otherwise whole lines pass through
// the launcher.
enum class Console { automatic, inherit, lines };

enum class Backend { fixed, c10d, etcd };  // --rdzv-backend static, c10d, etcd or etcd-v2

struct Nproc {
  enum class Kind { count, cpu, gpu, automatic };
  Kind kind = Kind::count;
  int count = 1;  // with Kind::count
  bool operator==(const Nproc&) const = default;
};

struct Options {
  Action action = Action::run;

  int min_nodes = 1;
  int max_nodes = 1;
  Nproc nproc;

  Backend backend = Backend::fixed;
  bool etcd_v2 = false;                // asked for by that name
  std::optional<Endpoint> endpoint;    // the first
  std::vector<Endpoint> endpoints;     // all; more than one only with etcd
  std::optional<std::string> rdzv_id;  // given and empty: a fresh one is wanted
  RdzvConf rdzv_conf;
  bool standalone = false;
  std::optional<int> node_rank;
  std::optional<std::string> master_addr;
  std::optional<std::uint16_t> master_port;
  std::optional<std::string> local_addr;
  std::optional<Duration> start_timeout;  // nullopt: join_timeout of rdzv_conf
  std::string events_file;                // empty: none

  // Started from here through ssh (hosts/hosts_job.h); neither list nor file: no.
  std::vector<Host> hosts;
  std::string hostfile;
  std::string ssh_command = "ssh";
  std::string remote_distrun;    // empty: as here, else in PATH
  std::vector<std::string> env;  // NAME or NAME=VALUE
  bool host_prefix = false;

  std::string role = "default";
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  std::string target;  // script, module or program
  std::vector<std::string> target_arguments;

  int max_restarts = 0;
  std::optional<Duration> shutdown_timeout;  // nullopt: TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30 s
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  bool virtual_local_rank = false;
  std::optional<NumaBinding> numa_binding;

  std::string log_dir;
  Redirects redirects;
  Redirects tee;
  std::optional<std::vector<int>> local_ranks_filter;
  std::optional<std::string> prefix_template;  // nullopt: TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE
  std::vector<std::string> stdout_filters;
  std::vector<std::string> stderr_filters;
  std::string event_log_handler = "null";
  std::string logs_specs;

  log::Format log_format = log::Format::text;
  bool verbose = false;
  bool quiet = false;
  Console console = Console::automatic;
};

// `arguments` without argv[0].  On failure one sentence that names the option or variable, the
// value and what is allowed; the exit status is 2 (exit_code.h).
Result<Options> parse_options(std::span<const std::string_view> arguments,
                              const Environment& environment);

// The options that were given, those of PET_ variables first, one entry for each time: what another
// distrun has to be told to understand the same.
// REQUIRES: parse_options() took these.
struct GivenOption {
  std::string_view name;  // without dashes
  bool is_flag;
  std::string value;
};
std::vector<GivenOption> given_options(std::span<const std::string_view> arguments,
                                       const Environment& environment);

std::string help_text();
std::string version();  // "0.1.0"
std::string version_text();

// A row of the table as tests, completions and the manual page see it.
struct OptionInfo {
  std::string_view name;      // without dashes in front: "nproc-per-node"
  char letter;                // 'r', or 0
  std::string_view value;     // how the help calls its value; empty: a flag
  std::string_view fallback;  // the default, as text; empty: none
  bool has_variable;          // PET_<NAME> is read
  bool of_torchrun;           // false: an option of distrun's own
};
std::vector<OptionInfo> option_table();

}  // namespace distrun::launcher
