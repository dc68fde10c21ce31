// Memory that is handed out for others to read: what its owner gets, and what others can do with
// it.
#include "runtime/worker/shm/heap.h"

#include "runtime/worker/shm/shared_memory.h"
#include "tests/runtime/worker/shm/ranks.h"
#include <distrun/error.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <fcntl.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace distrun::shm::test {
namespace {

constexpr std::size_t kBytes = std::size_t{16} << 20;
constexpr std::size_t kMiB = std::size_t{1} << 20;

Fd reader_of(const Heap& heap) {
  return Fd(::fcntl(heap.reader(), F_DUPFD_CLOEXEC, 0));
}

bool all_zeros(const std::byte* data, std::size_t bytes) {
  return std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; });
}

TEST(ShmHeap, WhatItsOwnerWritesAReaderSeesAtTheSamePlace) {
  Heap heap(kBytes);
  std::byte* const data = heap.allocate(kMiB);
  ASSERT_NE(data, nullptr);
  const auto view = HeapView::open(reader_of(heap));
  data[kMiB - 1] = std::byte{42};
  const auto at = heap.offset_of(data, kMiB);
  ASSERT_TRUE(at.has_value());
  const std::byte* const seen = view->at(*at, kMiB);
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(seen[kMiB - 1], std::byte{42});
}

TEST(ShmHeap, NothingOutsideOfItIsInIt) {
  Heap heap(kBytes);
  std::byte* const data = heap.allocate(kMiB);
  const auto view = HeapView::open(reader_of(heap));
  std::byte elsewhere{};
  EXPECT_FALSE(heap.offset_of(&elsewhere, 1).has_value());
  EXPECT_FALSE(heap.offset_of(nullptr, 0).has_value());
  EXPECT_FALSE(heap.offset_of(data, kBytes).has_value());
  EXPECT_FALSE(heap.offset_of(data, ~std::uint64_t{0}).has_value());
  EXPECT_EQ(view->at(kBytes, 1), nullptr);
  EXPECT_EQ(view->at(kBytes - 1, 2), nullptr);
  EXPECT_EQ(view->at(~std::uint64_t{0}, 2), nullptr);
  EXPECT_EQ(view->at(2, ~std::uint64_t{0}), nullptr);
}

