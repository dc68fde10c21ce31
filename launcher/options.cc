#include "launcher/options.h"

#include "launcher/text.h"
#include "rendezvous/etcd/cluster.h"

#include <algorithm>
#include <array>
#include <bitset>

// Why not CLI11, which this file was meant for: shortened option names have to be resolved before
// anything else can be, and which tokens are values decides which are names, so the whole grammar
// is needed in front of it.  What it would then add is 0.2 ms of start-up (measured, 38 options) to
// a launcher that takes about one.

namespace distrun::launcher {
namespace {

constexpr int kWorkersMax = 65536;
constexpr int kRestartsMax = 1'000'000'000;
constexpr std::size_t kRunIdMax = 200;  // becomes part of a file name

// Empty: taken.  Else what is wrong with the value; the caller puts the option's name in front.
using Complaint = std::string;

Complaint not_a(std::string_view what, std::string_view value) {
  return "not " + std::string(what) + ": " + quote(value);
}

Complaint integer(int& field, std::string_view value, int low, int high) {
  const auto n = parse_int(value, low, high);
  if (!n) {
    return not_a("a whole number from " + std::to_string(low) + " to " + std::to_string(high),
                 value);
  }
  field = static_cast<int>(*n);
  return {};
}

template <class T>
Complaint take(T& field, Result<std::remove_cvref_t<T>> result) {
  if (!result) return result.error().detail;
  field = std::move(*result);
  return {};
}

Complaint nnodes(Options& o, std::string_view value) {
  const auto parts = split(value, ':');
  const auto low = parse_int(parts.front(), 1, kWorkersMax);
  const auto high = parse_int(parts.back(), 1, kWorkersMax);
  if (parts.size() > 2 || !low || !high || *low > *high) {
    return not_a("N or MIN:MAX with 1 <= MIN <= MAX <= " + std::to_string(kWorkersMax), value);
  }
  o.min_nodes = static_cast<int>(*low);
  o.max_nodes = static_cast<int>(*high);
  return {};
}

Complaint nproc(Options& o, std::string_view value) {
  if (value == "cpu") {
    o.nproc.kind = Nproc::Kind::cpu;
  } else if (value == "gpu") {
    o.nproc.kind = Nproc::Kind::gpu;
  } else if (value == "auto") {
    o.nproc.kind = Nproc::Kind::automatic;
  } else if (value == "xpu") {
    return "xpu: these devices cannot be counted without PyTorch; give their number";
  } else {
    const auto n = parse_int(value, 1, kWorkersMax);
    if (!n) {
      return "neither a number from 1 to " + std::to_string(kWorkersMax) +
             " nor auto, gpu or cpu: " + quote(value);
    }
    o.nproc = {Nproc::Kind::count, static_cast<int>(*n)};
  }
  return {};
}

Complaint backend(Options& o, std::string_view value) {
  if (value == "static") {
    o.backend = Backend::fixed;
  } else if (value == "c10d") {
    o.backend = Backend::c10d;
  } else if (value == "etcd" || value == "etcd-v2") {
    o.backend = Backend::etcd;
  } else {
    return "neither static, c10d nor etcd (backends that are Python plug-ins cannot be loaded "
           "here): " +
           quote(value);
  }
  o.etcd_v2 = value == "etcd-v2";
  return {};
}

Complaint endpoint(Options& o, std::string_view value) {
  o.endpoint.reset();
  o.endpoints.clear();
  if (value.empty()) return {};
  for (const std::string_view each : split(value, ',')) {
    auto parsed = parse_endpoint(each);
    if (!parsed) return parsed.error().detail;
    o.endpoints.push_back(std::move(*parsed));
  }
  if (o.endpoints.size() > rendezvous::etcd::kMaxEndpoints) {
    return "more than " + std::to_string(rendezvous::etcd::kMaxEndpoints) + " endpoints";
  }
  o.endpoint = o.endpoints.front();
  return {};
}

Complaint host(std::optional<std::string>& field, std::string_view value) {
  auto parsed = parse_host(value);
  if (!parsed) return parsed.error().detail;
  field = std::move(*parsed);
  return {};
}

Complaint local_addr(Options& o, std::string_view value) {
  if (!value.empty()) return host(o.local_addr, value);
  o.local_addr.reset();
  return {};
}

Complaint port(Options& o, std::string_view value) {
  int n = 0;
  if (Complaint wrong = integer(n, value, 0, 65535); !wrong.empty()) return wrong;
  o.master_port = static_cast<std::uint16_t>(n);
  return {};
}

Complaint rdzv_id(Options& o, std::string_view value) {
  if (value.size() > kRunIdMax || value.find('/') != std::string_view::npos || value == "." ||
      value == "..") {
    return not_a("a name of at most " + std::to_string(kRunIdMax) +
                     " bytes without '/' (it names the log folder)",
                 value);
  }
  o.rdzv_id = value;
  return {};
}

Complaint node_rank(Options& o, std::string_view value) {
  int n = 0;
  if (Complaint wrong = integer(n, value, 0, kWorkersMax - 1); !wrong.empty()) return wrong;
  o.node_rank = n;
  return {};
}

Complaint start_timeout(Options& o, std::string_view value) {
  const auto time = parse_seconds(value);
  if (!time || *time < std::chrono::seconds(1))
    return not_a("a number of seconds from 1 up", value);
  o.start_timeout = *time;
  return {};
}

Complaint monitor_interval(Options&, std::string_view value) {
  // Checked only: workers are watched by events, nothing is polled.
  const auto seconds = parse_seconds(value);
  return seconds && *seconds > Duration::zero() ? Complaint()
                                                : not_a("a positive number of seconds", value);
}

Complaint start_method(Options&, std::string_view value) {
  // Checked only: it is about worker functions, which exist in torchrun's Python interface alone.
  if (value == "spawn" || value == "fork" || value == "forkserver") return {};
  return not_a("spawn, fork or forkserver", value);
}

Complaint shutdown_timeout(Options& o, std::string_view value) {
  o.shutdown_timeout = parse_seconds(value);
  return o.shutdown_timeout ? Complaint() : not_a("a number of seconds from 0 up", value);
}

Complaint numa(Options& o, std::string_view value) {
  for (const NumaBinding binding : {NumaBinding::node, NumaBinding::socket, NumaBinding::exclusive,
                                    NumaBinding::core_complex}) {
    if (value == to_string(binding)) {
      o.numa_binding = binding;
      return {};
    }
  }
  return not_a("node, socket, exclusive or core-complex", value);
}

Complaint ranks_filter(Options& o, std::string_view value) {
  o.local_ranks_filter.reset();
  if (value.empty()) return {};
  std::vector<int> ranks;
  for (const std::string_view piece : split(value, ',')) {
    const auto rank = parse_int(piece, 0, kWorkersMax - 1);
    if (!rank) return not_a("a list of local ranks such as 0,3", value);
    ranks.push_back(static_cast<int>(*rank));
  }
  o.local_ranks_filter = std::move(ranks);
  return {};
}

// Separated by commas; two commas stand for one that belongs to the text.
Complaint filters(std::vector<std::string>& field, std::string_view value) {
  field.clear();
  std::string text;
  const auto finish = [&field, &text] {
    if (!text.empty()) field.push_back(std::move(text));  // an empty one would match every line
    text.clear();
  };
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i] != ',') {
      text += value[i];
    } else if (i + 1 < value.size() && value[i + 1] == ',') {
      text += ',';
      ++i;
    } else {
      finish();
    }
  }
  finish();
  return {};
}

