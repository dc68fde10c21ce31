#include "launcher/job.h"

#include "agent/core/worker_env.h"
#include "launcher/program.h"
#include "launcher/stop_signals.h"
#include "launcher/text.h"
#include "runtime/base/check.h"

#include <algorithm>
#include <filesystem>

namespace distrun::launcher {
namespace {

constexpr Duration kShutdownTimeout = std::chrono::seconds(30);

// A job that torchrun would turn into its single-node mode: a private rendezvous with a fresh id.
bool is_private(const Options& options) {
  return options.standalone ||
         (options.backend == Backend::fixed && !options.endpoint && !options.master_port);
}

class JobMaker {
 public:
  JobMaker(const Options& options, const Machine& machine, const Environment& environment)
      : options_(options), machine_(machine), environment_(environment) {}

  Result<Job> run() {
    using Step = Result<void> (JobMaker::*)();
    // Cheap and general complaints first: who mistypes --nnodes need not hear of the script.
    for (const Step step : {&JobMaker::refuse_what_cannot_be, &JobMaker::workers,
                            &JobMaker::program, &JobMaker::placement, &JobMaker::environment,
                            &JobMaker::stopping, &JobMaker::output, &JobMaker::nodes}) {
      if (const auto done = (this->*step)(); !done) return done.error();
    }
    return std::move(job_);
  }

 private:
  static constexpr std::uint16_t kStaticPort = 29500;  // torchrun's defaults
  static constexpr std::uint16_t kC10dPort = 29400;
  static constexpr std::uint16_t kEtcdPort = 2379;

  static Error wrong(std::string text) { return Error{Errc::invalid_argument, std::move(text)}; }
  static Error unsupported(std::string text) { return Error{Errc::unsupported, std::move(text)}; }
  void warn(std::string text) { job_.warnings.push_back(std::move(text)); }

  Result<void> refuse_what_cannot_be() {
    if (!options_.logs_specs.empty()) {
      return unsupported("--logs-specs: " + quote(options_.logs_specs) +
                         " names a Python class, which cannot be loaded here; leave it out and use "
                         "--log-dir, --redirects and --tee");
    }
    if (options_.no_python && options_.module) {
      return wrong("--module and --no-python cannot be given together");
    }
    if (!options_.env.empty() || options_.host_prefix || !options_.remote_distrun.empty()) {
      return wrong("--env, --host-prefix and --remote-distrun: only with --hosts or --hostfile");
    }
    if (options_.verbose && options_.quiet) {
      return wrong("--verbose and --quiet cannot be given together");
    }
    // torchrun's c10d gives ranks itself and does not look at the option.
    const int rank = options_.node_rank.value_or(0);
    if (rank != 0 && !options_.standalone && options_.backend == Backend::fixed &&
        rank >= options_.max_nodes) {
      return wrong("--node-rank: " + std::to_string(rank) + ", but a job of " +
                   (options_.max_nodes == 1
                        ? "one node has only node rank 0"
                        : std::to_string(options_.max_nodes) + " nodes has node ranks 0 to " +
                              std::to_string(options_.max_nodes - 1)));
    }
    if (options_.event_log_handler != "null") {
      warn("--event-log-handler: " + quote(options_.event_log_handler) +
           (options_.event_log_handler == "console"
                ? " is not available; --log-format json tells the same events"
                : " is a Python plug-in and cannot be loaded here; no events are sent"));
    }
    if (options_.run_path) {
      warn("--run-path: the script runs in an interpreter of its own, as without the option");
    }
    return {};
  }

  Result<void> workers() {
    const Nproc& asked = options_.nproc;
    const Gpus& gpus = machine_.gpus;
    // CUDA lets a process use one MIG slice, so that only virtual ranks can use several.
    const int visible =
        options_.virtual_local_rank ? std::max(gpus.count, gpus.mig_slices) : gpus.count;
    switch (asked.kind) {
      case Nproc::Kind::count:
        job_.spec.nproc = asked.count;
        return {};
      case Nproc::Kind::cpu:
        break;
      case Nproc::Kind::gpu:
        if (visible == 0) return wrong("--nproc-per-node: gpu: no GPU found; " + gpus.found);
        [[fallthrough]];
      case Nproc::Kind::automatic:
        if (visible > 0) {
          job_.spec.nproc = visible;
          job_.notes.push_back(std::to_string(visible) + " workers, one per GPU; " + gpus.found);
          return {};
        }
        break;
    }
    job_.spec.nproc = usable_cpus(machine_);
    job_.notes.push_back(
        std::to_string(job_.spec.nproc) + " workers, one per usable CPU (" +
        std::to_string(machine_.cpus.size()) + " allowed" +
        (machine_.cpu_quota ? ", cgroup quota " + std::to_string(*machine_.cpu_quota) : "") + ")" +
        (asked.kind == Nproc::Kind::automatic ? "; no GPU found: " + gpus.found : ""));
    return {};
  }

