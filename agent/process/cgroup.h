// Cgroup: where in the kernel's trees of control groups this process is, as a folder whose files
// can be read.  Pure: the two files of /proc that say so are handed in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace distrun::agent {

struct Cgroup {
  std::string mount;  // "/sys/fs/cgroup"
  std::string path;   // "/user.slice/job", below the mount; "": the mount itself
  bool v2 = false;

  // Our folder, then each one above it, up to the mount.  In a container the first few may not be
  // there: our path can be the host's, which the mount does not show.
  std::vector<std::string> folders() const;
};

// Of the trees that may hold `controller` ("cpu", "memory"): v1's, which has it for certain, before
// v2's.  `proc_cgroup`, `mountinfo`: the contents of /proc/self/cgroup and /proc/self/mountinfo.
std::vector<Cgroup> find_cgroups(std::string_view controller, std::string_view proc_cgroup,
                                 std::string_view mountinfo);

}  // namespace distrun::agent