Complaint env(Options& o, std::string_view value) {
  const std::string_view name = value.substr(0, value.find('='));
  const bool plain = !name.empty() && (name[0] < '0' || name[0] > '9') &&
                     std::all_of(name.begin(), name.end(), [](char c) {
                       return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                              (c >= 'a' && c <= 'z');
                     });
  if (!plain) return not_a("NAME or NAME=VALUE", value);
  o.env.emplace_back(value);
  return {};
}

Complaint log_format(Options& o, std::string_view value) {
  if (value != "text" && value != "json") return not_a("text or json", value);
  o.log_format = value == "json" ? log::Format::json : log::Format::text;
  return {};
}

Complaint console(Options& o, std::string_view value) {
  if (value == "auto") {
    o.console = Console::automatic;
  } else if (value == "inherit") {
    o.console = Console::inherit;
  } else if (value == "lines") {
    o.console = Console::lines;
  } else {
    return not_a("auto, inherit or lines", value);
  }
  return {};
}

Complaint text(std::string& field, std::string_view value) {
  field = value;
  return {};
}

Complaint set(bool& field) {
  field = true;
  return {};
}

enum class Variable { pet, none };
enum class Origin { torchrun, ours };

struct Row {
  std::string_view group;
  std::string_view name;
  char letter;
  std::string_view value;
  std::string_view fallback;
  Variable variable;
  Origin origin;
  Complaint (*apply)(Options&, std::string_view value);
  std::string_view help;

