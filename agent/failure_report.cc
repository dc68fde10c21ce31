#include "agent/failure_report.h"

#include "agent/process/last_lines.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <time.h>

namespace distrun::agent {
namespace {

constexpr std::size_t kWidest = 60;           // of the rules, as torchrun
constexpr std::size_t kListedVictims = 16;    // the rest is named by rank
constexpr std::size_t kTracebackLines = 100;  // the last ones: the exception is at the end

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    lines.push_back(text.substr(0, newline));
    text.remove_prefix(newline == text.npos ? text.size() : newline + 1);
  }
  return lines;
}

std::string time_text(const WorkerEnd& end) {
  const time_t seconds = end.error.timestamp > 0 ? static_cast<time_t>(end.error.timestamp)
                                                 : std::chrono::system_clock::to_time_t(end.ended);
  tm parts{};
  std::array<char, 64> text{};
  if (::localtime_r(&seconds, &parts) == nullptr) return "<N/A>";
  ::strftime(text.data(), text.size(), "%Y-%m-%d_%H:%M:%S", &parts);
  return text.data();
}

std::string cause(const WorkerEnd& end) {
  const auto* killed = std::get_if<KilledBy>(&end.status);
  if (killed == nullptr) return to_text(end.status);
  std::string text = "Signal " + std::to_string(killed->signo) + " (" + signal_name(killed->signo) +
                     ") received by PID " + std::to_string(end.pid);
  if (killed->oom_killed) text += ": out of memory, killed by the kernel's OOM killer";
  if (killed->core_dumped) text += "; core dumped";
  return text;
}

// The call stack of the error file, else its message, else how the process ended.
std::string traceback(const WorkerEnd& end) {
  std::string_view text = end.error.traceback.empty() ? end.error.message : end.error.traceback;
  std::string shown;
  if (text.empty()) {
    shown = cause(end);
  } else {
    auto lines = split(text);
    if (lines.size() > kTracebackLines) {
      shown = "(" + std::to_string(lines.size() - kTracebackLines) + " lines left out)\n";
      lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kTracebackLines));
    }
    for (const std::string_view line : lines) {
      if (!shown.empty()) shown += shown.back() == '\n' ? "  " : "\n  ";
      shown += printable(line);
    }
  }
  if (!end.error.problem.empty()) shown += " (its error file: " + end.error.problem + ")";
  return shown;
}

void field(std::string& text, std::string_view name, std::string_view value) {
  text.append("  ").append(name);
  text.append(name.size() < 10 ? 10 - name.size() : 0, ' ');
  text.append(": ").append(value).append("\n");
}

std::string block(const WorkerEnd& end, std::size_t index) {
  std::string text = "[" + std::to_string(index) + "]:\n";
  field(text, "time", time_text(end));
  field(text, "host", end.host);
  field(text, "rank",
        std::to_string(end.rank.value) + " (local_rank: " + std::to_string(end.local_rank.value) +
            ")");
  field(text, "exitcode",
        std::to_string(elastic_exit_code(end.status)) + " (pid: " + std::to_string(end.pid) + ")");
  field(text, "error_file", end.error.exists ? end.error_file : "<N/A>");
  field(text, "traceback", traceback(end));
  return text;
}

std::string seconds_after(const WorkerEnd& first, const WorkerEnd& end) {
  const std::chrono::duration<double> after = end.ended - first.ended;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", std::max(0.0, after.count()));
  return text.data();
}

void last_lines_of(std::string& text, std::string_view name, const std::vector<std::string>& lines,
                   const std::string& file) {
  if (lines.empty()) return;
  field(text, name, "its last lines" + (file.empty() ? "" : "; all of them: " + file));
  for (const std::string& line : lines) text.append("    | ").append(line).append("\n");
}

std::string root_block(const WorkerEnd& end, std::size_t index) {
  std::string text = block(end, index);
  if (!end.last_err.empty()) {
    last_lines_of(text, "stderr", end.last_err, end.err_log);
  } else {
    last_lines_of(text, "stdout", end.last_out, end.out_log);
  }
  return text;
}

// "0-3, 5, 7-8"
std::string ranges(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string victims(const FailureReport& report, const WorkerEnd* first) {
  std::string text;
  std::size_t index = 0;
  std::size_t listed = 0;
  std::vector<int> unlisted;
  for (const WorkerEnd& end : report.ends) {
    if (end.part != Part::first_failure && end.part != Part::victim) continue;
    const std::size_t own_index = index++;
    if (end.part != Part::victim) continue;
    if (listed == kListedVictims) {
      unlisted.push_back(end.rank.value);
      continue;
    }
    ++listed;
    text += block(end, own_index);
    if (first != nullptr) {
      field(text, "victim",
            "failed " + seconds_after(*first, end) + " after rank " +
                std::to_string(first->rank.value) + ", probably because of it");
    }
  }
  if (text.empty()) return "  <NO_OTHER_FAILURES>\n";
  if (!unlisted.empty()) text += "More victims: ranks " + ranges(unlisted) + "\n";
  return text;
}

std::string stopped(const FailureReport& report) {
  std::vector<int> ranks;
  for (const WorkerEnd& end : report.ends) {
    if (end.part == Part::stopped) ranks.push_back(end.rank.value);
  }
  if (ranks.empty()) return {};
  return "Stopped by the launcher (no failure of theirs): ranks " + ranges(ranks) + "\n";
}

std::string flight(const FailureReport& report) {
  if (report.flight.empty()) return {};
  std::string text = "Where the ranks were (flight records):\n";
  for (const std::string& line : report.flight) text.append("  ").append(line).append("\n");
  if (!report.flight_folder.empty()) {
    text += "  all of it: distrun flight " + report.flight_folder + "\n";
  }
  return text;
}

std::string root(const FailureReport& report) {
  std::size_t index = 0;
  for (const WorkerEnd& end : report.ends) {
    if (end.part == Part::first_failure) return root_block(end, index);
    if (end.part == Part::victim) ++index;
  }
  return "  <N/A>\n";
}

}  // namespace

int elastic_exit_code(const ExitStatus& status) {
  const auto* killed = std::get_if<KilledBy>(&status);
  return killed != nullptr ? -killed->signo : process_exit_code(status);
}

std::string to_text(const FailureReport& report) {
  const auto first = std::find_if(report.ends.begin(), report.ends.end(), [](const WorkerEnd& end) {
    return end.part == Part::first_failure;
  });
  const std::string title = report.name + " FAILED\n";
  const std::string others =
      "Failures:\n" + victims(report, first == report.ends.end() ? nullptr : &*first);
  const std::string cause_text = "Root Cause (first observed failure):\n" + root(report);
  const std::string places = flight(report);
  const std::string rest = stopped(report);

  std::size_t width = 0;
  for (const std::string* part : {&title, &others, &cause_text, &places, &rest}) {
    for (const std::string_view line : split(*part)) width = std::max(width, line.size());
  }
  width = std::min(width, kWidest);
  const std::string thick = std::string(width, '=') + "\n";
  const std::string thin = std::string(width, '-') + "\n";
  std::string text = thick + title + thin + others + thin + cause_text;
  if (!places.empty()) text += thin + places;
  if (!rest.empty()) text += thin + rest;
  return text + thick;
}

}  // namespace distrun::agent
