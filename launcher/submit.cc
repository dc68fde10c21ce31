#include "launcher/submit.h"

#include "launcher/exit_code.h"
#include "launcher/machine_files.h"
#include "launcher/slurm_commands.h"
#include "launcher/text.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <thread>
#include <unistd.h>

namespace distrun::launcher {
namespace {

using Complaint = std::string;  // empty: taken

Complaint number(int& field, std::string_view value, int low) {
  const auto n = parse_int(value, low, 1'000'000);
  if (!n) return "not a whole number from " + std::to_string(low) + " up: " + quote(value);
  field = static_cast<int>(*n);
  return {};
}

Complaint text(std::string& field, std::string_view value) {
  field = value;
  return {};
}

Complaint more(std::vector<std::string>& field, std::string_view value) {
  field.emplace_back(value);
  return {};
}

using S = Submission;
using V = std::string_view;

struct Row {
  std::string_view name;
  std::string_view value;  // empty: a flag
  Complaint (*apply)(Submission&, std::string_view value);
  std::string_view help;
};

// clang-format off
constexpr std::array kRows{
    Row{"nodes", "N", [](S& s, V v) { return number(s.options.nodes, v, 1); },
        "nodes that work (1)"},
    Row{"min-nodes", "N", [](S& s, V v) { return number(s.options.min_nodes, v, 1); },
        "go on with so many if nodes are lost; not given: all"},
    Row{"spares", "N", [](S& s, V v) { return number(s.options.spares, v, 0); },
        "more nodes in the allocation, that take a lost one's place (0)"},
    Row{"nproc-per-node", "N|auto|gpu|cpu", [](S& s, V v) { return text(s.options.nproc_per_node, v); },
        "workers on each node (1)"},
    Row{"cpus-per-node", "N", [](S& s, V v) { return number(s.options.cpus_per_node, v, 1); },
        "CPUs on each node; SLURM gives one if not told"},
    Row{"gpus-per-node", "[TYPE:]N", [](S& s, V v) { return text(s.options.gpus_per_node, v); },
        "GPUs on each node"},
    Row{"partition", "NAME", [](S& s, V v) { return text(s.options.partition, v); }, "SLURM's partition"},
    Row{"time", "TIME", [](S& s, V v) { return text(s.options.time, v); }, "time limit, such as 2:00:00"},
    Row{"job-name", "NAME", [](S& s, V v) { return text(s.options.job_name, v); }, "not given: the program's"},
    Row{"max-restarts", "N", [](S& s, V v) { return number(s.options.max_restarts, v, 0); },
        "restarts after a failure of a worker (0)"},
    Row{"requeue", "", [](S& s, V) { s.options.requeue = true; return Complaint(); },
        "stopped before the time limit and by preemption, it is started again"},
    Row{"notice", "SECONDS", [](S& s, V v) { return number(s.options.notice, v, 10); },
        "with --requeue: how long before the limit workers are asked to stop (120)"},
    Row{"save-signal", "USR1|USR2", [](S& s, V v) { return text(s.options.save_signal, v); },
        "with --requeue: what workers get first; only if they handle it"},
    Row{"max-requeues", "N", [](S& s, V v) { return number(s.options.max_requeues, v, 0); },
        "with --requeue: no more than that (20)"},
    Row{"log-dir", "FOLDER", [](S& s, V v) { return text(s.options.log_dir, v); },
        "output, and that of each rank below FOLDER/JOB"},
    Row{"setup", "FILE", [](S& s, V v) { return text(s.options.setup, v); },
        "sourced by the script first: modules, environments"},
    Row{"slurm", "OPTION", [](S& s, V v) { return more(s.options.slurm, v); },
        "any other option of sbatch, such as --slurm=--account=physics; may be repeated"},
    Row{"distrun", "OPTION", [](S& s, V v) { return more(s.options.launcher_options, v); },
        "any other option of distrun; may be repeated"},
    Row{"launcher", "PATH", [](S& s, V v) { return text(s.options.launcher, v); },
        "the distrun of the nodes; not given: this one"},
    Row{"from", "FILE", [](S&, V) { return Complaint(); }, "these options as a JSON object; \"command\" is a list"},
    Row{"dry-run", "", [](S& s, V) { s.dry_run = true; return Complaint(); },
        "print the script, submit nothing"},
    Row{"wait", "", [](S& s, V) { s.wait = true; return Complaint(); },
        "follow the output, end with the job's status"},
    Row{"help", "", [](S& s, V) { s.help = true; return Complaint(); }, "print this and end"},
};
// clang-format on

Error wrong(std::string text) {
  return Error{Errc::invalid_argument, std::move(text)};
}

Result<const Row*> find_row(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) {
    if (row.name == name) return &row;
    names.push_back(row.name);
  }
  const std::string_view close = nearest(name, names);
  return wrong("submit: --" + printable(name) + ": no such option" +
               (close.empty() ? "; distrun submit --help lists them"
                              : "; the nearest is --" + std::string(close)) +
               "; options of sbatch go behind --slurm=");
}

Result<void> apply(Submission& submission, const Row& row, std::string_view value) {
  if (Complaint why = row.apply(submission, value); !why.empty()) {
    return wrong("--" + std::string(row.name) + ": " + why);
  }
  return {};
}

Result<void> apply_json(Submission& submission, const Row& row, const nlohmann::json& value) {
  if (value.is_array()) {
    for (const auto& item : value) {
      if (!item.is_string()) return wrong("not a text: " + printable(item.dump()));
      if (auto done = apply(submission, row, item.get<std::string>()); !done) return done;
    }
    return {};
  }
  if (row.value.empty()) {
    if (!value.is_boolean()) return wrong("neither true nor false: " + printable(value.dump()));
    return value.get<bool>() ? apply(submission, row, {}) : Result<void>();
  }
  if (value.is_string()) return apply(submission, row, value.get<std::string>());
  if (value.is_number_integer()) return apply(submission, row, value.dump());
  return wrong("not a text, a whole number or a list of texts: " + printable(value.dump()));
}

Result<void> read_from(Submission& submission, const std::string& path) {
  const auto name_it = [&path](std::string_view key, const Error& error) {
    return Error{error.code, path + ": " + printable(key) + ": " + error.detail};
  };
  if (!exists(path)) return Error{Errc::not_found, "--from: no such file: " + quote(path)};
  const auto json = nlohmann::json::parse(read_file(path), nullptr, false, true);
  if (!json.is_object()) return wrong("--from: " + quote(path) + " is not a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (key == "command") {
      if (!value.is_array()) return name_it(key, wrong("not a list of texts"));
      for (const auto& word : value) {
        if (!word.is_string()) return name_it(key, wrong("not a list of texts"));
        submission.options.command.push_back(word.get<std::string>());
      }
      continue;
    }
    const auto row = find_row(key);
    if (!row || key == "from" || key == "help") {
      return name_it(key, row ? wrong("only on the command line") : row.error());
    }
    if (auto done = apply_json(submission, **row, value); !done) return name_it(key, done.error());
  }
  return {};
}