  bool is_flag() const { return value.empty(); }
  // The action of the rows that end the parsing.
  Action action() const {
    return name == "help" ? Action::help : name == "version" ? Action::version : Action::run;
  }
};

constexpr std::string_view kWorkers = "Workers";
constexpr std::string_view kNodes = "Nodes and rendezvous";
constexpr std::string_view kHosts = "Several hosts, started from here";
constexpr std::string_view kProgram = "What is run";
constexpr std::string_view kFailure = "Failures and stopping";
constexpr std::string_view kOutput = "Workers' output";
constexpr std::string_view kOwn = "The launcher itself";

constexpr Variable kPet = Variable::pet;
constexpr Variable kNoVariable = Variable::none;
constexpr Origin kTorchrun = Origin::torchrun;
constexpr Origin kOurs = Origin::ours;

using O = Options;
using V = std::string_view;

// clang-format off
constexpr std::array kRows{
    Row{kWorkers, "nproc-per-node", 0, "N|auto|gpu|cpu", "1", kPet, kTorchrun,
        [](O& o, V v) { return nproc(o, v); },
        "workers on this node; auto: one per GPU, without GPUs one per usable CPU"},
    Row{kWorkers, "numa-binding", 0, "KIND", "", kNoVariable, kTorchrun,
        [](O& o, V v) { return numa(o, v); },
        "CPUs of each worker: node, socket, exclusive or core-complex"},
    Row{kWorkers, "virtual-local-rank", 0, "", "", kPet, kTorchrun,
        [](O& o, V) { return set(o.virtual_local_rank); },
        "each worker sees one GPU and LOCAL_RANK=0"},
    Row{kWorkers, "role", 0, "NAME", "default", kPet, kTorchrun,
        [](O& o, V v) { return text(o.role, v); },
        "name of this group of workers, also in front of their lines"},

    Row{kNodes, "nnodes", 0, "N|MIN:MAX", "1:1", kPet, kTorchrun,
        [](O& o, V v) { return nnodes(o, v); },
        "number of nodes; with MIN:MAX the job runs with what there is"},
    Row{kNodes, "standalone", 0, "", "", kPet, kTorchrun,
        [](O& o, V) { return set(o.standalone); },
        "a job of this node alone, whatever the rendezvous options say"},
    Row{kNodes, "rdzv-backend", 0, "NAME", "static", kPet, kTorchrun,
        [](O& o, V v) { return backend(o, v); },
        "static: nodes are numbered by --node-rank; c10d: they number themselves; etcd: so, too, "
        "and a coordinator is elected"},
    Row{kNodes, "rdzv-endpoint", 0, "HOST[:PORT]", "", kPet, kTorchrun,
        [](O& o, V v) { return endpoint(o, v); },
        "where the nodes meet: at distrund, or else at the node with that address; of etcd, several "
        "are separated by commas"},
    Row{kNodes, "rdzv-id", 0, "ID", "none", kPet, kTorchrun,
        [](O& o, V v) { return rdzv_id(o, v); },
        "name of the job; empty: a fresh one"},
    Row{kNodes, "rdzv-conf", 0, "KEY=VALUE,...", "", kPet, kTorchrun,
        [](O& o, V v) { return take(o.rdzv_conf, parse_rdzv_conf(v)); },
        "settings of the rendezvous; an unknown key is an error"},
    Row{kNodes, "node-rank", 0, "N", "0", kPet, kTorchrun,
        [](O& o, V v) { return node_rank(o, v); },
        "rank of this node; with c10d it is honoured if given"},
    Row{kNodes, "master-addr", 0, "HOST", "127.0.0.1", kPet, kTorchrun,
        [](O& o, V v) { return host(o.master_addr, v); },
        "MASTER_ADDR of the workers"},
    Row{kNodes, "master-port", 0, "PORT", "", kPet, kTorchrun,
        [](O& o, V v) { return port(o, v); },
        "port of the workers' store; not given: any free one"},
    Row{kNodes, "local-addr", 0, "HOST", "", kPet, kTorchrun,
        [](O& o, V v) { return local_addr(o, v); },
        "address of this node, as other nodes reach it"},
    Row{kNodes, "start-timeout", 0, "SECONDS", "", kNoVariable, kOurs,
        [](O& o, V v) { return start_timeout(o, v); },
        "how long to wait until there are enough nodes; 600 if not given"},
    Row{kNodes, "events", 0, "FILE", "", kNoVariable, kOurs,
        [](O& o, V v) { return text(o.events_file, v); },
        "if this node coordinates: what happens in the job, as JSON lines"},

    Row{kHosts, "hosts", 0, "HOST[:N],...", "", kNoVariable, kOurs,
        [](O& o, V v) { return take(o.hosts, parse_hosts(v)); },
        "run on these hosts, started through ssh, with N workers each; [ADDRESS] for IPv6"},
    Row{kHosts, "hostfile", 0, "FILE", "", kNoVariable, kOurs,
        [](O& o, V v) { return text(o.hostfile, v); },
        "the same from a file: one host a line, HOST, HOST:N or HOST slots=N"},
    Row{kHosts, "ssh-command", 0, "COMMAND", "ssh", kNoVariable, kOurs,
        [](O& o, V v) { return text(o.ssh_command, v); },
        "the ssh client and options for it"},
    Row{kHosts, "remote-distrun", 0, "PATH", "", kNoVariable, kOurs,
        [](O& o, V v) { return text(o.remote_distrun, v); },
        "distrun over there; not given: at the same path as here, else in PATH"},
    Row{kHosts, "env", 0, "NAME[=VALUE]", "", kNoVariable, kOurs,
        [](O& o, V v) { return env(o, v); },
        "a variable that the hosts are given, with its value here or this one; may be repeated"},
    Row{kHosts, "host-prefix", 0, "", "", kNoVariable, kOurs,
        [](O& o, V) { return set(o.host_prefix); },
        "each line of output begins with its host"},

    Row{kProgram, "module", 'm', "", "", kPet, kTorchrun,
        [](O& o, V) { return set(o.module); },
        "SCRIPT is the name of a Python module, run as python -m"},
    Row{kProgram, "no-python", 0, "", "", kPet, kTorchrun,
        [](O& o, V) { return set(o.no_python); },
        "SCRIPT is a program, even if it does not look like one"},
    Row{kProgram, "run-path", 0, "", "", kPet, kTorchrun,
        [](O& o, V) { return set(o.run_path); },
        "taken; the script runs in an interpreter of its own as always"},
    Row{kProgram, "start-method", 0, "METHOD", "spawn", kPet, kTorchrun,
        [](O& o, V v) { return start_method(o, v); },
        "taken and without effect: spawn, fork or forkserver"},

    Row{kFailure, "max-restarts", 0, "N", "0", kPet, kTorchrun,
        [](O& o, V v) { return integer(o.max_restarts, v, 0, kRestartsMax); },
        "how often the job is started again after a worker failed"},
    Row{kFailure, "monitor-interval", 0, "SECONDS", "0.1", kPet, kTorchrun,
        [](O& o, V v) { return monitor_interval(o, v); },
        "taken and without effect: nothing is polled"},
    Row{kFailure, "shutdown-timeout", 0, "SECONDS", "30", kPet, kTorchrun,
        [](O& o, V v) { return shutdown_timeout(o, v); },
        "from the stop signal to SIGKILL, in every stop"},
    Row{kFailure, "signals-to-handle", 0, "NAMES", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", kPet, kTorchrun,
        [](O& o, V v) { return text(o.signals_to_handle, v); },
        "signals that stop the job; they are passed on to the workers"},

    Row{kOutput, "log-dir", 0, "FOLDER", "", kPet, kTorchrun,
        [](O& o, V v) { return text(o.log_dir, v); },
        "where log files go; not given: under $TMPDIR"},
    Row{kOutput, "redirects", 'r', "WHICH", "0", kPet, kTorchrun,
        [](O& o, V v) { return take(o.redirects, parse_redirects(v)); },
        "to files only: 0 none, 1 stdout, 2 stderr, 3 both, or 0:1,12:3"},
    Row{kOutput, "tee", 't', "WHICH", "0", kPet, kTorchrun,
        [](O& o, V v) { return take(o.tee, parse_redirects(v)); },
        "to files and, with a prefix, to the console; written alike"},
    Row{kOutput, "local-ranks-filter", 0, "RANKS", "", kPet, kTorchrun,
        [](O& o, V v) { return ranks_filter(o, v); },
        "only these local ranks reach the console"},
    Row{kOutput, "log-line-prefix-template", 0, "TEXT", "", kPet, kTorchrun,
        [](O& o, V v) { o.prefix_template = v; return Complaint(); },
        "in front of teed lines; ${role_name}, ${rank}, ${local_rank} and ${hostname} are replaced"},
    Row{kOutput, "duplicate-stdout-filters", 0, "TEXTS", "", kPet, kTorchrun,
        [](O& o, V v) { return filters(o.stdout_filters, v); },
        "lines of stdout with one of these texts also go to filtered_stdout.log"},
    Row{kOutput, "duplicate-stderr-filters", 0, "TEXTS", "", kPet, kTorchrun,
        [](O& o, V v) { return filters(o.stderr_filters, v); },
        "the same for stderr"},
    Row{kOutput, "logs-specs", 0, "NAME", "", kNoVariable, kTorchrun,
        [](O& o, V v) { return text(o.logs_specs, v); },
        "refused: a Python class that cannot be loaded here"},
    Row{kOutput, "event-log-handler", 0, "NAME", "null", kPet, kTorchrun,
        [](O& o, V v) { return text(o.event_log_handler, v); },
        "null; others are answered with a warning"},
    Row{kOutput, "console", 0, "MODE", "auto", kNoVariable, kOurs,
        [](O& o, V v) { return console(o, v); },
        "inherit: workers have the terminal itself; lines: whole lines only; auto: inherit for a "
        "single worker on a terminal"},

    Row{kOwn, "log-format", 0, "text|json", "text", kNoVariable, kOurs,
        [](O& o, V v) { return log_format(o, v); },
        "form of the launcher's own messages"},
    Row{kOwn, "verbose", 'v', "", "", kNoVariable, kOurs,
        [](O& o, V) { return set(o.verbose); },
        "tell every step"},
    Row{kOwn, "quiet", 'q', "", "", kNoVariable, kOurs,
        [](O& o, V) { return set(o.quiet); },
        "warnings and errors only"},
    Row{kOwn, "version", 0, "", "", kNoVariable, kOurs,
        [](O&, V) { return Complaint(); },
        "print the version and end"},
    Row{kOwn, "help", 'h', "", "", kNoVariable, kTorchrun,
        [](O&, V) { return Complaint(); },
        "print this and end"},
};
// clang-format on

