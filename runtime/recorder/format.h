// The bytes of a flight record: one file for each rank, written through a mapping by the worker
// (op_recorder.h) and read by anybody (flight_file.h), also while it is being written and after its
// writer was killed.  README.md has the picture and the rules.
//
//   FileHeader | GroupEntry x kMaxGroups | OpEntry x ring_ops
//
// Plain words of the writer's byte order; the writer touches those that change through atomics.
// Whatever changes here changes kVersion.
#pragma once

#include <cstddef>
#include <cstdint>

namespace distrun::recorder {

inline constexpr std::uint64_t kMagic = 0x5448474C464E5244;  // "DRNFLGHT" in little-endian bytes
inline constexpr std::uint32_t kVersion = 1;

inline constexpr std::uint32_t kMaxGroups = 128;
inline constexpr std::uint32_t kMaxOps = 65536;
inline constexpr std::uint32_t kDefaultOps = 2000;

// Codes of operations, reductions and data types are the writer's own: their names are in the
// header.
inline constexpr std::size_t kMaxOpNames = 64;
inline constexpr std::size_t kMaxReduceNames = 32;
inline constexpr std::size_t kMaxDTypeNames = 32;
inline constexpr std::uint8_t kNoCode = 0xFF;  // no reduction, no data

enum class ClockKind : std::uint32_t {
  monotonic = 0,  // ticks are CLOCK_MONOTONIC's nanoseconds
  tsc = 1,        // ticks of the processor's counter; ClockPair says what they are worth
};

// One moment by both clocks.
struct ClockPair {
  std::uint64_t ticks;
  std::uint64_t monotonic_ns;
};

struct FileHeader {
  std::uint64_t magic;  // written last, when the rest of the header is there
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint32_t group_bytes;
  std::uint32_t op_bytes;
  std::uint32_t max_groups;
  std::uint32_t ring_ops;  // a power of two
  std::uint64_t file_bytes;
  std::int32_t pid;
  std::int32_t rank;
  std::int32_t world_size;
  std::int32_t local_rank;     // -1: not told
  std::int32_t restart_count;  // -1: not told
  ClockKind clock;
  std::uint64_t wall_ns;  // CLOCK_REALTIME at `opened`
  ClockPair opened;
  ClockPair later[2];   // the younger one is later[pairs % 2]; the other may be in writing
  std::uint64_t pairs;  // how many were written; the first while the file was opened
  std::uint64_t image;  // where the program is in memory: a call site is an offset in `program`
  std::uint64_t image_end;
  char program[256];
  char op_names[kMaxOpNames][24];
  char reduce_names[kMaxReduceNames][16];
  char dtype_names[kMaxDTypeNames][16];
  // By whoever saw the writer's end, later (mark_ended()): CLOCK_MONOTONIC; 0: nobody did.
  std::uint64_t ended_ns;
  char reserved[5160];
  // On a line of its own: every operation takes a number here.
  alignas(64) std::uint64_t next_op;
  char reserved_end[56];
};
static_assert(sizeof(FileHeader) == 8192);

enum class GroupState : std::uint32_t { empty = 0, open = 1, closed = 2 };

inline constexpr std::size_t kListedRanks = 48;

// What was last done in a group: the sequence number of the next operation, so that 0 is none.
struct Progress {
  std::uint64_t scheduled;
  std::uint64_t started;
  std::uint64_t completed;
};

struct GroupEntry {
  std::uint64_t stamp_begin;
  std::uint32_t id;  // never used twice by a process, unlike the entry
  GroupState state;
  std::int32_t rank;  // in the group
  std::int32_t size;
  std::uint64_t ranks_hash;  // of the global ranks, in the order of the group (ranks_hash())
  std::int32_t first_rank;   // listed == 0, stride != 0: global ranks are first + i * stride
  std::int32_t stride;
  std::uint32_t listed;  // so many in `ranks`; 0 without a stride: not known
  std::uint32_t reserved;
  char name[64];
  char description[64];
  char backend[8];
  // On lines of their own.
  alignas(64) Progress collectives;
  Progress point_to_point;
  std::uint64_t reserved_progress[2];
  std::int32_t ranks[kListedRanks];
  std::uint64_t stamp_end;
  std::uint64_t reserved_end[7];
};
static_assert(sizeof(GroupEntry) == 512);

enum class OpState : std::uint64_t { scheduled = 1, started = 2, completed = 3, failed = 4 };

inline constexpr std::uint8_t kPointToPoint = 1;
inline constexpr std::uint8_t kCountsAgree = 2;  // all ranks have to name the same count
inline constexpr std::uint8_t kReceive = 4;      // of point to point: from the peer

// An operation's number is its stamp less 1; its place is that number modulo ring_ops.  Small
// fields share words, so that there are few to write.
struct OpEntry {
  std::uint64_t stamp_begin;  // written first
  std::uint64_t what;         // group, op, reduce, dtype, flags: pack_what()
  std::uint64_t sequence;     // in its group; point to point counts by itself
  std::uint64_t count_in;
  std::uint64_t count_out;
  std::uint64_t whom;       // peer, tag: two_of()
  std::uint64_t how_long;   // timeout in ms (0: not told), thread: two_of()
  std::uint64_t call_site;  // a return address; 0: not told
  std::uint64_t created;    // ticks
  std::uint64_t started;    // 0: not yet
  std::uint64_t ended;      // 0: not yet
  OpState state;
  std::uint64_t reserved[3];
  std::uint64_t stamp_end;  // written last, before the state ever changes
};
static_assert(sizeof(OpEntry) == 128);

struct What {
  std::uint32_t group = 0;  // GroupEntry::id; 0: none
  std::uint8_t op = 0;
  std::uint8_t reduce = kNoCode;
  std::uint8_t dtype = kNoCode;
  std::uint8_t flags = 0;
};
constexpr std::uint64_t pack_what(What what) {
  return what.group | std::uint64_t{what.op} << 32 | std::uint64_t{what.reduce} << 40 |
         std::uint64_t{what.dtype} << 48 | std::uint64_t{what.flags} << 56;
}
constexpr What what_of(std::uint64_t word) {
  const auto byte = [word](unsigned shift) { return static_cast<std::uint8_t>(word >> shift); };
  return {static_cast<std::uint32_t>(word), byte(32), byte(40), byte(48), byte(56)};
}

// Two numbers in one word: `peer` (in the group: the root, or the other side; -1: none) and the
// tag; the timeout and the thread's id.
constexpr std::uint64_t two_of(std::uint32_t low, std::uint32_t high) {
  return low | std::uint64_t{high} << 32;
}
constexpr std::uint32_t low_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(word);
}
constexpr std::uint32_t high_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}

constexpr std::size_t file_bytes(std::uint32_t ring_ops) {
  return sizeof(FileHeader) + std::size_t{kMaxGroups} * sizeof(GroupEntry) +
         std::size_t{ring_ops} * sizeof(OpEntry);
}

}  // namespace distrun::recorder
