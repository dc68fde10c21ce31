#include "runtime/worker/shm/segment.h"

#include <cerrno>
#include <fcntl.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <system_error>
#include <utility>

namespace distrun::shm {
namespace {

#ifndef F_SEAL_FUTURE_WRITE
constexpr int F_SEAL_FUTURE_WRITE = 0x0010;
#endif

[[noreturn]] void fail(const std::string& what, int error = errno) {
  throw std::system_error(error, std::generic_category(), what);
}

std::byte* map(int fd, std::size_t bytes, int protection) {
  void* const data = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) fail("mmap of " + std::to_string(bytes) + " bytes");
  return static_cast<std::byte*>(data);
}

}  // namespace

Segment Segment::create(std::size_t bytes) {
  rlimit limit{};
  // Past it the kernel would send SIGXFSZ, which kills.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < bytes)
    fail("the limit on the size of files (ulimit -f) is below " + std::to_string(bytes) + " bytes",
         EFBIG);
  Fd memory(::memfd_create("distrun", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) fail("memfd_create");
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) fail("ftruncate of a memfd");
  if (::fallocate(memory.get(), 0, 0, static_cast<off_t>(bytes)) != 0)
    fail("no memory for " + std::to_string(bytes) + " bytes");
  std::byte* const data = map(memory.get(), bytes, PROT_READ | PROT_WRITE);
  Segment segment(std::move(memory), data, bytes);
  // Linux before 5.1 does not know this one: then others are only trusted not to write.
  static_cast<void>(::fcntl(segment.fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
  if (::fcntl(segment.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail("sealing a memfd");
  return segment;
}

Segment Segment::open(Fd memory, std::size_t bytes) {
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    throw std::runtime_error("its memory could shrink: it is not what this library makes");
  struct stat about {};
  if (::fstat(memory.get(), &about) != 0) fail("fstat of a memfd");
  if (about.st_size != static_cast<off_t>(bytes))
    throw std::runtime_error("its memory has " + std::to_string(about.st_size) +
                             " bytes instead of " + std::to_string(bytes));
  std::byte* const data = map(memory.get(), bytes, PROT_READ);
  return {std::move(memory), data, bytes};
}

Segment::Segment(Segment&& other) noexcept
    : memory_(std::move(other.memory_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Segment::~Segment() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace distrun::shm