Error usage(std::string text) {
  return Error{Errc::invalid_argument, std::move(text)};
}

// An option on the command line, found but not yet applied.
struct Given {
  std::size_t row;
  std::string_view value;
};

struct Split {
  std::vector<Given> options;
  std::size_t script;  // index of the first token that is the script's; may be one past the end
  Action action = Action::run;
};

Result<std::size_t> find_long(std::string_view spelling) {
  std::string name(spelling);
  std::replace(name.begin(), name.end(), '_', '-');
  std::vector<std::size_t> fits[2];  // torchrun's, ours
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return i;
    if (!name.empty() && kRows[i].name.starts_with(name)) {
      fits[kRows[i].origin == kTorchrun ? 0 : 1].push_back(i);
    }
  }
  const auto& fitting = fits[0].empty() ? fits[1] : fits[0];
  if (fitting.size() == 1) return fitting.front();

  std::vector<std::string_view> names;
  if (!fitting.empty()) {
    for (const std::size_t i : fitting) names.push_back(kRows[i].name);
    return usage("--" + printable(spelling) + ": may be any of --" + join(names, ", --"));
  }
  for (const Row& row : kRows) names.push_back(row.name);
  const std::string_view close = nearest(name, names);
  return usage(
      "--" + printable(spelling) + ": no such option" +
      (close.empty() ? "; --help lists them" : "; the nearest is --" + std::string(close)));
}

