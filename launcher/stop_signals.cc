#include "launcher/stop_signals.h"

#include "launcher/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <signal.h>
#include <utility>

namespace distrun::launcher {
namespace {

constexpr std::pair<std::string_view, int> kNames[] = {
    {"HUP", SIGHUP},
    {"INT", SIGINT},
    {"QUIT", SIGQUIT},
    {"USR1", SIGUSR1},
    {"USR2", SIGUSR2},
    {"PIPE", SIGPIPE},
    {"ALRM", SIGALRM},
    {"TERM", SIGTERM},
    {"STKFLT", SIGSTKFLT},
    {"CONT", SIGCONT},
    {"TSTP", SIGTSTP},
    {"TTIN", SIGTTIN},
    {"TTOU", SIGTTOU},
    {"URG", SIGURG},
    {"XCPU", SIGXCPU},
    {"XFSZ", SIGXFSZ},
    {"VTALRM", SIGVTALRM},
    {"PROF", SIGPROF},
    {"WINCH", SIGWINCH},
    {"IO", SIGIO},
    {"POLL", SIGPOLL},
    {"PWR", SIGPWR},
    // Known, so that the warning can be exact; see kImpossible.
    {"KILL", SIGKILL},
    {"STOP", SIGSTOP},
    {"CHLD", SIGCHLD},
    {"SEGV", SIGSEGV},
    {"BUS", SIGBUS},
    {"FPE", SIGFPE},
    {"ILL", SIGILL},
    {"TRAP", SIGTRAP},
    {"ABRT", SIGABRT},
    {"SYS", SIGSYS},
};

// Cannot be caught, mean a fault of the launcher itself, or are how it learns of its children.
// 32 and 33 are the C library's own.
constexpr std::array kImpossible{32,     33,     SIGKILL, SIGSTOP, SIGCHLD, SIGSEGV,
                                 SIGBUS, SIGFPE, SIGILL,  SIGTRAP, SIGABRT, SIGSYS};

std::optional<int> number_of(std::string_view word) {
  if (const auto n = parse_int(word, 1, SIGRTMAX)) return static_cast<int>(*n);
  std::string name(word);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string_view bare = name;
  if (bare.starts_with("SIG")) bare.remove_prefix(3);
  for (const auto& [known, number] : kNames) {
    if (bare == known) return number;
  }
  return std::nullopt;
}

}  // namespace

StopSignals parse_stop_signals(std::string_view text) {
  StopSignals result;
  for (const std::string_view piece : split(text, ',')) {
    const std::string_view word = trim(piece);
    const auto number = number_of(word);
    if (!number) {
      result.warnings.push_back("--signals-to-handle: no such signal, left out: " + quote(word));
    } else if (std::find(kImpossible.begin(), kImpossible.end(), *number) != kImpossible.end()) {
      result.warnings.push_back("--signals-to-handle: cannot be handled, left out: " + quote(word));
    } else if (std::find(result.numbers.begin(), result.numbers.end(), *number) ==
               result.numbers.end()) {
      result.numbers.push_back(*number);
    }
  }
  return result;
}

}  // namespace distrun::launcher
