#include "runtime/worker/shm/liveness.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <system_error>

namespace distrun::shm {
namespace {

// Of one byte.  A lock of the process, not of the open file (F_OFD_SETLK), which a child that was
// forked would share and keep.
struct flock lock_of(int rank) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Fd Liveness::make_file() {
  Fd file(::memfd_create("distrun-ranks", MFD_CLOEXEC));
  if (!file) throw std::system_error(errno, std::generic_category(), "memfd_create");
  return file;
}

void Liveness::enter(int rank) {
  if (one_process_) return;
  struct flock lock = lock_of(rank);
  if (::fcntl(file_.get(), F_SETLK, &lock) != 0)
    throw std::system_error(errno, std::generic_category(), "locking a memfd");
}

bool Liveness::alive(int rank) const {
  if (one_process_) return true;
  struct flock lock = lock_of(rank);
  // If the kernel does not tell, nobody is blamed.
  return ::fcntl(file_.get(), F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace distrun::shm
