// Memory and locks as the kernel gives them.
#include "runtime/worker/shm/segment.h"

#include "runtime/worker/shm/liveness.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace distrun::shm {
namespace {

constexpr std::size_t kBytes = 4 * kPage;

TEST(ShmSegment, WhatItsOwnerWritesAReaderSees) {
  const Segment mine = Segment::create(kBytes);
  const Segment theirs = Segment::open(Fd(::dup(mine.fd())), kBytes);
  mine.data()[kBytes - 1] = std::byte{42};
  EXPECT_EQ(theirs.data()[kBytes - 1], std::byte{42});
  EXPECT_NE(mine.data(), theirs.data());
}

TEST(ShmSegment, NobodyElseCanWriteToIt) {
  const Segment mine = Segment::create(kBytes);
  if ((::fcntl(mine.fd(), F_GET_SEALS) & 0x0010) == 0)
    GTEST_SKIP() << "this kernel does not know F_SEAL_FUTURE_WRITE (Linux 5.1)";
  EXPECT_EQ(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, mine.fd(), 0), MAP_FAILED);
  EXPECT_EQ(::pwrite(mine.fd(), "x", 1, 0), -1);
}

TEST(ShmSegment, NobodyCanShrinkItBelowAReader) {
  const Segment mine = Segment::create(kBytes);
  EXPECT_EQ(::ftruncate(mine.fd(), 0), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(ShmSegment, MemoryThatCouldShrinkIsRefused) {
  Fd memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(memory.get(), kBytes), 0);
  EXPECT_THROW(Segment::open(std::move(memory), kBytes), std::runtime_error);
}

TEST(ShmSegment, MemoryOfAnotherSizeIsRefused) {
  const Segment mine = Segment::create(kBytes);
  EXPECT_THROW(Segment::open(Fd(::dup(mine.fd())), kBytes + kPage), std::runtime_error);
}

TEST(ShmSegment, SomethingThatIsNoMemoryIsRefused) {
  EXPECT_THROW(Segment::open(Fd(::open("/dev/zero", O_RDWR | O_CLOEXEC)), kBytes),
               std::runtime_error);
}

TEST(ShmSegment, ALimitOnTheSizeOfFilesIsAnErrorAndNoSignal) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit low{kPage, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &low);
  EXPECT_THROW(Segment::create(kBytes), std::system_error);
  ::setrlimit(RLIMIT_FSIZE, &before);
}

TEST(ShmLiveness, AProcessIsAliveUntilItEndsEvenIfItsParentDoesNotLook) {
  Fd file = Liveness::make_file();
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    Liveness its(Fd(::dup(file.get())), false);
    its.enter(1);
    static_cast<void>(::write(ready[1], "x", 1));
    while (true) ::pause();
  }
  Liveness mine(std::move(file), false);
  mine.enter(0);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(mine.alive(1));
  ::kill(child, SIGSTOP);
  EXPECT_TRUE(mine.alive(1)) << "stopped is not dead";
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(mine.alive(1)) << "it is a zombie now";
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(mine.alive(1));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(ShmLiveness, AChildThatIsForkedOffDoesNotKeepItsParentAlive) {
  Fd file = Liveness::make_file();
  Liveness mine(Fd(::dup(file.get())), false);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t rank = ::fork();
  if (rank == 0) {
    Liveness its(std::move(file), false);
    its.enter(1);
    if (const pid_t child = ::fork(); child == 0) {
      ::close(ends[1]);
      while (true) ::pause();
    } else {
      static_cast<void>(::write(ends[1], &child, sizeof child));
    }
    ::_exit(0);
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ::waitpid(rank, nullptr, 0);
  EXPECT_FALSE(mine.alive(1));
  ::kill(child, SIGKILL);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(ShmLiveness, ThreadsOfOneProcessLiveAsLongAsItDoes) {
  const Liveness mine(Liveness::make_file(), true);
  EXPECT_TRUE(mine.alive(0));
  EXPECT_TRUE(mine.alive(1));
}

}  // namespace
}  // namespace distrun::shm