  Result<void> program() {
    auto found = find_program(options_, environment_, machine_.working_folder);
    if (!found) return found.error();
    job_.spec.command = std::move(found->command);
    for (std::string& warning : found->warnings) warn(std::move(warning));
    return {};
  }

  Result<void> placement() {
    if (!options_.numa_binding) return {};
    auto cpus = bind_workers(*options_.numa_binding, job_.spec.nproc, machine_.topology);
    if (!cpus) return Error{cpus.error().code, "--numa-binding: " + cpus.error().detail};
    job_.spec.cpus = std::move(*cpus);
    return {};
  }

  Result<void> environment() {
    agent::Spec& spec = job_.spec;
    spec.environment.reserve(environment_.size() + 1);
    for (const auto& [name, value] : environment_) {
      // Ours to set; and a secret that is none of the workers' business.
      if (name == "TORCHELASTIC_SIGNALS_TO_HANDLE" || name == "DISTRUN_TOKEN") continue;
      spec.environment.emplace_back(name, value);
    }
    spec.environment.emplace_back("TORCHELASTIC_SIGNALS_TO_HANDLE", options_.signals_to_handle);
    if (spec.nproc > 1 && environment_.count("OMP_NUM_THREADS") == 0) {
      job_.notes.push_back(
          "OMP_NUM_THREADS is 1 in each worker, so that they do not overload the machine; set it "
          "to choose another number");
    }
    spec.virtual_local_rank = options_.virtual_local_rank;
    if (auto problem = agent::virtual_rank_problem(spec)) return std::move(*problem);
    return {};
  }

