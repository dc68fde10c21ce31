#include "launcher/submit_script.h"

#include "launcher/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

namespace distrun::launcher {
namespace {

Error wrong(std::string text) {
  return Error{Errc::invalid_argument, std::move(text)};
}

// By so much --signal may come before its time.
constexpr int kSignalEarly = 60;

// A time as SLURM has it: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S.  nullopt: none of these, or one
// of its words; SLURM will say so.
std::optional<std::int64_t> seconds_of(std::string_view time) {
  std::int64_t days = 0;
  const std::size_t dash = time.find('-');
  const bool has_days = dash != time.npos;
  const auto number = [](std::string_view text) -> std::optional<std::int64_t> {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < 0 ||
        value > 1'000'000) {
      return std::nullopt;
    }
    return value;
  };
  if (has_days) {
    const auto given = number(time.substr(0, dash));
    if (!given) return std::nullopt;
    days = *given;
    time.remove_prefix(dash + 1);
  }
  std::vector<std::int64_t> parts;
  for (;;) {
    const std::size_t colon = time.find(':');
    const auto part = number(time.substr(0, colon));
    if (!part || parts.size() == 3) return std::nullopt;
    parts.push_back(*part);
    if (colon == time.npos) break;
    time.remove_prefix(colon + 1);
  }
  // The unit of the first part.
  const std::int64_t units[] = {3600, 60, 1};
  std::size_t unit = has_days || parts.size() == 3 ? 0 : 1;
  std::int64_t seconds = days * 86'400;
  for (const std::int64_t part : parts) seconds += part * units[unit++];
  return seconds;
}

class Script {
 public:
  explicit Script(const SubmitOptions& options) : o_(options) {}

  Result<std::string> run() {
    if (auto checked = check(); !checked) return checked.error();
    add("#!/bin/bash");
    directives();
    if (!o_.setup.empty()) setup();
    add("");
    add("set -u");
    if (o_.requeue) stop_and_requeue();
    start();
    wait();
    finish();
    return std::move(text_);
  }

 private:
  void add(std::string_view line) { text_.append(line).append("\n"); }

  bool elastic() const { return o_.spares > 0 || (o_.min_nodes > 0 && o_.min_nodes < o_.nodes); }

  Result<void> check() const {
    const std::array texts{
        std::pair{"--partition", &o_.partition}, std::pair{"--time", &o_.time},
        std::pair{"--gpus-per-node", &o_.gpus_per_node},
        std::pair{"--job-name",
                  o_.job_name.empty() && !o_.command.empty() ? &o_.command.front() : &o_.job_name},
        std::pair{"--log-dir", &o_.log_dir}};
    for (const auto& [name, value] : texts) {
      if (auto fine = check_directive(name, *value); !fine) return fine;
    }
    for (const std::string& option : o_.slurm) {
      if (!option.starts_with('-')) {
        return wrong("--slurm: not an option of sbatch such as --account=physics: " +
                     quote(option));
      }
      if (auto fine = check_directive("--slurm", option); !fine) return fine;
    }
    if (o_.command.empty()) return wrong("nothing to run: put -- and a program behind the options");
    if (o_.min_nodes > o_.nodes) return wrong("--min-nodes: more than --nodes");
    if (o_.requeue && o_.time.empty()) {
      return wrong("--requeue: needs --time, before whose end the job is stopped and requeued");
    }
    if (!o_.save_signal.empty() && !o_.requeue) {
      return wrong("--save-signal: only with --requeue");
    }
    const auto limit = seconds_of(o_.time);
    if (o_.requeue && limit && *limit < o_.notice + kSignalEarly) {
      return wrong("--time " + quote(o_.time) + ": shorter than --notice, " +
                   std::to_string(o_.notice) +
                   " s, and the minute by which SLURM may be early: the "
                   "job would be stopped and requeued as soon as it starts");
    }
    if (!o_.save_signal.empty() && o_.save_signal != "USR1" && o_.save_signal != "USR2") {
      return wrong("--save-signal: neither USR1 nor USR2: " + quote(o_.save_signal));
    }
    return {};
  }

