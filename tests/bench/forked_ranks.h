// Ranks as processes, for the *_load programs: forked before anything else is there.
#pragma once

#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace load {

// Rank 0 is this process.  Returns the exit status for main().
inline int run_ranks(int ranks, const std::function<void(int rank)>& body) {
  const auto run = [&](int rank) {
    try {
      body(rank);
      return 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      return 1;
    }
  };
  std::vector<pid_t> others;
  for (int rank = 1; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      _exit(run(rank));
    }
    others.push_back(pid);
  }
  int status = run(0);
  for (const pid_t pid : others) {
    int its = 0;
    waitpid(pid, &its, 0);
    if (its != 0) status = 1;
  }
  return status;
}

}  // namespace load
