#include "apps/distrund/options.h"

#include <CLI/CLI.hpp>

#include <map>
#include <string>

namespace distrun::daemon {

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  bool verbose = false;
  bool quiet = false;

  CLI::App app(
      "Coordinates jobs of distrun over many machines, and serves PyTorch's TCPStore protocol to "
      "clients\nof every PyTorch version, until SIGTERM or SIGINT.  GET /status and GET /metrics "
      "on "
      "the same port\nsay what it does.\n"
      "Whoever reaches the port can read the store and the status page; a job's secret "
      "(DISTRUN_TOKEN, on each\nof its nodes) keeps other nodes out of the job.",
      "distrund");
  app.add_option("--host", options.host, "IPv4 or IPv6 address to listen on; no names")
      ->capture_default_str();
  app.add_option("--port", options.port, "0: any free port")->capture_default_str();
  app.add_option("--state", options.state,
                 "What must outlive this process: after a restart, jobs go on where they were.  A "
                 "folder; or\netcd://[USER@]H1:2379,H2:2379,H3:2379[/PREFIX], etcds:// for TLS, "
                 "then of several "
                 "distrund one\nleads, and another takes over when it is lost (docs/etcd.md).  The "
                 "password is taken from\nETCDCTL_PASSWORD")
      ->type_name("FOLDER|etcd://…");
  app.add_option("--etcd-cacert", options.etcd_tls.ca,
                 "With etcds://: the CA that signed etcd's certificates; else ETCDCTL_CACERT, else "
                 "whom this\nmachine trusts")
      ->type_name("FILE");
  app.add_option("--etcd-cert", options.etcd_tls.cert,
                 "With etcds://: this client's certificate; else ETCDCTL_CERT")
      ->type_name("FILE");
  app.add_option("--etcd-key", options.etcd_tls.key, "Its key; else ETCDCTL_KEY")
      ->type_name("FILE");
  app.add_option("--etcd-ttl", options.etcd_ttl,
                 "With etcd: after so long another leads if the leader is lost, 2 to 600 (seconds)")
      ->check(CLI::Range(2, 600))
      ->capture_default_str();
  app.add_option("--advertise", options.advertise,
                 "With etcd: where agents reach this distrund, if that is not --host and --port")
      ->type_name("ADDRESS[:PORT]");
  app.add_option("--events", options.events,
                 "File to which what happens is appended, as JSON lines (docs/events.md)")
      ->type_name("FILE");
  app.add_option("--max-memory", options.max_memory,
                 "For the store's keys, values and buffers, as in 512MB or 2GB (1024-based)")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--log-format", options.log.format, "text or json")
      ->transform(CLI::CheckedTransformer(std::map<std::string, log::Format>{
          {"text", log::Format::text}, {"json", log::Format::json}}))
      ->default_str("text");
  app.add_flag("-v,--verbose", verbose,
               "Also log what is only of interest when looking for a fault");
  app.add_flag("-q,--quiet", quiet, "Log warnings and errors only")->excludes("--verbose");
  app.set_version_flag("--version", "distrund " DISTRUN_VERSION);
  app.footer(
      "Exit status: 0 stopped by a signal, 2 wrong usage, 70 a bug in distrund, 71 the address, "
      "port, folder\nor file is not to be had.");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? kStopped : kUsage;
    return std::nullopt;
  }
  if (verbose) options.log.level = log::Level::debug;
  if (quiet) options.log.level = log::Level::warning;
  return options;
}

}  // namespace distrun::daemon