TEST(ShmHeap, AReaderCannotWrite) {
  Heap heap(kBytes);
  const Fd reader = reader_of(heap);
  EXPECT_EQ(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, reader.get(), 0),
            MAP_FAILED);
  EXPECT_EQ(::pwrite(reader.get(), "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(reader.get(), 0), -1);
}

TEST(ShmHeap, MemoryComesBackAsZerosInOnePiece) {
  Heap heap(kBytes);
  const std::size_t all = kBytes - static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::byte* parts[3];
  for (std::byte*& part : parts) {
    part = heap.allocate(4 * kMiB);
    ASSERT_NE(part, nullptr);
    std::fill_n(part, 4 * kMiB, std::byte{7});
  }
  EXPECT_EQ(heap.allocate(all), nullptr);
  for (const int i : {0, 2, 1}) heap.release(parts[i], 4 * kMiB);
  std::byte* const whole = heap.allocate(all);
  ASSERT_NE(whole, nullptr);
  EXPECT_TRUE(all_zeros(whole, all));
  heap.release(whole, all);
}

TEST(ShmHeap, AReaderThatIsLateSeesZerosOfWhatWasGivenBackAndLives) {
  Heap heap(kBytes);
  std::byte* const data = heap.allocate(kMiB);
  const auto view = HeapView::open(reader_of(heap));
  const std::uint64_t at = heap.offset_of(data, kMiB).value();
  std::fill_n(data, kMiB, std::byte{7});
  EXPECT_FALSE(all_zeros(view->at(at, kMiB), kMiB));
  heap.release(data, kMiB);
  EXPECT_TRUE(all_zeros(view->at(at, kMiB), kMiB));
}

TEST(ShmHeap, MoreThanTheMachineHasIsAnErrorInWords) {
  const std::size_t machine = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
                              static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  Heap heap(4 * machine);
  try {
    heap.allocate(2 * machine);
    FAIL() << "it was given";
  } catch (const DistUnsupportedError& error) {
    const std::string begin =
        "no memory for a buffer of " + std::to_string(2 * machine) + " bytes: this machine has ";
    EXPECT_TRUE(std::string(error.what()).starts_with(begin)) << error.what();
  }
  EXPECT_NE(heap.allocate(kMiB), nullptr) << "and less can still be had";
}

TEST(ShmHeap, WhatIsNoHeapIsRefused) {
  EXPECT_THROW(HeapView::open(Fd(::open("/dev/zero", O_RDONLY | O_CLOEXEC))), std::runtime_error);
  Fd shrinkable(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(shrinkable.get(), kBytes), 0);
  Fd sealed(::fcntl(shrinkable.get(), F_DUPFD_CLOEXEC, 0));
  EXPECT_THROW(HeapView::open(std::move(shrinkable)), std::runtime_error);
  ASSERT_EQ(::fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_THROW(HeapView::open(std::move(sealed)), std::runtime_error) << "it has no header";
}

TEST(ShmHeap, IsMappedOnceHoweverOftenItIsOpened) {
  Heap heap(kBytes);
  const auto first = HeapView::open(reader_of(heap));
  EXPECT_EQ(HeapView::open(reader_of(heap)), first);
}

TEST(ShmBuffer, OfNoBytesIsEmpty) {
  const Buffer buffer = allocate_buffer(0);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.bytes(), 0U);
  EXPECT_TRUE(buffer.as<float>().empty());
  EXPECT_FALSE(buffer.is_registered());
}

TEST(ShmBuffer, WithoutSharedMemoryIsOrdinaryMemory) {
  const auto reports = run_processes(1, [](int, Store&) -> std::string {
    const Buffer buffer = allocate_buffer(kMiB);
    if (buffer.is_registered()) return "registered";
    return all_zeros(buffer.data(), buffer.bytes()) ? "" : "not zeros";
  });
  EXPECT_EQ(reports, std::vector<std::string>{""});
}

TEST(ShmBuffer, OutlivesTheGroupThatGaveIt) {
  const auto reports = run_processes(2, [](int rank, Store& store) -> std::string {
    auto runner = connect(store, rank, 2);
    Buffer buffer = allocate_buffer(kMiB);
    if (!buffer.is_registered()) return "not registered";
    runner.reset();
    std::ranges::fill(buffer.as<float>(), 3.0F);
    const Buffer moved = std::move(buffer);
    return moved.as<float>().back() == 3.0F ? "" : "lost";
  });
  EXPECT_EQ(reports, (std::vector<std::string>{"", ""}));
}

// fork + exit: everything that a child has inherited is let go of there.
TEST(ShmBuffer, AChildThatLetsGoOfItTakesNothingFromItsParent) {
  const auto reports = run_processes(2, [](int rank, Store& store) -> std::string {
    const auto runner = connect(store, rank, 2);
    Buffer buffer = allocate_buffer(kMiB);
    std::ranges::fill(buffer.as<float>(), 3.0F);
    const pid_t child = ::fork();
    if (child == 0) {
      buffer = Buffer();
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    return buffer.as<float>().front() == 3.0F ? "" : "it is gone";
  });
  EXPECT_EQ(reports, (std::vector<std::string>{"", ""}));
}

// Where one rank can have no such memory, nobody has, and everything goes as without.
void expect_works_without(int resource, rlim_t limit) {
  const auto reports = run_processes(2, [&](int rank, Store& store) -> std::string {
    if (rank == 1) {
      const rlimit low{limit, limit};
      ::setrlimit(static_cast<__rlimit_resource_t>(resource), &low);
    }
    const auto runner = connect(store, rank, 2);
    const Buffer buffer = allocate_buffer(kMiB);
    if (buffer.is_registered() != (rank == 0)) return "not as expected";
    std::ranges::fill(buffer.as<float>(), 1.0F);
    Call call;
    call.op = OpType::all_reduce;
    call.count = buffer.as<float>().size();
    call.in = call.out = buffer.data();
    runner->run(call, soon());
    return buffer.as<float>().back() == 2.0F ? "" : "wrong";
  });
  EXPECT_EQ(reports, (std::vector<std::string>{"", ""}));
}

TEST(ShmBuffer, ALimitOnTheSizeOfFilesCostsNothingElse) {
  expect_works_without(RLIMIT_FSIZE, 4 * kMiB);
}

TEST(ShmBuffer, ALimitOnAddressesCostsNothingElse) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has more addresses than any limit";
#endif
  expect_works_without(RLIMIT_AS, std::size_t{1} << 30);
}

}  // namespace
}  // namespace distrun::shm::test