Result<std::size_t> find_letter(char letter, std::string_view token) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].letter == letter) return i;
  }
  return usage("-" + printable({&letter, 1}) + (token.size() > 2 ? " in " + quote(token) : "") +
               ": no such option; --help lists them");
}

// Does a token after a value option hold its value?  As argparse decides it: a missing value is
// noticed instead of eating the next option.
bool may_be_value(std::string_view token) {
  return !token.starts_with('-') || token == "-" || token.find(' ') != std::string_view::npos ||
         (token.size() > 1 && parse_seconds(token.substr(1)));
}

class Splitter {
 public:
  explicit Splitter(std::span<const std::string_view> tokens) : tokens_(tokens) {}

  Result<Split> run() {
    while (next_ < tokens_.size() && split_.action == Action::run) {
      const std::string_view token = tokens_[next_];
      if (!token.starts_with('-') || token == "-") break;
      ++next_;
      if (token == "--") break;
      const auto step = token.starts_with("--") ? take_long(token) : take_letters(token);
      if (!step) return step.error();
    }
    split_.script = next_;
    return std::move(split_);
  }

 private:
  Result<void> take_long(std::string_view token) {
    const std::size_t equals = token.find('=');
    const std::string_view spelling = token.substr(0, equals);
    const auto row = find_long(spelling.substr(2));
    if (!row) return row.error();
    if (equals == std::string_view::npos) return take(*row, spelling, std::nullopt);
    return take(*row, spelling, token.substr(equals + 1));
  }