  // A line of the script that is not shell.
  static Result<void> check_directive(std::string_view name, std::string_view value) {
    const bool fine = std::all_of(value.begin(), value.end(),
                                  [](char c) { return c >= ' ' && c != 127 && c != '"'; });
    if (fine) return {};
    return wrong(std::string(name) + ": no quotes and no control characters: " + quote(value));
  }

  void directive(std::string_view name, std::string_view value = {}) {
    std::string line = "#SBATCH " + std::string(name);
    if (!value.empty()) {
      const bool spaced = value.find(' ') != value.npos;
      line += "=" + (spaced ? "\"" + std::string(value) + "\"" : std::string(value));
    }
    add(line);
  }

  void directives() {
    std::string name = o_.job_name;
    if (name.empty()) name = o_.command.front().substr(o_.command.front().rfind('/') + 1);
    directive("--job-name", printable(name));
    directive("--nodes", std::to_string(o_.nodes + o_.spares));
    add("# One distrun on each node; it starts the node's workers.");
    directive("--ntasks-per-node", "1");
    if (o_.cpus_per_node > 0) directive("--cpus-per-task", std::to_string(o_.cpus_per_node));
    if (!o_.gpus_per_node.empty()) directive("--gpus-per-node", o_.gpus_per_node);
    if (!o_.partition.empty()) directive("--partition", o_.partition);
    if (!o_.time.empty()) directive("--time", o_.time);
    directive("--output", output_path(o_));
    if (elastic()) {
      add("# A dead node does not end the job.");
      directive("--no-kill");
    }
    if (o_.requeue) {
      directive("--requeue");
      add("# Started again, it goes on in the same output.");
      directive("--open-mode", "append");
      add("# So many seconds before the time limit this script gets USR1 (SLURM: up to 60 "
          "earlier).");
      directive("--signal", "B:USR1@" + std::to_string(o_.notice));
    }
    for (const std::string& option : o_.slurm) directive(option);
  }

  // Before `set -u`, which conda's and other people's scripts do not take.
  void setup() {
    const bool has_folder = o_.setup.find('/') != std::string::npos;
    const std::string file = shell_word(has_folder ? o_.setup : "./" + o_.setup);
    add("");
    add("# Modules, environments: what is set here, all nodes have.");
    add("[ -r " + file + " ] || { echo " + shell_word("--setup: cannot be read: " + o_.setup) +
        " >&2; exit 127; }");
    add(". " + file);
  }

  void stop_and_requeue() {
    add("");
    add("# On USR1 the workers are asked to stop, with time to save what they have, and the job "
        "is");
    add("# requeued.  To try it out: scancel --batch --signal=USR1 JOB");
    if (!o_.save_signal.empty()) add("later=");
    add("stop() {");
    add("  echo \"job $SLURM_JOB_ID: stops for a requeue\" >&2");
    if (!o_.save_signal.empty()) {
      const int pause = std::max(1, o_.notice / 2);
      add("  # \"Save now\"; who is still there later is told to stop.");
      add("  scancel --signal=" + o_.save_signal + " \"$SLURM_JOB_ID\"");
      add("  (sleep " + std::to_string(pause) +
          "; scancel --signal=TERM \"$SLURM_JOB_ID\") > /dev/null 2>&1 &");
      add("  later=$!");
    } else {
      add("  # To the tasks alone: distrun gives its workers SIGTERM and their time.");
      add("  scancel --signal=TERM \"$SLURM_JOB_ID\"");
    }
    add("}");
    add("trap stop USR1");
  }

