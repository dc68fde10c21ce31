// Memory that a process gives its user, and that the other ranks of its host read where it is.
//
// One memfd for each process, as large as the machine's memory and empty: every rank that shares
// memory with this one maps all of it when they meet (join.h), and so whatever is allocated later
// is within reach of all without a word.  Its owner alone writes to it: the others have a
// descriptor for reading only.  Pages are there before allocate() returns, so that a lack of memory
// is an error there and no signal later; what is not allocated can be touched by nobody here.
//
//   | header: who | user's | hole | user's | hole …
#pragma once

#include "runtime/worker/shm/fd.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace distrun::shm {

using HeapId = std::array<char, 32>;

// A heap as its readers see it.  Unmapped with the last one that holds it.
class HeapView {
 public:
  // Somebody's, by a descriptor that can read it; mapped once in a process, also its own: ranks
  // that are threads read each other's as those of other processes do.  Refuses one that could
  // shrink.  Throws std::system_error, or std::runtime_error that says what is wrong with it.
  static std::shared_ptr<const HeapView> open(Fd memory);

  HeapView(const std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  ~HeapView();
  HeapView(const HeapView&) = delete;
  HeapView& operator=(const HeapView&) = delete;

  // Null: that is not in it.
  const std::byte* at(std::uint64_t offset, std::uint64_t bytes) const {
    return offset <= bytes_ && bytes <= bytes_ - offset ? data_ + offset : nullptr;
  }

 private:
  const std::byte* const data_;
  const std::size_t bytes_;
};

class Heap {
 public:
  // This process's, made when it is first asked for, never destroyed; a child of fork has its own.
  // Null if it cannot be had: limits, no /proc.
  static Heap* own();
  // That one if it was made.
  static Heap* if_made();

  // Throws std::system_error.  For own(), and tests.
  explicit Heap(std::size_t size);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Of zeros, at a page's beginning.  Null: no room between what is allocated.  Throws
  // DistUnsupportedError: the machine has not so much memory.  REQUIRES: wanted > 0
  std::byte* allocate(std::size_t wanted);
  // As it was allocated.
  void release(std::byte* data, std::size_t bytes) noexcept;

  // nullopt: not in it.
  std::optional<std::uint64_t> offset_of(const std::byte* data, std::uint64_t bytes) const {
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    const auto begin = reinterpret_cast<std::uintptr_t>(data_);
    if (at < begin || at - begin > bytes_ || bytes > bytes_ - (at - begin)) return std::nullopt;
    return at - begin;
  }
  // For passing on.
  int reader() const { return reader_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  void punch(std::uint64_t at, std::size_t bytes) const;

  Fd memory_;
  Fd reader_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_;  // where: how much; no two touch
};

}  // namespace distrun::shm
