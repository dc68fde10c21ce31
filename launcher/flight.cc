#include "launcher/flight.h"

#include "launcher/exit_code.h"
#include "launcher/flight_table.h"
#include "launcher/flight_trace.h"
#include "launcher/text.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/recorder/analysis.h"
#include "runtime/recorder/flight_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace distrun::launcher {
namespace {

namespace fs = std::filesystem;
using recorder::FolderRecords;
using recorder::RankRecord;

constexpr int kExitNothing = 1;
constexpr int kDeepest = 3;  // <run>/attempt_<n>/flight
constexpr std::size_t kMaxFolders = 256;
constexpr const char* kMemory = "/dev/shm";
constexpr std::string_view kOfAJob = "distrun_flight_";
constexpr const char* kHelp =
    "usage: distrun flight [FOLDER|FILE ...] [--last N] [--trace FILE]\n\n"
    "Shows where the ranks of a job are or were, as workers that use distrun::runtime wrote it\n"
    "down: who waits in which operation, who never entered it, and the last operations of each\n"
    "rank.  A job that runs can be read at any time; its workers notice nothing.\n\n"
    "  FOLDER        with rank_*.fr, or with such folders below it: <log dir>/<run>, a job's\n"
    "                in /dev/shm (default: all of this user's there)\n"
    "  FILE          records of one job, of several machines for example\n"
    "      --last N       the last N operations of each rank (default: 10)\n"
    "      --trace FILE   also writes a trace for ui.perfetto.dev; - is standard output, and\n"
    "                     nothing else is shown\n"
    "  -h, --help         print this and end\n\n"
    "Exit status: 0 shown, 1 there is no record, 2 wrong usage, 71 not written.\n"
    "A script whose name is flight is run as ./flight.\n";

Error usage(std::string text) {
  return Error{Errc::invalid_argument, "flight: " + std::move(text)};
}

bool print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return std::fflush(stdout) == 0 && written;
}

// Records that belong together.
struct Found {
  std::string where;
  FolderRecords records;
};

bool is_empty(const FolderRecords& records) {
  return records.ranks.empty() && records.problems.empty();
}

// The folder's own records; else those of each folder below it, in the order of names.
void look_into(const std::string& folder, int depth, std::vector<Found>& found) {
  if (found.size() >= kMaxFolders) return;
  auto records = recorder::read_flight_folder(folder);
  if (!records) {
    found.push_back({folder, {{}, {records.error().detail}}});
    return;
  }
  if (!is_empty(*records)) {
    found.push_back({folder, std::move(*records)});
    return;
  }
  if (depth == 0) return;
  std::vector<std::string> below;
  std::error_code ec;
  for (fs::directory_iterator entry(folder, ec), end; !ec && entry != end; entry.increment(ec)) {
    std::error_code ignored;
    if (entry->symlink_status(ignored).type() == fs::file_type::directory) {
      below.push_back(entry->path().string());
    }
    if (below.size() >= kMaxFolders) break;
  }
  std::sort(below.begin(), below.end());
  for (const std::string& path : below) look_into(path, depth - 1, found);
}

// Of this user's jobs on this machine; others' cannot be read.
std::vector<Found> look_around() {
  std::vector<Found> found;
  std::vector<std::string> jobs;
  std::error_code ec;
  for (fs::directory_iterator entry(kMemory, ec), end; !ec && entry != end; entry.increment(ec)) {
    const std::string path = entry->path().string();
    if (entry->path().filename().string().starts_with(kOfAJob) &&
        ::access(path.c_str(), R_OK | X_OK) == 0) {
      jobs.push_back(path);
    }
  }
  std::sort(jobs.begin(), jobs.end());
  for (const std::string& job : jobs) look_into(job, kDeepest, found);
  return found;
}

std::vector<Found> look_at(const std::vector<std::string>& paths) {
  if (paths.empty()) return look_around();
  std::vector<Found> found;
  Found files{"", {}};
  for (const std::string& path : paths) {
    std::error_code ec;
    if (fs::is_directory(path, ec)) {
      look_into(path, kDeepest, found);
      continue;
    }
    auto record = recorder::read_flight_file(path);
    if (record) {
      files.records.ranks.push_back(std::move(*record));
    } else {
      files.records.problems.push_back(record.error().detail);
    }
  }
  if (!is_empty(files.records)) found.insert(found.begin(), std::move(files));
  return found;
}