  void start() {
    add("");
    add("# scancel and the time limit: SLURM signals the nodes itself, this script only waits.");
    add("cancelled=");
    add("trap 'cancelled=yes' TERM");
    add("");
    std::string srun = "srun --ntasks-per-node=1";
    if (o_.cpus_per_node > 0) srun += " --cpus-per-task=" + std::to_string(o_.cpus_per_node);
    // Its default would be SIGKILL to the others; distrun stops them itself, with their grace.
    srun += " --kill-on-bad-exit=0";
    if (elastic()) srun += " --no-kill";
    add("# Which nodes, who they are and where they meet, distrun takes from SLURM.");
    add(srun + " \\");
    std::string line =
        "  " + shell_word(o_.launcher) + " --nproc-per-node " + shell_word(o_.nproc_per_node);
    if (elastic()) {
      const int least = o_.min_nodes > 0 ? o_.min_nodes : o_.nodes;
      line += " --nnodes " + std::to_string(least) + ":" + std::to_string(o_.nodes);
    }
    if (o_.max_restarts > 0) line += " --max-restarts " + std::to_string(o_.max_restarts);
    if (o_.requeue) {
      // Half of it may pass before the workers are told to stop; some remains for the requeue.
      const int whole = o_.save_signal.empty() ? o_.notice : o_.notice / 2;
      line += " --shutdown-timeout " + std::to_string(std::max(1, whole - whole / 5));
    }
    if (!o_.log_dir.empty()) {
      line += " --tee 3 --log-dir " + shell_word(o_.log_dir) + "/\"$SLURM_JOB_ID\"";
    }
    for (const std::string& option : o_.launcher_options) line += " " + shell_word(option);
    add(line + " \\");
    std::string command = "  ";
    for (const std::string& word : o_.command) {
      if (command.size() > 2) command += " ";
      command += shell_word(word);
    }
    add(command + " &");
    add("srun=$!");
  }

  void wait() {
    add("");
    add("# A signal ends `wait` early.");
    add("while kill -0 \"$srun\" 2> /dev/null; do wait \"$srun\"; done");
    add("wait \"$srun\"");
    add("status=$?");
    if (!o_.save_signal.empty()) {
      add("# Not to those that are started again.");
      add("[ -z \"$later\" ] || kill \"$later\" 2> /dev/null");
    }
  }

  void finish() {
    add("");
    if (elastic()) {
      add("# SLURM took dead nodes out of the job: name them where scontrol and sacct show it.");
      add("left=$(squeue --noheader --jobs=\"$SLURM_JOB_ID\" --format=%N)");
      add("if [ -n \"$left\" ] && [ \"$left\" != \"$SLURM_JOB_NODELIST\" ]; then");
      add("  lost=$(comm -23 <(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sort) \\");
      add("    <(scontrol show hostnames \"$left\" | sort) | paste -sd ,)");
      add("  echo \"job $SLURM_JOB_ID: lost $lost\" >&2");
      add("  scontrol update JobId=\"$SLURM_JOB_ID\" Comment=\"lost $lost\"");
      add("fi");
    }
    if (o_.requeue) {
      add("# 143: stopped by SIGTERM, ours or a preemption's.  75: a worker saved and asks to be "
          "started");
      add("# again, or the nodes did not find together in time.  Anything else is final: 0, or it "
          "would");
      add("# fail again.");
      add("if { [ \"$status\" = 143 ] || [ \"$status\" = 75 ]; } && [ -z \"$cancelled\" ] &&");
      add("  [ \"${SLURM_RESTART_COUNT:-0}\" -lt " + std::to_string(o_.max_requeues) + " ]; then");
      add("  echo \"job $SLURM_JOB_ID: requeued (status $status)\" >&2");
      add("  scontrol requeue \"$SLURM_JOB_ID\" && exit 0");
      add("fi");
    }
    add("exit \"$status\"");
  }

  const SubmitOptions& o_;
  std::string text_;
};

}  // namespace

Result<std::string> to_batch_script(const SubmitOptions& options) {
  return Script(options).run();
}

std::string output_path(const SubmitOptions& options) {
  return options.log_dir.empty() ? "slurm-%j.out" : options.log_dir + "/%j.out";
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-";
  if (!text.empty() && text.find_first_not_of(kPlain) == text.npos) return std::string(text);
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

}  // namespace distrun::launcher