  Result<void> take_letters(std::string_view token) {
    for (std::size_t i = 1; i < token.size(); ++i) {
      const auto row = find_letter(token[i], token);
      if (!row) return row.error();
      std::string_view glued = token.substr(i + 1);
      const std::string spelling = {'-', token[i]};
      if (kRows[*row].is_flag() && !glued.starts_with('=')) {
        if (auto step = take(*row, spelling, std::nullopt); !step) return step;
        continue;
      }
      if (glued.empty()) return take(*row, spelling, std::nullopt);
      if (glued.starts_with('=')) glued.remove_prefix(1);
      return take(*row, spelling, glued);
    }
    return {};
  }

  Result<void> take(std::size_t row, std::string_view spelling,
                    std::optional<std::string_view> value) {
    if (kRows[row].is_flag()) {
      if (value) return usage(std::string(spelling) + ": takes no value: " + quote(*value));
      if (split_.action == Action::run) split_.action = kRows[row].action();
    } else if (!value) {
      if (next_ >= tokens_.size() || !may_be_value(tokens_[next_])) {
        return usage(std::string(spelling) + ": needs a value (" + std::string(kRows[row].value) +
                     (next_ < tokens_.size() ? "), but " + quote(tokens_[next_]) + " follows"
                                             : "), but nothing follows"));
      }
      value = tokens_[next_++];
    }
    split_.options.push_back({row, value.value_or(std::string_view())});
    return {};
  }

  std::span<const std::string_view> tokens_;
  std::size_t next_ = 0;
  Split split_{};
};

std::string variable_of(const Row& row) {
  std::string name = "PET_";
  for (const char c : row.name) {
    name += c == '-' ? '_' : static_cast<char>(c - 'a' + 'A');  // names are a-z and '-'
  }
  return name;
}

Result<void> apply_variable(const Row& row, const Environment& environment, Options& options) {
  if (row.variable == kNoVariable) return {};
  const std::string variable = variable_of(row);
  const auto value = lookup(environment, variable);
  if (!value) return {};
  if (!row.is_flag()) {
    const Complaint wrong = row.apply(options, *value);
    if (!wrong.empty()) return usage(variable + ": " + wrong);
    return {};
  }
  const auto number = parse_int(*value, INT64_MIN, INT64_MAX);
  if (!number) return usage(variable + ": neither 0 (off) nor 1 (on): " + quote(*value));
  if (*number != 0) row.apply(options, {});
  return {};
}

}  // namespace

