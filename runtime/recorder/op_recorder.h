// OpRecorder: what a worker writes down about its operations, so that others can see where it is or
// was: also while it hangs, and after it was killed.
//
//   OpRecorder* r = recorder();                      // this process's; does nothing if not asked
//   for GroupRef dp = r->add_group({.name = "dp", …});   // once for each group OpHandle op =
//   r->scheduled({.group = dp, .sequence = 7, .op = …}); r->started(op); … r->completed(op, ok);
//
// The last operations lie in a ring in a file mapping (format.h).  Recording one is a few stores
// and readings of the processor's clock: no system call, no lock, no allocation.  Threads may
// record at the same time; of one operation the calls come one after another.
//
// Environment, read by the first recorder():
//   DISTRUN_FLIGHT_RECORDER_DIR    where rank_<RANK>.fr goes; made if it is not there, as are two
//   above it.  distrun sets
//                                  it.  Empty or not set: nothing is recorded.
//   DISTRUN_FLIGHT_RECORDER_SIZE   how many operations are kept (2000); 0: nothing is recorded
#pragma once

#include "runtime/base/result.h"
#include "runtime/recorder/format.h"

#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace distrun::recorder {

struct GroupInfo {
  std::string_view name;         // the same on all of its ranks, and no other group's
  std::string_view description;  // for people; may be empty
  std::string_view backend;
  int rank = 0;
  int size = 1;
  std::span<const int> ranks = {};  // global ones, in the order of the group; empty: not known
};

// A group as operations name it.  Valid as long as its recorder.
struct GroupRef {
  GroupEntry* entry = nullptr;  // null: there was no room for it, or nothing is recorded
  std::uint32_t id = 0;
};

struct OpInfo {
  GroupRef group;
  std::uint64_t sequence = 0;
  std::uint8_t op = 0;            // an index into OpNames::ops
  std::uint8_t reduce = kNoCode;  // likewise
  std::uint8_t dtype = kNoCode;
  std::uint8_t flags = 0;
  std::uint64_t count_in = 0;  // elements
  std::uint64_t count_out = 0;
  std::int32_t peer = -1;
  std::uint32_t tag = 0;
  std::uint32_t timeout_ms = 0;
  const void* call_site = nullptr;  // __builtin_return_address(0) of the public function
};

struct OpHandle {
  OpEntry* op = nullptr;
  Progress* progress = nullptr;
  std::uint64_t stamp = 0;
  std::uint64_t next = 0;  // sequence + 1
};

// What the codes of OpInfo mean.  Longer names are cut (23, 15, 15 bytes).
struct OpNames {
  std::span<const std::string_view> ops;
  std::span<const std::string_view> reduces;
  std::span<const std::string_view> dtypes;
};

class OpRecorder {
 public:
  struct Options {
    std::string path;
    std::uint32_t ops = kDefaultOps;  // rounded up to a power of two
    int rank = 0;
    int world_size = 1;
    int local_rank = -1;
    int restart_count = -1;
  };

  OpRecorder() = default;  // records nothing
  ~OpRecorder();
  OpRecorder(const OpRecorder&) = delete;
  OpRecorder& operator=(const OpRecorder&) = delete;

  // Makes the file.  One that is there already is replaced if its writer is this process or dead;
  // else it is an error: a rank is recorded by one process.
  Result<void> open(const Options& options);

  bool records() const { return ops_ != nullptr; }

  // These three may wait for one another.
  void name_codes(const OpNames& names);
  GroupRef add_group(const GroupInfo& group);
  // The entry is kept until it is needed for another group.
  void close_group(GroupRef group);

  // A call was made.
  OpHandle scheduled(const OpInfo& info) noexcept {
    if (ops_ == nullptr) return {};
    return write(info, now(), OpState::scheduled);
  }
  // It is carried out from now on.
  void started(const OpHandle& handle) noexcept {
    if (!still_there(handle)) return;
    word(handle.op->started).store(now(), std::memory_order_relaxed);
    enter(handle, OpState::started);
    advance(handle.progress->started, handle.next);
  }
  // Both in one, for a call that need not wait for others.
  OpHandle began(const OpInfo& info) noexcept {
    if (ops_ == nullptr) return {};
    return write(info, now(), OpState::started);
  }
  void completed(const OpHandle& handle, bool ok) noexcept {
    if (!still_there(handle)) return;
    word(handle.op->ended).store(now(), std::memory_order_relaxed);
    enter(handle, ok ? OpState::completed : OpState::failed);
    if (ok) advance(handle.progress->completed, handle.next);
  }

  // In the child of a fork: the record is the parent's.
  void forget();