// Whether its writer is at work on this machine: the process is there, and runs that program.
bool alive(const RankRecord& rank) {
  std::array<char, 4096> program{};
  const std::string link = "/proc/" + std::to_string(rank.pid) + "/exe";
  const ssize_t size = ::readlink(link.c_str(), program.data(), program.size());
  return size > 0 && !rank.program.empty() &&
         std::string_view(program.data(), static_cast<std::size_t>(size)).starts_with(rank.program);
}

// While a rank is alive what it waits in still grows; else what was last written is the end.
std::int64_t moment_of(const std::vector<RankRecord>& ranks) {
  const std::int64_t last = recorder::last_moment(ranks);
  if (std::none_of(ranks.begin(), ranks.end(), alive)) return last;
  return std::max<std::int64_t>(last,
                                std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
}

bool write_trace(const std::string& path, const std::string& text) {
  if (path == "-") return print(text);
  std::FILE* file = std::fopen(path.c_str(), "we");
  const bool written =
      file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int why = errno;
  if (file != nullptr && std::fclose(file) == 0 && written) return true;
  log::error(os_error("--trace: " + path, why).detail);
  return false;
}

int show(const std::vector<Found>& found, const FlightOptions& options) {
  bool nothing = true;
  for (const Found& each : found) {
    for (const std::string& problem : each.records.problems) log::warn(problem);
    if (each.records.ranks.empty()) continue;
    std::string text = nothing ? "" : "\n";
    nothing = false;
    if (found.size() > 1 && !each.where.empty()) text += each.where + "\n\n";
    text += flight_table(each.records.ranks, moment_of(each.records.ranks), options.last);
    if (options.trace != "-" && !print(text)) return kExitSystem;
  }
  return nothing ? kExitNothing : kExitSuccess;
}

}  // namespace

Result<FlightOptions> parse_flight_options(std::span<const std::string_view> arguments) {
  FlightOptions options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view token = arguments[i];
    if (!token.starts_with('-') || token == "-") {
      options.paths.emplace_back(token);
      continue;
    }
    const std::size_t equals = token.find('=');
    const std::string name(token.substr(0, equals));
    if (name == "--help" || name == "-h") {
      if (equals != std::string_view::npos) return usage(name + ": takes no value");
      options.help = true;
      continue;
    }
    if (name != "--last" && name != "--trace") {
      return usage(quote(token) +
                   ": not an option of it; distrun flight --help lists them (a script whose name "
                   "is flight is run as ./flight)");
    }
    if (equals == std::string_view::npos && i + 1 == arguments.size()) {
      return usage(name + ": needs a value");
    }
    const std::string_view value =
        equals == std::string_view::npos ? arguments[++i] : token.substr(equals + 1);
    if (name == "--trace") {
      if (value.empty()) return usage("--trace: needs the name of a file");
      options.trace = value;
      continue;
    }
    const auto last = parse_int(value, 0, recorder::kMaxOps);
    if (!last) {
      return usage("--last: not a whole number from 0 to " + std::to_string(recorder::kMaxOps) +
                   ": " + quote(value));
    }
    options.last = static_cast<std::size_t>(*last);
  }
  return options;
}

int run_flight(std::span<const std::string_view> arguments) {
  const auto options = parse_flight_options(arguments);
  if (!options) {
    log::error(options.error().detail);
    return exit_for_start_error(options.error().code);
  }
  if (options->help) return print(kHelp) ? kExitSuccess : kExitSystem;
  const std::vector<Found> found = look_at(options->paths);
  if (const int status = show(found, *options); status != kExitSuccess) {
    if (status == kExitNothing) {
      log::error(options->paths.empty()
                     ? "flight: no job of this user on this machine records its operations"
                     : "flight: there is no record");
    }
    return status;
  }
  if (options->trace.empty()) return kExitSuccess;
  std::vector<const Found*> sound;
  for (const Found& each : found) {
    if (!each.records.ranks.empty()) sound.push_back(&each);
  }
  if (sound.size() > 1) {
    log::error("flight: --trace: there are " + std::to_string(sound.size()) +
               " rounds; name the folder of one");
    return kExitUsage;
  }
  const auto& ranks = sound.front()->records.ranks;
  return write_trace(options->trace, flight_trace(ranks, moment_of(ranks))) ? kExitSuccess
                                                                            : kExitSystem;
}

}  // namespace distrun::launcher
