#include "runtime/recorder/flight_file.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <map>
#include <memory>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace distrun::recorder {
namespace {

constexpr std::size_t kLargestFile = file_bytes(kMaxOps);
constexpr int kMaxRank = 1 << 20;
constexpr int kMaxListed = 65536;  // ranks of a group; of a larger one they count as not known
constexpr std::size_t kMaxFolderEntries = 65536;

Error damaged(const std::string& what) {
  return Error{Errc::protocol, "not a flight record: " + what};
}

template <std::size_t N>
std::string text_of(const char (&place)[N]) {
  std::string text(place, ::strnlen(place, N));
  for (char& c : text) {
    if (c < 0x20 || c > 0x7E) c = '?';
  }
  return text;
}

template <class T>
T take(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// What a tick is worth: from the first comparison of the clocks to the last one.
class TickClock {
 public:
  explicit TickClock(const FileHeader& header) : opened_(header.opened) {
    if (header.clock == ClockKind::monotonic) return;
    const ClockPair& later = header.later[header.pairs % 2];
    if (later.ticks <= opened_.ticks || later.monotonic_ns <= opened_.monotonic_ns) {
      rate_ = 0;
      return;
    }
    const auto ticks = static_cast<double>(later.ticks - opened_.ticks);
    const auto ns = static_cast<double>(later.monotonic_ns - opened_.monotonic_ns);
    rate_ = ns / ticks;
  }
  // Processors of today count 0.1 to 10 times a nanosecond.
  bool makes_sense() const { return rate_ > 0.01 && rate_ < 100; }
  // 0 stays 0.  No more than a year off: what is later is nobody's time.
  std::optional<std::int64_t> monotonic(std::uint64_t ticks) const {
    if (ticks == 0) return 0;
    const double ns = static_cast<double>(static_cast<std::int64_t>(ticks - opened_.ticks)) * rate_;
    constexpr double kYear = 3.2e16;
    if (ns < -kYear || ns > kYear) return std::nullopt;
    return static_cast<std::int64_t>(opened_.monotonic_ns) + static_cast<std::int64_t>(ns);
  }

 private:
  ClockPair opened_;
  double rate_ = 1;
};

std::optional<Error> problem_of(const FileHeader& header, std::size_t size) {
  if (header.magic != kMagic) return damaged("its first bytes are those of something else");
  if (header.version != kVersion) {
    return Error{Errc::unsupported, "a flight record of version " + std::to_string(header.version) +
                                        "; this program reads version " + std::to_string(kVersion)};
  }
  if (header.header_bytes != sizeof(FileHeader) || header.group_bytes != sizeof(GroupEntry) ||
      header.op_bytes != sizeof(OpEntry) || header.max_groups != kMaxGroups) {
    return damaged("its parts have other sizes than this version's");
  }
  if (!std::has_single_bit(header.ring_ops) || header.ring_ops > kMaxOps ||
      header.file_bytes != file_bytes(header.ring_ops) || size != header.file_bytes) {
    return damaged("a ring of " + std::to_string(header.ring_ops) + " operations in " +
                   std::to_string(size) + " bytes");
  }
  if (header.rank < 0 || header.rank >= header.world_size || header.world_size > kMaxRank) {
    return damaged("rank " + std::to_string(header.rank) + " of " +
                   std::to_string(header.world_size));
  }
  if (header.clock != ClockKind::monotonic && header.clock != ClockKind::tsc) {
    return damaged("a clock that is not known");
  }
  constexpr std::uint64_t kCenturies = std::uint64_t{1} << 62;
  if (header.wall_ns > kCenturies || header.ended_ns > kCenturies ||
      header.opened.monotonic_ns > kCenturies || !TickClock(header).makes_sense()) {
    return damaged("its times make no sense");
  }
  return std::nullopt;
}

std::vector<int> ranks_of(const GroupEntry& entry) {
  std::vector<int> ranks;
  if (entry.listed != 0) {
    if (entry.listed == static_cast<std::uint32_t>(entry.size) && entry.listed <= kListedRanks) {
      ranks.assign(entry.ranks, entry.ranks + entry.listed);
    }
  } else if (entry.stride != 0 && entry.size <= kMaxListed) {
    ranks.reserve(static_cast<std::size_t>(entry.size));
    for (std::int64_t i = 0; i < entry.size; ++i) {
      const std::int64_t rank = entry.first_rank + i * entry.stride;
      if (rank < 0 || rank >= kMaxRank) return {};
      ranks.push_back(static_cast<int>(rank));
    }
  }
  const bool sound =
      std::all_of(ranks.begin(), ranks.end(), [](int r) { return r >= 0 && r < kMaxRank; });
  return sound ? ranks : std::vector<int>();
}

std::optional<GroupRecord> group_of(const GroupEntry& entry, int world_size) {
  if (entry.stamp_begin != entry.id || entry.stamp_end != entry.id || entry.id == 0) return {};
  if (entry.state != GroupState::open && entry.state != GroupState::closed) return {};
  if (entry.size < 1 || entry.size > world_size || entry.rank < 0 || entry.rank >= entry.size) {
    return {};
  }
  GroupRecord group;
  group.id = entry.id;
  group.name = text_of(entry.name);
  group.description = text_of(entry.description);
  group.backend = text_of(entry.backend);
  group.closed = entry.state == GroupState::closed;
  group.rank = entry.rank;
  group.size = entry.size;
  group.ranks_hash = entry.ranks_hash;
  group.ranks = ranks_of(entry);
  group.collectives = entry.collectives;
  group.point_to_point = entry.point_to_point;
  return group;
}

// All but what changes once the operation is there.
bool same_call(const OpEntry& a, const OpEntry& b) {
  return a.stamp_begin == b.stamp_begin && a.stamp_end == b.stamp_end &&
         std::memcmp(&a, &b, offsetof(OpEntry, started)) == 0;
}

template <std::size_t N, std::size_t M>
std::string name_of(const char (&names)[N][M], std::uint8_t code, const char* kind) {
  if (code >= N) return {};
  std::string name = text_of(names[code]);
  return name.empty() ? kind + std::to_string(code) : name;
}

class Decoder {
 public:
  Decoder(std::span<const std::byte> first, std::span<const std::byte> second)
      : first_(first), second_(second), header_(take<FileHeader>(second, 0)), clock_(header_) {}

  RankRecord run() {
    record_.pid = header_.pid;
    record_.rank = header_.rank;
    record_.world_size = header_.world_size;
    record_.restart_count = header_.restart_count;
    record_.program = text_of(header_.program);
    record_.image = header_.image;
    record_.image_end = header_.image_end;
    record_.wall_offset = static_cast<std::int64_t>(header_.wall_ns) -
                          static_cast<std::int64_t>(header_.opened.monotonic_ns);
    record_.ended = static_cast<std::int64_t>(header_.ended_ns);
    record_.recorded = header_.next_op;
    std::size_t at = sizeof(FileHeader);
    for (std::uint32_t i = 0; i < kMaxGroups; ++i, at += sizeof(GroupEntry)) {
      if (auto group = group_of(take<GroupEntry>(second_, at), header_.world_size)) {
        record_.groups.push_back(std::move(*group));
      }
    }
    for (std::uint32_t i = 0; i < header_.ring_ops; ++i, at += sizeof(OpEntry)) take_op(i, at);
    std::sort(record_.ops.begin(), record_.ops.end(),
              [](const OpRecord& a, const OpRecord& b) { return a.number < b.number; });
    return std::move(record_);
  }

 private:
  void take_op(std::uint32_t place, std::size_t at) {
    const auto entry = take<OpEntry>(second_, at);
    if (entry.stamp_begin == 0 && entry.stamp_end == 0) return;  // never used
    if (entry.stamp_begin != entry.stamp_end ||
        ((entry.stamp_begin - 1) & (header_.ring_ops - 1)) != place ||
        !same_call(take<OpEntry>(first_, at), entry) || !take_sound(entry)) {
      ++record_.left_out;
    }
  }

  bool take_sound(const OpEntry& entry) {
    OpRecord op;
    op.number = entry.stamp_begin - 1;
    const What what = what_of(entry.what);
    op.group = what.group;
    op.sequence = entry.sequence;
    op.op = name_of(header_.op_names, what.op, "operation ");
    op.reduce = name_of(header_.reduce_names, what.reduce, "reduction ");
    op.dtype = name_of(header_.dtype_names, what.dtype, "type ");
    op.point_to_point = (what.flags & kPointToPoint) != 0;
    op.receive = (what.flags & kReceive) != 0;
    op.counts_agree = (what.flags & kCountsAgree) != 0;
    op.count_in = entry.count_in;
    op.count_out = entry.count_out;
    op.peer = static_cast<std::int32_t>(low_of(entry.whom));
    op.tag = high_of(entry.whom);
    op.timeout_ms = low_of(entry.how_long);
    op.thread = high_of(entry.how_long);
    op.call_site = entry.call_site;
    op.state = entry.state;
    if (entry.state < OpState::scheduled || entry.state > OpState::failed) return false;
    const auto created = clock_.monotonic(entry.created);
    const auto started = clock_.monotonic(entry.started);
    const auto ended = clock_.monotonic(entry.ended);
    if (!created || !started || !ended || op.op.empty() || op.sequence == ~std::uint64_t{0} ||
        op.peer < -1 || op.peer >= kMaxRank) {
      return false;
    }
    op.created = *created;
    // The time is written before the state: what the state does not tell of yet, has not been.
    if (op.state != OpState::scheduled) op.started = *started;
    if (op.state == OpState::completed || op.state == OpState::failed) op.ended = *ended;
    record_.ops.push_back(std::move(op));
    return true;
  }

  std::span<const std::byte> first_;
  std::span<const std::byte> second_;
  FileHeader header_;
  TickClock clock_;
  RankRecord record_;
};

// Reads, and does not map: a file that is made shorter meanwhile must not be a SIGBUS.
Result<std::vector<std::byte>> copy_of(int fd, std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::size_t at = 0;
  while (at < size) {
    const ssize_t n = ::pread(fd, bytes.data() + at, size - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return os_error("cannot be read", errno);
    if (n == 0) return damaged("it became shorter while it was read");
    at += static_cast<std::size_t>(n);
  }
  return bytes;
}

Result<RankRecord> read_open_file(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return os_error("cannot be read", errno);
  if (!S_ISREG(info.st_mode)) return damaged("no regular file");
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size < sizeof(FileHeader) || size > kLargestFile) {
    return damaged(std::to_string(size) + " bytes are too " +
                   (size > kLargestFile ? "many" : "few"));
  }
  const auto first = copy_of(fd, size);
  if (!first) return first.error();
  const auto second = copy_of(fd, size);
  if (!second) return second.error();
  return decode(*first, *second);
}

// The N of rank_N.fr.
bool is_rank_file(std::string_view name) {
  constexpr std::string_view kBegin = "rank_";
  constexpr std::string_view kEnd = ".fr";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  name = name.substr(0, name.size() - kEnd.size());
  name.remove_prefix(std::min(kBegin.size(), name.size()));
  return !name.empty() && name.size() <= 8 &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

const GroupRecord* RankRecord::group(std::uint32_t id) const {
  for (const GroupRecord& group : groups) {
    if (group.id == id) return &group;
  }
  return nullptr;
}

Result<RankRecord> decode(std::span<const std::byte> first, std::span<const std::byte> second) {
  if (second.size() < sizeof(FileHeader) || first.size() != second.size()) {
    return damaged(std::to_string(second.size()) + " bytes are too few");
  }
  if (auto problem = problem_of(take<FileHeader>(second, 0), second.size())) return *problem;
  return Decoder(first, second).run();
}

Result<RankRecord> read_flight_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
  if (fd < 0) return os_error(path, errno);
  auto record = read_open_file(fd);
  ::close(fd);
  if (!record) return Error{record.error().code, path + ": " + record.error().detail};
  record->path = path;
  return record;
}

bool mark_ended(const std::string& path, std::int64_t monotonic_ns) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
  if (fd < 0) return false;
  const auto value = static_cast<std::uint64_t>(monotonic_ns);
  const ssize_t written = ::pwrite(fd, &value, sizeof value, offsetof(FileHeader, ended_ns));
  ::close(fd);
  return written == static_cast<ssize_t>(sizeof value);
}

Result<FolderRecords> read_flight_folder(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), &::closedir);
  if (!open) return os_error(folder, errno);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kMaxFolderEntries; ++i) {
    const dirent* entry = ::readdir(open.get());
    if (entry == nullptr) break;
    if (is_rank_file(entry->d_name)) names.emplace_back(entry->d_name);
  }
  FolderRecords found;
  if (names.size() > kMaxFiles) {
    found.problems.push_back(folder + ": " + std::to_string(names.size()) + " files; the first " +
                             std::to_string(kMaxFiles) + " are read");
  }
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), std::string_view(a)) < std::pair(b.size(), std::string_view(b));
  });
  names.resize(std::min(names.size(), kMaxFiles));
  for (const std::string& name : names) {
    auto record = read_flight_file(std::string(folder).append("/").append(name));
    if (record) {
      found.ranks.push_back(std::move(*record));
    } else {
      found.problems.push_back(record.error().detail);
    }
  }
  return found;
}

}  // namespace distrun::recorder