 private:
  template <class T>
  static std::atomic_ref<T> word(T& place) {
    return std::atomic_ref<T>(place);
  }

  std::uint64_t now() const {
#if defined(__x86_64__)
    if (clock_ == ClockKind::tsc) return __rdtsc();
#endif
    return monotonic_ns();
  }
  static std::uint64_t monotonic_ns() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(time.tv_nsec);
  }

  // The ring may have come round since.
  static bool still_there(const OpHandle& handle) {
    return handle.op != nullptr &&
           word(handle.op->stamp_begin).load(std::memory_order_relaxed) == handle.stamp;
  }
  static void enter(const OpHandle& handle, OpState state) {
    word(handle.op->state).store(state, std::memory_order_release);
  }
  static void advance(std::uint64_t& place, std::uint64_t next) {
    const auto counter = word(place);
    if (counter.load(std::memory_order_relaxed) < next) {
      counter.store(next, std::memory_order_relaxed);
    }
  }

  OpHandle write(const OpInfo& info, std::uint64_t ticks, OpState state) noexcept {
    if (ticks >= pair_at_.load(std::memory_order_relaxed)) [[unlikely]]
      pair_clocks(ticks);
    if (thread_ == 0) [[unlikely]]
      thread_ = this_thread();
    constexpr auto kRelaxed = std::memory_order_relaxed;
    const std::uint64_t number = word(header_->next_op).fetch_add(1, kRelaxed);
    const std::uint64_t stamp = number + 1;
    const bool starts = state == OpState::started;
    OpEntry& op = ops_[number & mask_];
    word(op.stamp_begin).store(stamp, kRelaxed);
    // Released one by one: who sees one of them sees the stamp.
    constexpr auto kRelease = std::memory_order_release;
    const What what{info.group.id, info.op, info.reduce, info.dtype, info.flags};
    word(op.what).store(pack_what(what), kRelease);
    word(op.sequence).store(info.sequence, kRelease);
    word(op.count_in).store(info.count_in, kRelease);
    word(op.count_out).store(info.count_out, kRelease);
    word(op.whom).store(two_of(static_cast<std::uint32_t>(info.peer), info.tag), kRelease);
    word(op.how_long).store(two_of(info.timeout_ms, thread_), kRelease);
    word(op.call_site).store(reinterpret_cast<std::uint64_t>(info.call_site), kRelease);
    word(op.created).store(ticks, kRelease);
    word(op.started).store(starts ? ticks : 0, kRelease);
    word(op.ended).store(0, kRelease);
    word(op.state).store(state, kRelease);
    word(op.stamp_end).store(stamp, kRelease);

    OpHandle handle{&op, &no_progress_, stamp, info.sequence + 1};
    if (GroupEntry* group = info.group.entry; group != nullptr) {
      const bool pair = (info.flags & kPointToPoint) != 0;
      handle.progress = pair ? &group->point_to_point : &group->collectives;
    }
    advance(handle.progress->scheduled, handle.next);
    if (starts) advance(handle.progress->started, handle.next);
    return handle;
  }
  static std::uint32_t this_thread();  // a system call, once for each thread
  // The model: no call to find it, also in a library.
  __attribute__((
      tls_model("initial-exec"))) static constinit inline thread_local std::uint32_t thread_ = 0;
  void pair_clocks(std::uint64_t ticks) noexcept;
  Result<void> map(int fd, const Options& options, std::uint32_t ring_ops);
  void fill_header(const Options& options, std::uint32_t ring_ops);
  GroupEntry* room_for_group();

  OpEntry* ops_ = nullptr;
  FileHeader* header_ = nullptr;
  GroupEntry* groups_ = nullptr;
  std::uint64_t mask_ = 0;
  ClockKind clock_ = ClockKind::monotonic;
  std::atomic<std::uint64_t> pair_at_{0};  // ticks when the clocks are to be compared again
  std::size_t mapped_ = 0;
  std::mutex mutex_;  // of names and groups
  std::uint32_t next_group_ = 1;
  Progress no_progress_{};  // of operations whose group has no entry
};

// The process's own, opened as the environment says when it is first asked for.  Never null, never
// destroyed.  Why it could not be opened is said on stderr, once.
OpRecorder* recorder();

// FNV-1a over the ranks as 32-bit little-endian numbers.
std::uint64_t ranks_hash(std::span<const int> ranks);

// "<folder>/rank_<rank>.fr"
std::string file_of_rank(std::string_view folder, int rank);

// What DISTRUN_FLIGHT_RECORDER_SIZE says; nullopt text: the default.
Result<std::uint32_t> ring_size(const char* text);

}  // namespace distrun::recorder
