// The processes that stem from this one, found by parentage, not by group or session: a child's
// child that called setsid() is found like any other.
//
// That works because the caller is a subreaper (become_subreaper): when a process in between dies,
// its children become ours instead of init's, so the tree below us never falls apart.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace distrun::agent {

// From now on orphaned descendants become children of this process.
void become_subreaper();

// Whether any child, alive or not yet reaped, is left.  One system call.
bool has_children();

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  std::string name;  // as the kernel has it: at most 15 characters
};

// Children, alive or not yet reaped, by the kernel's own list: microseconds.  Empty where the
// kernel keeps none (CONFIG_PROC_CHILDREN).
std::vector<pid_t> children();

// Living descendants (zombies are not living).  Reads all of /proc: some milliseconds, in which a
// process that forks and exits again and again can slip through; what does becomes our child.
std::vector<Process> descendants();

// SIGKILL to each living descendant; returns those that were found.  A process that forks meanwhile
// may leave a new one behind: call again until nothing is found.
std::vector<Process> kill_descendants();

// Reaps children that have exited, as long as the next one is not in `tracked` (its status is
// somebody else's to take).
void reap_orphans(const std::vector<pid_t>& tracked = {});

}  // namespace distrun::agent
