#include "runtime/base/time.h"
#include "runtime/worker/deadline.h"
#include <distrun/breakpoint.h>
#include <distrun/error.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>

namespace distrun {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(50);
constexpr Timeout kLeast = std::chrono::seconds(1);

bool is_traced() {
  std::ifstream status("/proc/self/status");
  const std::string name = "TracerPid:";
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return std::stol(line.substr(name.size())) != 0;
  return false;
}

// With the security module Yama only a parent may attach, unless the process allows it.
class AnybodyMayAttach {
 public:
  AnybodyMayAttach() { ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); }
  ~AnybodyMayAttach() { ::prctl(PR_SET_PTRACER, 0, 0, 0, 0); }
  AnybodyMayAttach(const AnybodyMayAttach&) = delete;
  AnybodyMayAttach& operator=(const AnybodyMayAttach&) = delete;
};

void say_how_to_attach(const ProcessGroup& group) {
  char host[256] = "?";
  ::gethostname(host, sizeof host - 1);
  std::fprintf(stderr,
               "distrun: rank %d of process group \"%s\" has stopped for a debugger:\n"
               "distrun:     gdb -p %d        (on %s; \"continue\" goes on, and so do the other "
               "ranks)\n",
               group.rank(), group.name().c_str(), static_cast<int>(::getpid()), host);
}

// Ignored, a tracer sees it all the same; and should the tracer have gone just now, nobody dies of
// it.
void trap() {
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGTRAP, &ignore, &before);
  ::raise(SIGTRAP);  // <- the debugger shows this; "up" twice leads to the caller
  ::sigaction(SIGTRAP, &before, nullptr);
}

void stop_for_debugger(const ProcessGroup& group, TimePoint deadline, Timeout timeout) {
  if (!is_traced()) {
    const AnybodyMayAttach while_waiting;
    say_how_to_attach(group);
    while (!is_traced()) {
      if (Clock::now() >= deadline)
        throw DistTimeoutError("breakpoint: no debugger came to rank " +
                               std::to_string(group.rank()) + " within " + to_string(timeout));
      std::this_thread::sleep_for(kLookEvery);
    }
  }
  trap();
}

}  // namespace

void breakpoint(ProcessGroup& group, int rank, const BreakpointOptions& options) {
  if (rank < 0 || rank >= group.size())
    throw DistArgumentError("breakpoint: rank " + std::to_string(rank) + " is not in a group of " +
                            std::to_string(group.size()));
  if (options.timeout == Timeout::zero())
    throw DistArgumentError("breakpoint: no debugger comes within a timeout of zero");
  const TimePoint deadline = deadline_after(options.timeout, "BreakpointOptions::timeout");
  Timeout left = options.timeout;
  if (group.rank() == rank) {
    stop_for_debugger(group, deadline, options.timeout);
    if (left != kNoTimeout)
      left = std::max(std::chrono::ceil<Timeout>(deadline - Clock::now()), kLeast);
  }
  group.barrier({.timeout = left});
}

}  // namespace distrun
