// spawn: starts one worker and says at which stage it failed, if it did.  The only file that sees
// Boost.Process.
//
// The worker leads its own session and process group, dies with the agent (parent-death signal),
// has the signal mask and dispositions that the launcher was started with, and its streams and CPUs
// set. When spawn returns, the program is running: an exec that failed is reported here, not by an
// exit status.
#pragma once

#include "agent/core/exit_status.h"

#include <boost/system/result.hpp>

#include <string>
#include <sys/types.h>
#include <vector>

namespace distrun::agent {

struct SpawnRequest {
  std::string executable;             // a path
  std::vector<std::string> argv;      // argv[0] included
  const char* const* envp = nullptr;  // "NAME=value", ended by nullptr; borrowed
  int in = 0;                         // become fd 0, 1 and 2 of the worker
  int out = 1;
  int err = 2;
  std::vector<int> cpus;  // empty: as ours
};

struct Spawned {
  pid_t pid = 0;
  int pidfd = -1;  // close-on-exec, owned by the caller
};

struct SpawnError {
  ExecStage stage = ExecStage::exec;
  int errno_value = 0;
};

// Call first thing in main.  Keeps what workers are to be started with (signal mask, dispositions
// of SIGPIPE and SIGCHLD, limit of open files) and sets what we need ourselves: an ignored SIGCHLD
// would take our children's statuses away, and many workers need many descriptors.
void prepare_process();

// What an exec that failed with `errno_value` means beyond the system's words, if more can be said:
// a script whose interpreter is missing fails as if the script were.  Empty: nothing more.
std::string explain_exec(const std::string& executable, int errno_value);

// `exits`: an epoll set, into which the worker puts its pidfd before its program begins, with its
// pid as data: its death is seen there in its turn, whenever we come to look.
boost::system::result<Spawned, SpawnError> spawn(const SpawnRequest& request, int exits);

}  // namespace distrun::agent
