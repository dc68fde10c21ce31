// Which ranks' processes still run, without a thread, a signal or a descriptor for each.
//
// One memfd for the group.  Each process holds a lock on the byte of its rank, and the kernel takes
// it away with the process, however that ends.  Works across containers, where process ids do not;
// a process that is forked off does not keep the lock.
#pragma once

#include "runtime/worker/shm/fd.h"

namespace distrun::shm {

class Liveness {
 public:
  // For the rank that makes it.  Throws std::system_error.
  static Fd make_file();

  Liveness() = default;
  // `one_process`: all ranks are threads of this process, and live as long as it does.
  Liveness(Fd file, bool one_process) : file_(std::move(file)), one_process_(one_process) {}

  // From now on this process holds `rank`.  Throws std::system_error.
  void enter(int rank);
  // REQUIRES: that rank has entered.  A stopped process is alive.
  bool alive(int rank) const;

 private:
  Fd file_;
  bool one_process_ = false;
};

}  // namespace distrun::shm