  Result<void> stopping() {
    job_.spec.max_restarts = options_.max_restarts;
    StopSignals signals = parse_stop_signals(options_.signals_to_handle);
    job_.spec.stop_signals = std::move(signals.numbers);
    for (std::string& warning : signals.warnings) warn(std::move(warning));

    job_.spec.grace = options_.shutdown_timeout.value_or(kShutdownTimeout);
    const auto variable = lookup(environment_, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    if (!options_.shutdown_timeout && variable) {
      const auto seconds = parse_seconds(*variable);
      if (!seconds) {
        return wrong("TORCH_ELASTIC_SHUTDOWN_TIMEOUT: not a number of seconds from 0 up: " +
                     quote(*variable));
      }
      job_.spec.grace = *seconds;
    }
    return {};
  }

  Result<void> output() {
    const int nproc = job_.spec.nproc;
    agent::LogSpec& log = job_.spec.log;
    if (!options_.log_dir.empty()) {
      // A worker may change its folder; the path of its error file must still hold.
      const std::filesystem::path folder =
          std::filesystem::path(machine_.working_folder) / options_.log_dir;
      log.base_dir = folder.lexically_normal().string();
    }
    log.redirects = expand(options_.redirects, nproc);
    log.tee = expand(options_.tee, nproc);
    for (const auto& [name, redirects] :
         {std::pair{"--redirects", &options_.redirects}, std::pair{"--tee", &options_.tee}}) {
      for (const auto& [rank, streams] : redirects->by_rank) unless_worker(name, rank);
    }
    log.on_console.assign(static_cast<std::size_t>(nproc), !options_.local_ranks_filter);
    if (options_.local_ranks_filter) {
      for (const int rank : *options_.local_ranks_filter) {
        if (rank < nproc) log.on_console[static_cast<std::size_t>(rank)] = true;
        unless_worker("--local-ranks-filter", rank);
      }
    }
    log.out_filters = options_.stdout_filters;
    log.err_filters = options_.stderr_filters;
    log.prefix_template =
        options_.prefix_template
            ? *options_.prefix_template
            : lookup(environment_, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or("");
    job_.spec.host_name = machine_.host_name;

    job_.inherit_console =
        options_.console == Console::inherit ||
        (options_.console == Console::automatic && nproc == 1 && machine_.terminal);
    job_.quiet = options_.quiet;
    job_.log.format = options_.log_format;
    job_.log.level = level();
    return {};
  }

  void unless_worker(std::string_view option, int rank) {
    if (rank >= job_.spec.nproc) {
      warn(std::string(option) + ": there is no local rank " + std::to_string(rank) +
           "; the last one is " + std::to_string(job_.spec.nproc - 1));
    }
  }

  log::Level level() const {
    if (options_.verbose) return log::Level::debug;
    if (options_.quiet) return log::Level::warning;
    // torchrun's variable.  Programs of all kinds share it, so that a word we do not know is
    // theirs.
    const std::string_view asked = lookup(environment_, "LOGLEVEL").value_or("");
    if (asked == "DEBUG") return log::Level::debug;
    if (asked == "WARNING") return log::Level::warning;
    if (asked == "ERROR" || asked == "CRITICAL") return log::Level::error;
    return log::Level::info;
  }

  Result<void> nodes() {
    identity();
    if (options_.max_nodes == 1 || options_.standalone) return {};
    agent::Spec& spec = job_.spec;
    const RdzvConf& conf = options_.rdzv_conf;
    const bool fixed = options_.backend == Backend::fixed;
    if (fixed && options_.min_nodes != options_.max_nodes) {
      return wrong("--nnodes: " + std::to_string(options_.min_nodes) + ":" +
                   std::to_string(options_.max_nodes) +
                   ": with static the number of nodes is fixed; use --rdzv-backend c10d");
    }
    if (options_.rdzv_id && options_.rdzv_id->empty()) {
      return wrong(
          "--rdzv-id: empty asks for a fresh name, and each node would make its own; give "
          "all nodes the same");
    }
    agent::RemoteRendezvousOptions nodes;
    if (options_.backend == Backend::etcd) {
      auto cluster = etcd();
      if (!cluster) return cluster.error();
      nodes.etcd = std::move(*cluster);
    } else if (options_.endpoints.size() > 1) {
      return wrong("--rdzv-endpoint: several endpoints are for --rdzv-backend etcd");
    } else if (options_.endpoint) {
      nodes.endpoint.address = options_.endpoint->host;
      nodes.endpoint.port = options_.endpoint->port.value_or(fixed ? kStaticPort : kC10dPort);
    } else if (fixed && options_.master_addr) {
      nodes.endpoint.address = *options_.master_addr;
      nodes.endpoint.port = options_.master_port.value_or(kStaticPort);
    } else {
      return wrong(std::string("--nnodes: ") + std::to_string(options_.max_nodes) +
                   " nodes need a place to meet: " +
                   (fixed ? "--master-addr (and --master-port), or --rdzv-endpoint"
                          : "--rdzv-endpoint HOST[:PORT]") +
                   ", the same on all of them");
    }
    // The port that all nodes were told is the coordinator's; each round's store has a fresh one.
    spec.master_port = fixed ? std::uint16_t(0) : options_.master_port.value_or(0);
    spec.master_addr.clear();

    nodes.job = spec.run_id;
    nodes.token = lookup(environment_, "DISTRUN_TOKEN").value_or("");
    nodes.host_name = machine_.host_name;
    nodes.local_addr = options_.local_addr.value_or("");
    if (fixed) {
      nodes.node_rank = NodeRank(options_.node_rank.value_or(0));
    } else if (options_.node_rank) {
      nodes.node_rank = NodeRank(*options_.node_rank);
    }
    nodes.is_host = conf.is_host;
    nodes.takeover = conf.takeover == "any"     ? rendezvous::TakeoverRule::any
                     : conf.takeover == "never" ? rendezvous::TakeoverRule::never
                                                : rendezvous::TakeoverRule::majority;
    nodes.start_timeout = options_.start_timeout.value_or(conf.join_timeout);
    nodes.patience = conf.reattach_timeout;
    nodes.takeover_patience = conf.takeover_timeout;
    nodes.events_file = options_.events_file;

    rendezvous::Terms& terms = nodes.terms;
    terms.min_nodes = options_.min_nodes;
    terms.max_nodes = options_.max_nodes;
    terms.command = (options_.module ? "-m " : "") + options_.target;
    terms.fixed_ranks = fixed;
    terms.max_restarts = spec.max_restarts;
    terms.restart_window = spec.restart_window;
    terms.join_timeout = nodes.start_timeout;
    terms.last_call = conf.last_call_timeout;
    terms.rejoin_wait = conf.rejoin_wait;
    terms.beat = conf.keep_alive_interval;
    terms.beats_missed = conf.keep_alive_max_attempt;
    job_.nodes = std::move(nodes);
    return {};
  }

  // Where the coordinator is elected.
  Result<rendezvous::etcd::Cluster> etcd() {
    const RdzvConf& conf = options_.rdzv_conf;
    if (options_.endpoints.empty()) {
      return wrong("--rdzv-backend etcd: --rdzv-endpoint H1:2379,H2:2379,H3:2379 is missing");
    }
    if (conf.is_host) {
      return wrong("--rdzv-conf: is_host: with etcd the nodes elect who coordinates; leave it out");
    }
    if (options_.etcd_v2) {
      warn("--rdzv-backend etcd-v2: etcd's v3 interface is used, as with etcd");
    }
    rendezvous::etcd::Cluster cluster;
    for (const Endpoint& endpoint : options_.endpoints) {
      cluster.endpoints.push_back({endpoint.host, endpoint.port.value_or(kEtcdPort)});
      if (cluster.endpoints.back().port == 0) return wrong("--rdzv-endpoint: port 0 of etcd");
    }
    cluster.prefix = conf.etcd_prefix;
    while (cluster.prefix.ends_with('/')) cluster.prefix.pop_back();
    cluster.prefix += "/" + job_.spec.run_id;
    cluster.ttl_seconds = conf.etcd_ttl;
    if (!options_.rdzv_id) {
      warn(
          "--rdzv-id is missing: of all jobs without one on this etcd, by whomever, there is only "
          "one; give each job a name of its own, the same on all its nodes");
    }

    rendezvous::etcd::Security& security = cluster.security;
    security.tls = conf.protocol == "https";
    const auto either = [](const std::string& v2, const std::string& v1) {
      return v2.empty() ? v1 : v2;
    };
    security.files.ca = either(conf.ca_cert, conf.cacert);
    security.files.cert = either(conf.ssl_cert, conf.cert);
    security.files.key = either(conf.ssl_cert_key, conf.key);
    if (!security.tls && security.files != rendezvous::etcd::TlsFiles{}) {
      return wrong("--rdzv-conf: certificates and keys are for protocol=https");
    }
    security.user = conf.user;
    security.password = conf.password;
    const auto complete = rendezvous::etcd::complete(
        security, [this](const char* name) -> std::optional<std::string> {
          const auto value = lookup(environment_, name);
          return value ? std::optional<std::string>(*value) : std::nullopt;
        });
    if (!complete) return complete.error();
    return cluster;
  }

  void identity() {
    agent::Spec& spec = job_.spec;
    spec.role = options_.role;
    if (options_.rdzv_id) {
      spec.run_id = options_.rdzv_id->empty() ? machine_.fresh_id : *options_.rdzv_id;
    } else {
      spec.run_id = is_private(options_) ? machine_.fresh_id : "none";
    }

    // The endpoint of static is the workers' store; that of c10d would be the rendezvous, which a
    // job of one node does not have.
    const bool fixed = options_.backend == Backend::fixed && !options_.standalone;
    spec.master_addr = fixed && options_.endpoint ? options_.endpoint->host
                       : options_.master_addr     ? *options_.master_addr
                                                  : options_.local_addr.value_or("127.0.0.1");
    // One address instead of the two that the name stands for: the store listens on one.
    if (spec.master_addr == "localhost") spec.master_addr = "127.0.0.1";
    spec.master_port = fixed && options_.endpoint && options_.endpoint->port
                           ? *options_.endpoint->port
                           : options_.master_port.value_or(0);
  }

  const Options& options_;
  const Machine& machine_;
  const Environment& environment_;
  Job job_;
};

}  // namespace

Wanted wanted(const Options& options) {
  Wanted result;
  const Nproc::Kind kind = options.nproc.kind;
  const bool bound = options.numa_binding.has_value();
  result.gpus = kind == Nproc::Kind::gpu || kind == Nproc::Kind::automatic || bound;
  result.cpus = kind == Nproc::Kind::cpu || kind == Nproc::Kind::automatic || bound;
  result.topology = bound;
  return result;
}

Result<Job> make_job(const Options& options, const Machine& machine,
                     const Environment& environment) {
  DISTRUN_CHECK(options.action == Action::run);
  return JobMaker(options, machine, environment).run();
}

}  // namespace distrun::launcher
