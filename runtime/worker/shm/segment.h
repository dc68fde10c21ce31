// One rank's shared memory: a memfd that its owner writes and the others read.
//
// The kernel sees to it that nobody else can write to it (F_SEAL_FUTURE_WRITE, where known) and
// that it never shrinks below a reader (F_SEAL_SHRINK).  It has no name: nothing is left behind by
// whoever dies.  All of it is there from the start, in memory near its owner, so that a machine
// without memory refuses it here instead of killing somebody later.
#pragma once

#include "runtime/worker/shm/fd.h"
#include "runtime/worker/shm/fingerprint.h"
#include "runtime/worker/shm/layout.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace distrun::shm {

// What a rank says when it leaves, in one word: why, and about which rank.
enum class Leave : std::uint32_t {
  no,
  closed,   // at the end, or because its owner wanted it
  lost,     // it found another rank gone
  late,     // its deadline passed; Control::late has for whom it waited
  differs,  // calls differed
};

// The first page.
struct Control {
  static constexpr std::size_t kWords = kMaxRanks / 64;

  alignas(2 * kLine) std::atomic<std::uint64_t> left;  // Leave and a rank: see left_word()
  std::atomic<std::uint64_t> late[kWords];             // written before `left`
  // The rank, plus one, whose Post the owner sleeps on; 0: it is awake.
  alignas(2 * kLine) std::atomic<std::uint32_t> sleeps_on;
};
static_assert(sizeof(Control) <= kPage);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

constexpr std::uint64_t left_word(Leave why, int about) {
  return std::uint64_t{static_cast<std::uint32_t>(why)} << 32 | static_cast<std::uint32_t>(about);
}
constexpr Leave why_left(std::uint64_t word) {
  return static_cast<Leave>(static_cast<std::uint32_t>(word >> 32));
}
constexpr int left_about(std::uint64_t word) {
  return static_cast<int>(static_cast<std::uint32_t>(word));
}

// In front of a buffer's data.  `round` is written last, and is what others wait for.
struct alignas(kLine) Post {
  std::atomic<std::uint32_t> round;
  std::atomic<std::uint32_t> cpu;  // where the owner ran
  Fingerprint call;
  std::byte inline_data[kInlineBytes];
};
static_assert(sizeof(Post) == kLine);
static_assert(offsetof(Post, inline_data) == kInlineAt);

// A memfd mapped into this process.
class Segment {
 public:
  // A new one, of zeros, for its owner.  Throws std::system_error.
  static Segment create(std::size_t bytes);
  // Somebody else's, to read.  Refuses one that could shrink or has another size.
  // Throws std::system_error, or std::runtime_error that says what is wrong with it.
  static Segment open(Fd memory, std::size_t bytes);

  Segment() = default;
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  std::byte* data() const { return data_; }
  // For passing on; let go of it when that is done.
  int fd() const { return memory_.get(); }
  void close_fd() { memory_ = Fd(); }

 private:
  Segment(Fd memory, std::byte* data, std::size_t bytes)
      : memory_(std::move(memory)), data_(data), bytes_(bytes) {}
  Fd memory_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace distrun::shm