Result<Options> parse_options(std::span<const std::string_view> arguments,
                              const Environment& environment) {
  auto found = Splitter(arguments).run();
  if (!found) return found.error();
  Options options;
  options.action = found->action;
  if (options.action != Action::run) return options;

  std::bitset<kRows.size()> given;
  for (const Given& option : found->options) given.set(option.row);
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (given.test(i)) continue;
    if (const auto applied = apply_variable(kRows[i], environment, options); !applied) {
      return applied.error();
    }
  }
  for (const Given& option : found->options) {
    const Row& row = kRows[option.row];
    const Complaint wrong = row.apply(options, option.value);
    if (!wrong.empty()) return usage("--" + std::string(row.name) + ": " + wrong);
  }

  if (found->script >= arguments.size()) {
    return usage("nothing to run: give a script, a module with -m, or a program");
  }
  options.target = arguments[found->script];
  const auto rest = arguments.subspan(found->script + 1);
  options.target_arguments.assign(rest.begin(), rest.end());
  return options;
}

std::vector<GivenOption> given_options(std::span<const std::string_view> arguments,
                                       const Environment& environment) {
  std::vector<GivenOption> all;
  const auto found = Splitter(arguments).run();
  if (!found) return all;
  std::bitset<kRows.size()> given;
  for (const Given& option : found->options) given.set(option.row);
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    const Row& row = kRows[i];
    if (given.test(i) || row.variable == kNoVariable) continue;
    const auto value = lookup(environment, variable_of(row));
    if (!value || (row.is_flag() && parse_int(*value, 0, 0))) continue;
    all.push_back({row.name, row.is_flag(), std::string(row.is_flag() ? V() : *value)});
  }
  for (const Given& option : found->options) {
    const Row& row = kRows[option.row];
    all.push_back({row.name, row.is_flag(), std::string(option.value)});
  }
  return all;
}

std::string version() {
  return DISTRUN_VERSION;
}

std::string version_text() {
  return "distrun " + version() + "\n";
}

std::string help_text() {
  std::string out =
      "usage: distrun [options] SCRIPT [arguments of the script]\n"
      "       distrun --hosts HOST[:N],... [options] SCRIPT [arguments of the script]\n"
      "       distrun status --rdzv-endpoint HOST[:PORT] [--job ID] [--json] [--watch]\n"
      "       distrun flight [FOLDER|FILE ...] [--last N] [--trace FILE]\n"
      "       distrun submit [options of submit] -- SCRIPT [arguments of the script]\n\n"
      "Starts SCRIPT as a group of workers, watches them, starts them again when one fails, and\n"
      "says which one failed first and why.  SCRIPT is a Python script, a module (-m) or a\n"
      "program.  Options end at SCRIPT.  Every one of torchrun's options can also be given as\n"
      "PET_<NAME> in the environment, except where (no variable) is noted.  status shows what the\n"
      "coordinator of jobs over several nodes knows; flight shows in which operation each rank of "
      "a\n"
      "job is or was; submit runs SCRIPT on nodes of a SLURM cluster.  Each has its --help; a "
      "script\n"
      "of such a name is run as ./status.\n";
  constexpr std::size_t kColumn = 34;
  constexpr std::size_t kWidth = 96;
  std::string_view group;
  for (const Row& row : kRows) {
    if (row.group != group) {
      group = row.group;
      out += "\n" + std::string(group) + ":\n";
    }
    std::string line = row.letter != 0 ? std::string("  -") + row.letter + ", --" : "      --";
    line += row.name;
    if (!row.is_flag()) line += " " + std::string(row.value);
    std::string help(row.help);
    if (!row.fallback.empty()) help += " (default: " + std::string(row.fallback) + ")";
    if (row.origin == kTorchrun && row.variable == kNoVariable && row.action() == Action::run) {
      help += " (no variable)";
    }
    for (const std::string_view word : split(help, ' ')) {
      if (line.size() < kColumn) {
        line.resize(kColumn, ' ');
      } else if (line.size() + 1 + word.size() > kWidth ||
                 (line.size() >= kColumn && !out.empty() && line.find("  ", 8) == line.npos)) {
        out += line + "\n";
        line.assign(kColumn, ' ');
      } else {
        line += ' ';
      }
      line += word;
    }
    out += line + "\n";
  }
  return out;
}

std::vector<OptionInfo> option_table() {
  std::vector<OptionInfo> table;
  table.reserve(kRows.size());
  for (const Row& row : kRows) {
    table.push_back({row.name, row.letter, row.value, row.fallback, row.variable == kPet,
                     row.origin == kTorchrun});
  }
  return table;
}

}  // namespace distrun::launcher
