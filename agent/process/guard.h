// The guard: the process that the user started, and the reason why nothing outlives it.
//
//   shell ── distrun (guard) ── distrun (agent) ── workers ── whatever those start
//
// The guard forks the agent, passes signals on to it, and ends with its exit status.  Both are
// subreapers, so each can find and kill all that stems from the other:
//
//   guard killed (also by SIGKILL)   the agent reads end-of-file on their socket, kills every
//                                    descendant, ends
//   agent killed                     workers and orphans become the guard's; it kills them, says
//   so,
//                                    ends with 128 + signal
//   both killed at the same moment   workers die by their parent-death signal; a grandchild that
//                                    has none is not reached.  The one case that is not covered,
//                                    and it takes aim: the agent has a process group of its own.
//
// As PID 1 of a container the guard also reaps what others leave.
#pragma once

#include <functional>
#include <vector>

namespace distrun::agent {

// Signals that the guard takes: those that stop the job and those that are passed through.  A
// signal that was ignored when we were started (nohup) stays ignored and is left out.
std::vector<int> guarded_signals(const std::vector<int>& stop_signals);

// Forks.  In the child, calls agent(fd) with all `signals` and SIGCHLD blocked and ends the process
// with its result; fd carries one byte, the number, for each signal that the guard got, and
// end-of-file when the guard is gone.  In the parent, returns the status to exit with once the
// agent and everything below it has ended.  Call before any thread or io_context exists.
//
// The first INT or TERM asks, the second is final for the workers; the `stops_until_killed`th is
// for an agent that is stuck.
int run_guarded(const std::vector<int>& signals, const std::function<int(int fd)>& agent,
                int stops_until_killed = 3);

}  // namespace distrun::agent
