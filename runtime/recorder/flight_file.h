// Reads flight records (format.h): those of a worker that is at work, hangs, or is dead.
//
// Nothing in a file is trusted.  One that is no record is an Error that says why; an operation that
// is torn, was being written, or makes no sense is left out and counted.  What is returned is
// within its bounds, and its texts hold printable ASCII only.
#pragma once

#include "runtime/base/result.h"
#include "runtime/recorder/format.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::recorder {

// Times are CLOCK_MONOTONIC's nanoseconds of the machine where the worker ran; 0: not yet.
struct OpRecord {
  std::uint64_t number = 0;  // in its process, in order of the calls
  std::uint32_t group = 0;   // GroupRecord::id
  std::uint64_t sequence = 0;
  std::string op;
  std::string reduce;  // empty: none
  std::string dtype;   // empty: no data
  bool point_to_point = false;
  bool receive = false;
  bool counts_agree = false;
  std::uint64_t count_in = 0;
  std::uint64_t count_out = 0;
  int peer = -1;
  std::uint32_t tag = 0;
  std::uint32_t timeout_ms = 0;
  std::uint32_t thread = 0;
  std::uint64_t call_site = 0;
  std::int64_t created = 0;
  std::int64_t started = 0;
  std::int64_t ended = 0;
  OpState state = OpState::scheduled;
};

struct GroupRecord {
  std::uint32_t id = 0;
  std::string name;
  std::string description;
  std::string backend;
  bool closed = false;
  int rank = 0;
  int size = 1;
  std::uint64_t ranks_hash = 0;
  std::vector<int> ranks;  // global ones, in the order of the group; empty: not known
  Progress collectives{};
  Progress point_to_point{};
};

struct RankRecord {
  std::string path;
  int pid = 0;
  int rank = 0;
  int world_size = 1;
  int restart_count = -1;
  std::string program;
  std::uint64_t image = 0;
  std::uint64_t image_end = 0;
  std::int64_t wall_offset = 0;  // CLOCK_REALTIME less CLOCK_MONOTONIC, when the file was opened
  std::int64_t ended = 0;  // when its worker was seen dead, or the first of its round; 0: not told
  std::uint64_t recorded = 0;  // operations in all, those included that were overwritten
  std::size_t left_out = 0;    // torn or senseless
  std::vector<GroupRecord> groups;
  std::vector<OpRecord> ops;  // in order of their numbers

  const GroupRecord* group(std::uint32_t id) const;
};

inline constexpr std::size_t kMaxFiles = 4096;  // that are read together

Result<RankRecord> read_flight_file(const std::string& path);

// Writes into the record of a dead worker when that was, so that later readers know how long it had
// waited.  False: it could not be written.
bool mark_ended(const std::string& path, std::int64_t monotonic_ns);

// The rank_*.fr of a folder, in the order of ranks.  `problems`: a sentence for each that could not
// be read.  An Error: the folder could not.
struct FolderRecords {
  std::vector<RankRecord> ranks;
  std::vector<std::string> problems;
};
Result<FolderRecords> read_flight_folder(const std::string& folder);

// Of two copies of a file's bytes, made one after the other: what is the same in both was not being
// written.  For read_flight_file and its tests.
Result<RankRecord> decode(std::span<const std::byte> first, std::span<const std::byte> second);

}  // namespace distrun::recorder
