#include "launcher/status.h"

#include "launcher/exit_code.h"
#include "launcher/http_get.h"
#include "launcher/status_table.h"
#include "launcher/text.h"
#include "runtime/base/log.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <sys/ioctl.h>
#include <unistd.h>

namespace distrun::launcher {
namespace {

constexpr int kExitNoSuchJob = 1;
constexpr int kExitNoAnswer = 69;
constexpr std::uint16_t kDefaultPort = 29400;
constexpr std::string_view kClear = "\x1b[H\x1b[J";
constexpr const char* kHelp =
    "usage: distrun status --rdzv-endpoint HOST[:PORT] [--job ID] [--json] [--watch]\n\n"
    "Shows what the coordinator at that address (distrund, or the launcher that hosts it) knows:\n"
    "jobs, rounds, members with rank, host, address, state and last beat, restarts, the last\n"
    "failure.\n\n"
    "      --rdzv-endpoint HOST[:PORT]  the coordinator (default: $PET_RDZV_ENDPOINT; port: "
    "29400)\n"
    "      --job ID                     this job only (also: --rdzv-id)\n"
    "      --json                       one line of JSON; with --watch one a second\n"
    "      --watch                      again every second, until interrupted\n"
    "  -h, --help                       print this and end\n\n"
    "Exit status: 0 shown, 1 no such job, 2 wrong usage, 69 no coordinator answered.\n"
    "A script whose name is status is run as ./status.\n";

Error usage(std::string text) {
  return Error{Errc::invalid_argument, "status: " + std::move(text)};
}

// The page, as it is to be printed.  Errors: not_found, if the job is not there; else another.
Result<std::string> page(const StatusOptions& options) {
  const auto body = http_get(options.endpoint.host, *options.endpoint.port, "/status");
  if (!body) return Error{Errc::closed, body.error().detail};
  return options.json ? status_json_of(*body, options.job) : status_table(*body, options.job);
}

int exit_for(Errc code) {
  return code == Errc::not_found ? kExitNoSuchJob : kExitNoAnswer;
}

bool print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return std::fflush(stdout) == 0 && written;
}

// No more lines than the terminal has: what would scroll away is counted.
std::string fitted(const std::string& text) {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 4) return text;
  const auto lines = split(text, '\n');
  const std::size_t room = size.ws_row - 2U;
  if (lines.size() <= room) return text;
  std::string out;
  for (std::size_t i = 0; i + 1 < room; ++i) out += std::string(lines[i]) + "\n";
  return out + "... and " + std::to_string(lines.size() - room) + " lines more\n";
}

std::string time_of_day() {
  std::array<char, 16> text{};
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::strftime(text.data(), text.size(), "%H:%M:%S", &local);
  return text.data();
}

// Ends by a signal, or when nobody reads.  A coordinator that is away for a while is what one
// watches for: its absence is shown, and asked again.
int watch(const StatusOptions& options) {
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const std::string where = options.endpoint.host + ":" + std::to_string(*options.endpoint.port);
  for (;;) {
    const auto shown = page(options);
    std::string text;
    if (options.json) {
      if (!shown) log::warn(shown.error().detail);
      text = shown ? *shown : "";
    } else {
      text = time_of_day();
      text.append("  ").append(where).append("\n\n");
      text += shown ? *shown : shown.error().detail + "\n";
      if (terminal) {
        text = std::string(kClear).append(fitted(text));
      } else {
        text += "\n";
      }
    }
    if (!print(text)) return kExitSystem;
    ::sleep(1);
  }
}

}  // namespace

Result<StatusOptions> parse_status_options(std::span<const std::string_view> arguments,
                                           const Environment& environment) {
  StatusOptions options;
  std::string endpoint(lookup(environment, "PET_RDZV_ENDPOINT").value_or(""));
  std::string_view source = "PET_RDZV_ENDPOINT";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view token = arguments[i];
    const std::size_t equals = token.find('=');
    std::string name(token.substr(0, equals));
    std::replace(name.begin() + std::min<std::ptrdiff_t>(2, std::ssize(name)), name.end(), '_',
                 '-');
    const bool takes_value = name == "--rdzv-endpoint" || name == "--job" || name == "--rdzv-id";
    const bool is_flag = name == "--json" || name == "--watch" || name == "--help" || name == "-h";
    if (!takes_value && !is_flag) {
      return usage(quote(token) +
                   ": not an option of it; distrun status --help lists them (a "
                   "script whose name is status is run as ./status)");
    }
    if (is_flag) {
      if (equals != std::string_view::npos) return usage(name + ": takes no value");
      options.json = options.json || name == "--json";
      options.watch = options.watch || name == "--watch";
      options.help = options.help || name == "--help" || name == "-h";
      continue;
    }
    if (equals == std::string_view::npos && i + 1 == arguments.size()) {
      return usage(name + ": needs a value");
    }
    const std::string value(equals == std::string_view::npos ? arguments[++i]
                                                             : token.substr(equals + 1));
    if (name == "--rdzv-endpoint") {
      endpoint = value;
      source = "--rdzv-endpoint";
    } else {
      options.job = value;
    }
  }
  if (options.help) return options;
  if (endpoint.empty()) return usage("give --rdzv-endpoint HOST[:PORT], the coordinator's address");
  auto parsed = parse_endpoint(endpoint);
  if (!parsed) return usage(std::string(source) + ": " + parsed.error().detail);
  options.endpoint = std::move(*parsed);
  if (!options.endpoint.port) options.endpoint.port = kDefaultPort;
  return options;
}

int run_status(std::span<const std::string_view> arguments, const Environment& environment) {
  const auto options = parse_status_options(arguments, environment);
  if (!options) {
    log::error(options.error().detail);
    return exit_for_start_error(options.error().code);
  }
  if (options->help) return print(kHelp) ? kExitSuccess : kExitSystem;
  if (options->watch) return watch(*options);
  const auto shown = page(*options);
  if (!shown) {
    log::error(shown.error().detail);
    return exit_for(shown.error().code);
  }
  return print(*shown) ? kExitSuccess : kExitSystem;
}

}  // namespace distrun::launcher