std::string help_of_submit() {
  std::string text =
      "distrun submit [options] -- script [arguments]\n\n"
      "Writes a batch script that runs the script under distrun on nodes of a SLURM cluster, and\n"
      "submits it. Prints the job's number.\n\n";
  for (const Row& row : kRows) {
    std::string left = "  --" + std::string(row.name);
    if (!row.value.empty()) left += " " + std::string(row.value);
    if (left.size() < 34) left.resize(34, ' ');
    text += left + " " + std::string(row.help) + "\n";
  }
  return text;
}

// What --wait shows: the output file from where we are.
class Follower {
 public:
  explicit Follower(std::string path) : path_(std::move(path)) {}
  ~Follower() {
    if (fd_ >= 0) ::close(fd_);
  }
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  void print_new() {
    if (fd_ < 0) fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) return;
    char piece[65536];
    ssize_t size = 0;
    while ((size = ::read(fd_, piece, sizeof piece)) > 0) {
      std::fwrite(piece, 1, static_cast<std::size_t>(size), stdout);
    }
    std::fflush(stdout);
  }

 private:
  std::string path_;
  int fd_ = -1;
};

std::string_view field(std::string_view text, std::string_view name) {
  const std::string wanted = " " + std::string(name) + "=";
  const std::size_t at = text.find(wanted);
  if (at == text.npos) return {};
  text.remove_prefix(at + wanted.size());
  return text.substr(0, text.find_first_of(" \n"));
}

