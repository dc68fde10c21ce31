#include "apps/distrund/options.h"

#include <CLI/CLI.hpp>

#include <map>
#include <string>

namespace distrun::daemon {

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  options.store.port = 29400;
  bool verbose = false;
  bool quiet = false;

  CLI::App app(
      "Serves PyTorch's TCPStore protocol to clients of every PyTorch version, until SIGTERM or "
      "SIGINT.\nThe protocol has no authentication: whoever reaches the port can read and write.",
      "distrund");
  app.add_option("--host", options.store.address, "IPv4 or IPv6 address to listen on; no names")
      ->capture_default_str();
  app.add_option("--port", options.store.port, "0: any free port")->capture_default_str();
  app.add_option("--max-memory", options.store.max_total_bytes,
                 "For keys, values and buffers together, as in 512MB or 2GB (1024-based)")
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
      "Exit status: 0 stopped by a signal, 2 wrong usage, 70 a bug in distrund, 71 the address or\n"
      "port is not to be had.");

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
