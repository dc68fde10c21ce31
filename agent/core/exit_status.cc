#include "agent/core/exit_status.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

namespace distrun::agent {

std::string_view to_string(ExecStage stage) {
  return kExecStageTexts[static_cast<std::size_t>(stage)];
}

bool succeeded(const ExitStatus& status) {
  const auto* exited = std::get_if<ExitedWith>(&status);
  return exited && exited->code == 0;
}

std::string signal_name(int signo) {
  if (const char* name = ::sigabbrev_np(signo)) return std::string("SIG") + name;
  return "signal " + std::to_string(signo);
}

namespace {

struct Text {
  std::string operator()(const ExitedWith& s) const {
    return "exited with status " + std::to_string(s.code);
  }
  std::string operator()(const KilledBy& s) const {
    std::string text = "killed by " + signal_name(s.signo);
    if (s.oom_killed) text += " (out of memory: the kernel's OOM killer)";
    if (s.core_dumped) text += " (core dumped)";
    return text;
  }
  std::string operator()(const NeverStarted& s) const {
    const std::string text = "could not start: " + std::string(to_string(s.stage));
    return s.error == 0 ? text : text + ": " + std::generic_category().message(s.error);
  }
};

struct Code {
  int operator()(const ExitedWith& s) const { return s.code; }
  int operator()(const KilledBy& s) const { return 128 + s.signo; }
  int operator()(const NeverStarted& s) const {
    if (s.stage != ExecStage::exec) return 71;  // EX_OSERR
    return s.error == ENOENT || s.error == ENOTDIR ? 127 : 126;
  }
};

}  // namespace

bool may_pass(const NeverStarted& failure) {
  for (const int shortage : {EAGAIN, ENOMEM, EMFILE, ENFILE, ETXTBSY}) {
    if (failure.error == shortage) return true;
  }
  return false;
}

std::string to_text(const ExitStatus& status) {
  return std::visit(Text{}, status);
}

int process_exit_code(const ExitStatus& status) {
  return std::visit(Code{}, status);
}

bool by_itself(const ExitStatus& status) {
  if (std::holds_alternative<ExitedWith>(status)) return true;
  const auto* killed = std::get_if<KilledBy>(&status);
  if (!killed) return false;
  switch (killed->signo) {
    case SIGABRT:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGSEGV:
    case SIGSYS:
    case SIGTRAP:
      return true;
  }
  return false;
}

}  // namespace distrun::agent