int follow(const std::string& job, const std::string& output) {
  constexpr auto kPause = std::chrono::seconds(1);
  constexpr int kSilentMax = 120;  // questions that SLURM did not answer, one after the other
  log::info("following the job; Ctrl-C ends the watching, scancel the job", {{"job", job}});
  Follower follower(output);
  for (int silent = 0; silent < kSilentMax;) {
    std::this_thread::sleep_for(kPause);
    follower.print_new();
    const auto shown =
        run_command({"scontrol", "--oneliner", "show", "job", job}, std::chrono::seconds(30));
    const std::string_view state = shown ? field(shown->out, "JobState") : std::string_view();
    silent = state.empty() ? silent + 1 : 0;
    bool over = false;
    for (const std::string_view end : {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL",
                                       "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}) {
      over = over || state == end;
    }
    if (!over) continue;
    follower.print_new();
    const auto parts = split(field(shown->out, "ExitCode"), ':');
    const auto status = parse_int(parts.front(), 0, 255).value_or(kExitSystem);
    const auto signal = parse_int(parts.back(), 0, 127).value_or(0);
    log::info("the job is over", {{"job", job}, {"state", std::string(state)}});
    if (signal > 0) return exit_for_signal(static_cast<int>(signal));
    if (status == 0 && state != "COMPLETED") return kExitSystem;
    return static_cast<int>(status);
  }
  log::error("SLURM does not answer any more; the job may still run: scontrol show job " + job);
  return kExitSystem;
}

int explain(const Error& error) {
  log::error(error.detail);
  return exit_for_start_error(error.code);
}

int submit(const Submission& submission, const std::string& script) {
  std::error_code failed;
  if (!submission.options.log_dir.empty()) {
    std::filesystem::create_directories(submission.options.log_dir, failed);
    if (failed) {
      log::error("--log-dir: " + quote(submission.options.log_dir) + ": " + failed.message());
      return kExitSystem;
    }
  }
  std::string path = (std::filesystem::temp_directory_path(failed) / "distrun-submit.XXXXXX");
  const int file = ::mkstemp(path.data());
  const bool written = file >= 0 && ::write(file, script.data(), script.size()) ==
                                        static_cast<ssize_t>(script.size());
  if (file >= 0) ::close(file);
  if (!written) {
    log::error("the script cannot be written to " + quote(path));
    return kExitSystem;
  }
  const auto sent = run_command({"sbatch", "--parsable", path}, std::chrono::seconds(120), true);
  ::unlink(path.c_str());
  if (!sent) {
    log::error(
        sent.error().code == Errc::not_found
            ? "sbatch: no such command: SLURM is not installed here; --dry-run prints the script"
            : sent.error().detail);
    return sent.error().code == Errc::not_found ? kExitNotFound : kExitSystem;
  }
  if (sent->status != 0) return sent->status;
  // "number" or "number;cluster"
  const std::string_view line = trim(sent->out);
  const std::string job(line.substr(0, line.find(';')));
  std::printf("%s\n", job.c_str());
  std::fflush(stdout);
  if (!submission.wait) return kExitSuccess;
  std::string output = output_path(submission.options);
  output.replace(output.find("%j"), 2, job);
  return follow(job, output);
}

// Several jobs, another file, another cluster: whoever waits would look at the wrong one.
bool moves_the_output(std::string_view option) {
  constexpr std::array kLong{"--array", "--output", "--error", "--chdir", "--clusters"};
  const std::string_view name = option.substr(0, option.find_first_of("= "));
  if (std::find(kLong.begin(), kLong.end(), name) != kLong.end()) return true;
  constexpr std::string_view kShort = "aoeDM";
  return option.size() > 1 && option[0] == '-' && option[1] != '-' &&
         kShort.find(option[1]) != kShort.npos;
}

}  // namespace

Result<Submission> parse_submission(std::span<const std::string_view> arguments) {
  Submission submission;
  // The file first, wherever it stands: the command line wins.
  struct Given {
    const Row* row;
    std::string_view value;
  };
  std::vector<Given> given;
  std::vector<std::string> command;
  for (std::size_t next = 0; next < arguments.size(); ++next) {
    std::string_view token = arguments[next];
    if (token == "-h") token = "--help";
    if (token == "--" || !token.starts_with("--")) {
      if (token.starts_with("-") && token != "--") return find_row(token.substr(1)).error();
      const std::size_t first = next + (token == "--" ? 1 : 0);
      command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(first), arguments.end());
      break;
    }
    const std::size_t equals = token.find('=');
    const auto row = find_row(token.substr(2, equals == token.npos ? token.npos : equals - 2));
    if (!row) return row.error();
    if ((*row)->value.empty()) {
      if (equals != token.npos) return wrong(std::string(token) + ": takes no value");
      given.push_back({*row, {}});
    } else if (equals != token.npos) {
      given.push_back({*row, token.substr(equals + 1)});
    } else if (next + 1 < arguments.size()) {
      given.push_back({*row, arguments[++next]});
    } else {
      return wrong(std::string(token) + ": needs a value (" + std::string((*row)->value) + ")");
    }
  }
  for (const Given& each : given) {
    if (each.row->name != "from") continue;
    if (auto done = read_from(submission, std::string(each.value)); !done) return done.error();
  }
  for (const Given& each : given) {
    if (auto done = apply(submission, *each.row, each.value); !done) return done.error();
  }
  if (!command.empty()) submission.options.command = std::move(command);
  if (submission.wait) {
    for (const std::string& option : submission.options.slurm) {
      if (moves_the_output(option)) {
        return wrong("--wait: follows one job's own output here; it cannot with --slurm=" + option);
      }
    }
  }
  return submission;
}

std::vector<std::string_view> submit_option_names() {
  std::vector<std::string_view> names;
  names.reserve(std::size(kRows));
  for (const Row& row : kRows) names.push_back(row.name);
  return names;
}

int run_submit(std::span<const std::string_view> arguments, const Environment&) {
  auto submission = parse_submission(arguments);
  if (!submission) return explain(submission.error());
  if (submission->help) {
    std::fputs(help_of_submit().c_str(), stdout);
    return kExitSuccess;
  }
  if (submission->options.launcher.empty()) {
    std::error_code failed;
    submission->options.launcher = std::filesystem::read_symlink("/proc/self/exe", failed).string();
    if (failed) submission->options.launcher = "distrun";
  }
  const auto script = to_batch_script(submission->options);
  if (!script) return explain(script.error());
  if (!submission->dry_run) return submit(*submission, *script);
  return std::fputs(script->c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? kExitSuccess
                                                                              : kExitSystem;
}

}  // namespace distrun::launcher
