#include "runtime/worker/shm/heap.h"

#include "runtime/worker/shm/memory_left.h"
#include "runtime/worker/shm/unix_socket.h"
#include <distrun/error.h>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <new>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace distrun::shm {
namespace {

constexpr std::uint64_t kMagic = 0x6472'6865'6170'0001;
constexpr std::size_t kSmallest = std::size_t{16} << 20;
constexpr std::size_t kPiece = std::size_t{16} << 20;  // of what is taken from the kernel at once

struct Header {
  std::uint64_t magic = kMagic;
  std::uint64_t bytes = 0;
  HeapId id{};
};

[[noreturn]] void fail(const std::string& what, int error = errno) {
  throw std::system_error(error, std::generic_category(), what);
}

std::size_t page() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page() - 1) / page() * page();
}

// Of all of it nothing is there yet: mapped without access first, since the kernel would otherwise
// fill it for who has asked for all its memory to be locked (mlockall).
std::byte* map_empty(int fd, std::size_t bytes) {
  void* const data = ::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) fail("mmap of " + std::to_string(bytes) + " bytes");
  // A dump of this process would touch, and so make, all of it.
  ::madvise(data, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(data);
}

std::size_t heap_bytes() {
  const auto pages = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
  std::uint64_t bytes = pages * page();
  rlimit limit{};
  // Past it the kernel would send SIGXFSZ, which kills.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    bytes = std::min<std::uint64_t>(bytes, limit.rlim_cur);
  if (bytes < kSmallest) fail("a heap of " + std::to_string(bytes) + " bytes", EFBIG);
  return bytes / page() * page();
}

// Of this process: a child that was forked has none yet.
struct Made {
  std::mutex mutex;
  pid_t process = 0;
  Heap* heap = nullptr;
  std::map<HeapId, std::weak_ptr<const HeapView>> views;
};
Made& made() {
  static Made* const it = new Made;  // NOLINT: buffers may be let go of until the very end
  if (std::exchange(it->process, ::getpid()) != ::getpid()) {
    it->heap = nullptr;
    it->views.clear();
  }
  return *it;
}
// Around made() and what it gives.
std::mutex made_mutex;  // NOLINT(cert-err58-cpp)

}  // namespace

// ---- the readers' side -------------------------------------------------------------------------

std::shared_ptr<const HeapView> HeapView::open(Fd memory) {
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    throw std::runtime_error("its heap could shrink: it is not what this library makes");
  Header header;
  struct stat about {};
  if (::fstat(memory.get(), &about) != 0) fail("fstat of a memfd");
  if (::pread(memory.get(), &header, sizeof header, 0) != sizeof header || header.magic != kMagic ||
      about.st_size != static_cast<off_t>(header.bytes))
    throw std::runtime_error("its heap is not what this library makes");
  const std::lock_guard lock(made_mutex);
  Made& ours = made();
  std::weak_ptr<const HeapView>& known = ours.views[header.id];
  if (auto view = known.lock()) return view;
  std::byte* const data = map_empty(memory.get(), header.bytes);
  auto view = std::make_shared<const HeapView>(data, header.bytes);
  if (::mprotect(data, header.bytes, PROT_READ) != 0) fail("mprotect");
  known = view;
  std::erase_if(ours.views, [](const auto& entry) { return entry.second.expired(); });
  return view;
}

HeapView::~HeapView() {
  ::munmap(const_cast<std::byte*>(data_), bytes_);
}

// ---- the owner's -------------------------------------------------------------------------------

Heap* Heap::own() {
  const std::lock_guard lock(made_mutex);
  Made& ours = made();
  try {
    if (ours.heap == nullptr) ours.heap = new Heap(heap_bytes());  // NOLINT: see made()
  } catch (const std::system_error&) {
    // Then there is none, and everything is as without it.
  }
  return ours.heap;
}

Heap* Heap::if_made() {
  const std::lock_guard lock(made_mutex);
  return made().heap;
}

Heap::Heap(std::size_t size)
    : memory_(::memfd_create("distrun-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!memory_) fail("memfd_create");
  if (::ftruncate(memory_.get(), static_cast<off_t>(size)) != 0) fail("ftruncate of a memfd");
  if (::fcntl(memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail("sealing a memfd");
  const std::string id = random_hex();
  Header header;
  header.bytes = size;
  std::copy_n(id.begin(), std::min(id.size(), header.id.size()), header.id.begin());
  if (::pwrite(memory_.get(), &header, sizeof header, 0) != sizeof header)
    fail("writing to a memfd");
  const std::string path = "/proc/self/fd/" + std::to_string(memory_.get());
  reader_ = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!reader_) fail(path);
  data_ = map_empty(memory_.get(), size);
  bytes_ = size;
  free_.emplace(page(), bytes_ - page());
}

Heap::~Heap() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

void Heap::punch(std::uint64_t at, std::size_t bytes) const {
  ::fallocate(memory_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
              static_cast<off_t>(bytes));
}

std::byte* Heap::allocate(std::size_t wanted) {
  if (wanted > bytes_) return nullptr;
  const std::size_t bytes = whole_pages(wanted);
  const std::string what = "no memory for a buffer of " + std::to_string(wanted) + " bytes: ";
  const std::lock_guard lock(mutex_);
  const auto gap =
      std::ranges::find_if(free_, [&](const auto& its) { return its.second >= bytes; });
  if (gap == free_.end()) return nullptr;
  // Here the kernel would rather end some process than refuse.
  if (const auto left = memory_left(); left && bytes > left->bytes)
    throw DistUnsupportedError(what + left->whose + " has " + std::to_string(left->bytes) +
                               " left");
  const std::uint64_t at = gap->first + (gap->second - bytes);
  // In pieces: a signal may undo all of a piece, and a profiler sends them all the time.
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(kPiece, bytes - done);
    if (::fallocate(memory_.get(), 0, static_cast<off_t>(at + done), static_cast<off_t>(piece)) ==
        0) {
      done += piece;
    } else if (errno != EINTR) {
      const std::string why = std::generic_category().message(errno);
      punch(at, bytes);
      throw DistUnsupportedError(what + why);
    }
  }
  std::byte* const data = data_ + at;
  // The kernel has a limit on how often a mapping may change its rights.
  if (::mprotect(data, bytes, PROT_READ | PROT_WRITE) != 0) {
    punch(at, bytes);
    return nullptr;
  }
  ::madvise(data, bytes, MADV_DODUMP);
#ifdef MADV_POPULATE_WRITE
  ::madvise(data, bytes, MADV_POPULATE_WRITE);  // at once is cheaper than page by page
#endif
  gap->second -= bytes;
  if (gap->second == 0) free_.erase(gap);
  return data;
}

void Heap::release(std::byte* data, std::size_t bytes) noexcept try {
  bytes = whole_pages(bytes);
  const auto at = static_cast<std::uint64_t>(data - data_);
  const std::lock_guard lock(mutex_);
  ::madvise(data, bytes, MADV_DONTDUMP);
  if (::mprotect(data, bytes, PROT_NONE) != 0) return;  // then nobody else gets it
  punch(at, bytes);
  std::uint64_t begin = at;
  std::uint64_t end = at + bytes;
  auto next = free_.lower_bound(at);
  if (next != free_.end() && next->first == end) {
    end += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == begin) {
    begin = std::prev(next)->first;
    free_.erase(std::prev(next));
  }
  free_.emplace(begin, end - begin);
} catch (const std::bad_alloc&) {
  // It is lost for this process's life.
}

}  // namespace distrun::shm
