#include "runtime/recorder/op_recorder.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace distrun::recorder {
namespace {

// The clocks are compared again when their distance from the first comparison has doubled, and at
// least once a second: so a tick's worth is known to some 50 ns over the whole record.
constexpr std::uint64_t kFirstPair = 20'000;  // ns
constexpr std::uint64_t kLastPause = 1'000'000'000;

template <std::size_t N>
void put_text(char (&place)[N], std::string_view text) {
  const std::size_t size = std::min(text.size(), N - 1);
  std::fill(std::copy_n(text.begin(), size, place), place + N, '\0');
}

template <std::size_t N, std::size_t M>
void put_names(char (&places)[N][M], std::span<const std::string_view> names) {
  for (std::size_t i = 0; i < std::min(N, names.size()); ++i) put_text(places[i], names[i]);
}

// The kernel trusts it: it has one rate, does not stop, and agrees on all processors.
bool tsc_is_a_clock() {
#if defined(__x86_64__)
  const int fd = ::open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                        O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[8] = {};
  const ssize_t size = ::read(fd, text, sizeof text);
  ::close(fd);
  return size >= 4 && std::memcmp(text, "tsc\n", 4) == 0;
#else
  return false;
#endif
}

void find_image(FileHeader& header) {
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& found = *static_cast<FileHeader*>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD) continue;
          found.image_end = std::max<std::uint64_t>(found.image_end,
                                                    info->dlpi_addr + part.p_vaddr + part.p_memsz);
        }
        found.image = info->dlpi_addr;
        return 1;  // the first one is the program
      },
      &header);
  char path[sizeof header.program];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  if (size > 0) put_text(header.program, {path, static_cast<std::size_t>(size)});
}

// Whose file this is; 0: nobody's.
pid_t writer_of(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return 0;
  std::uint64_t magic = 0;
  std::int32_t pid = 0;
  const bool ours =
      ::pread(fd, &magic, sizeof magic, offsetof(FileHeader, magic)) == sizeof magic &&
      magic == kMagic && ::pread(fd, &pid, sizeof pid, offsetof(FileHeader, pid)) == sizeof pid;
  ::close(fd);
  return ours && pid > 0 ? pid : 0;
}

constexpr int kNewFile = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;

Result<int> create(const std::string& path) {
  int fd = ::open(path.c_str(), kNewFile, 0600);
  if (fd < 0 && errno == EEXIST) {
    const pid_t writer = writer_of(path);
    if (writer != 0 && writer != ::getpid() && ::kill(writer, 0) == 0) {
      return Error{Errc::limit,
                   path + ": process " + std::to_string(writer) + " records this rank already"};
    }
    ::unlink(path.c_str());
    fd = ::open(path.c_str(), kNewFile, 0600);
  }
  if (fd < 0) return os_error(path, errno);
  return fd;
}

}  // namespace

OpRecorder::~OpRecorder() {
  if (header_ != nullptr) ::munmap(header_, mapped_);
}

Result<void> OpRecorder::open(const Options& options) {
  if (options.ops == 0) return {};
  if (options.ops > kMaxOps) {
    return Error{Errc::limit, "more than " + std::to_string(kMaxOps) + " operations"};
  }
  const auto fd = create(options.path);
  if (!fd) return fd.error();
  auto mapped = map(*fd, options, std::bit_ceil(options.ops));
  ::close(*fd);
  if (!mapped) ::unlink(options.path.c_str());
  return mapped;
}

Result<void> OpRecorder::map(int fd, const Options& options, std::uint32_t ring_ops) {
  const std::size_t size = file_bytes(ring_ops);
  // Not ftruncate: a mapping without room behind it is a SIGBUS later.
  if (const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(size)); error != 0) {
    return os_error(options.path + ": no room for " + std::to_string(size) + " bytes", error);
  }
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) return os_error(options.path + ": mmap", errno);
  mapped_ = size;
  header_ = static_cast<FileHeader*>(memory);
  groups_ = reinterpret_cast<GroupEntry*>(header_ + 1);
  mask_ = ring_ops - 1;
  fill_header(options, ring_ops);
  ops_ = reinterpret_cast<OpEntry*>(groups_ + kMaxGroups);
  return {};
}

void OpRecorder::fill_header(const Options& options, std::uint32_t ring_ops) {
  clock_ = tsc_is_a_clock() ? ClockKind::tsc : ClockKind::monotonic;
  FileHeader& header = *header_;
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  header.opened = {now(), monotonic_ns()};
  header.wall_ns = static_cast<std::uint64_t>(wall.tv_sec) * 1'000'000'000U +
                   static_cast<std::uint64_t>(wall.tv_nsec);
  header.version = kVersion;
  header.header_bytes = sizeof(FileHeader);
  header.group_bytes = sizeof(GroupEntry);
  header.op_bytes = sizeof(OpEntry);
  header.max_groups = kMaxGroups;
  header.ring_ops = ring_ops;
  header.file_bytes = mapped_;
  header.pid = ::getpid();
  header.rank = options.rank;
  header.world_size = options.world_size;
  header.local_rank = options.local_rank;
  header.restart_count = options.restart_count;
  header.clock = clock_;
  find_image(header);
  while (monotonic_ns() - header.opened.monotonic_ns < kFirstPair) {
  }
  pair_clocks(now());
  word(header.magic).store(kMagic, std::memory_order_release);
}

std::uint32_t OpRecorder::this_thread() {
  return static_cast<std::uint32_t>(::syscall(SYS_gettid));
}

// Whoever finds the time come writes; the others find it set forward.
void OpRecorder::pair_clocks(std::uint64_t ticks) noexcept {
  if (clock_ == ClockKind::monotonic) {
    pair_at_.store(~std::uint64_t{0}, std::memory_order_relaxed);
    header_->later[0] = header_->opened;
    return;
  }
  std::uint64_t due = pair_at_.load(std::memory_order_relaxed);
  if (ticks < due ||
      !pair_at_.compare_exchange_strong(due, ~std::uint64_t{0}, std::memory_order_relaxed)) {
    return;
  }
  const ClockPair pair{now(), monotonic_ns()};
  const std::uint64_t count = word(header_->pairs).load(std::memory_order_relaxed) + 1;
  ClockPair& place = header_->later[count % 2];
  word(place.ticks).store(pair.ticks, std::memory_order_relaxed);
  word(place.monotonic_ns).store(pair.monotonic_ns, std::memory_order_relaxed);
  word(header_->pairs).store(count, std::memory_order_release);
  const std::uint64_t ns = pair.monotonic_ns - header_->opened.monotonic_ns;
  const std::uint64_t passed = pair.ticks - header_->opened.ticks;
  const std::uint64_t pause =
      ns <= kLastPause ? passed
                       : static_cast<std::uint64_t>(static_cast<double>(passed) * kLastPause /
                                                    static_cast<double>(ns));
  pair_at_.store(pair.ticks + pause, std::memory_order_relaxed);
}

void OpRecorder::name_codes(const OpNames& names) {
  const std::lock_guard lock(mutex_);
  if (!records()) return;
  put_names(header_->op_names, names.ops);
  put_names(header_->reduce_names, names.reduces);
  put_names(header_->dtype_names, names.dtypes);
}

namespace {

// Word by word: who sees one of them sees the stamp before it.
void copy_released(GroupEntry& to, const GroupEntry& from, std::size_t begin, std::size_t end) {
  for (std::size_t at = begin; at < end; at += sizeof(std::uint64_t)) {
    std::uint64_t value = 0;
    std::memcpy(&value, reinterpret_cast<const char*>(&from) + at, sizeof value);
    auto* place = reinterpret_cast<std::uint64_t*>(reinterpret_cast<char*>(&to) + at);
    std::atomic_ref<std::uint64_t>(*place).store(value, std::memory_order_release);
  }
}

}  // namespace

// A free one, else the one that was closed longest ago.
GroupEntry* OpRecorder::room_for_group() {
  GroupEntry* oldest = nullptr;
  for (std::uint32_t i = 0; i < kMaxGroups; ++i) {
    GroupEntry& entry = groups_[i];
    const GroupState state = word(entry.state).load(std::memory_order_relaxed);
    if (state == GroupState::empty) return &entry;
    if (state == GroupState::closed && (oldest == nullptr || entry.id < oldest->id))
      oldest = &entry;
  }
  return oldest;
}

GroupRef OpRecorder::add_group(const GroupInfo& group) {
  const std::lock_guard lock(mutex_);
  if (!records()) return {};
  const std::uint32_t id = next_group_++;
  GroupEntry* entry = room_for_group();
  if (entry == nullptr) return {nullptr, id};
  GroupEntry fresh{};
  fresh.stamp_begin = fresh.stamp_end = id;
  fresh.id = id;
  fresh.state = GroupState::open;
  fresh.rank = group.rank;
  fresh.size = group.size;
  const auto& ranks = group.ranks;
  fresh.ranks_hash = ranks_hash(ranks);
  if (!ranks.empty()) {
    fresh.first_rank = ranks.front();
    const std::int32_t stride = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
    bool even = stride != 0;
    for (std::size_t i = 1; i < ranks.size(); ++i) even = even && ranks[i] - ranks[i - 1] == stride;
    if (even) {
      fresh.stride = stride;
    } else if (ranks.size() <= kListedRanks) {
      fresh.listed = static_cast<std::uint32_t>(ranks.size());
      std::copy(ranks.begin(), ranks.end(), fresh.ranks);
    }
  }
  put_text(fresh.name, group.name);
  put_text(fresh.description, group.description);
  put_text(fresh.backend, group.backend);
  // A reader takes an entry only with both stamps alike.
  word(entry->stamp_begin).store(id, std::memory_order_relaxed);
  word(entry->stamp_end).store(0, std::memory_order_relaxed);
  copy_released(*entry, fresh, offsetof(GroupEntry, id), offsetof(GroupEntry, stamp_end));
  word(entry->stamp_end).store(id, std::memory_order_release);
  return {entry, id};
}

void OpRecorder::close_group(GroupRef group) {
  const std::lock_guard lock(mutex_);
  if (!records() || group.entry == nullptr || group.entry->id != group.id) return;
  word(group.entry->state).store(GroupState::closed, std::memory_order_relaxed);
}

void OpRecorder::forget() {
  ops_ = nullptr;
}

std::uint64_t ranks_hash(std::span<const int> ranks) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const int rank : ranks) {
    for (unsigned shift = 0; shift < 32; shift += 8) {
      hash ^= (static_cast<std::uint32_t>(rank) >> shift) & 0xFFU;
      hash *= 0x100000001b3;
    }
  }
  return hash;
}

std::string file_of_rank(std::string_view folder, int rank) {
  return std::string(folder) + "/rank_" + std::to_string(rank) + ".fr";
}

Result<std::uint32_t> ring_size(const char* text) {
  if (text == nullptr || *text == '\0') return kDefaultOps;
  std::uint32_t ops = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, ops);
  if (error == std::errc{} && stop == end && ops <= kMaxOps) return ops;
  return Error{Errc::invalid_argument,
               "DISTRUN_FLIGHT_RECORDER_SIZE: not a whole number from 0 to " +
                   std::to_string(kMaxOps) + ": '" + std::string(text).substr(0, 80) + "'"};
}

namespace {

int environment_number(const char* name) {
  const char* text = std::getenv(name);
  int number = -1;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), number);
  return number;
}

// Only this user's; `parents`: so many above it may have to be made, too.
bool make_folder(const std::string& path, int parents) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return true;
  const std::size_t slash = path.rfind('/');
  if (errno != ENOENT || parents == 0 || slash == std::string::npos || slash == 0) return false;
  return make_folder(path.substr(0, slash), parents - 1) &&
         (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST);
}

Result<void> open_from_environment(OpRecorder& recorder) {
  const char* folder = std::getenv("DISTRUN_FLIGHT_RECORDER_DIR");
  if (folder == nullptr || *folder == '\0') return {};
  const auto ops = ring_size(std::getenv("DISTRUN_FLIGHT_RECORDER_SIZE"));
  if (!ops) return ops.error();
  if (*ops == 0) return {};
  OpRecorder::Options options;
  options.ops = *ops;
  options.rank = environment_number("RANK");
  options.world_size = environment_number("WORLD_SIZE");
  options.local_rank = environment_number("LOCAL_RANK");
  options.restart_count = environment_number("TORCHELASTIC_RESTART_COUNT");
  if (options.rank < 0 || options.world_size <= options.rank) {
    return Error{Errc::invalid_argument, "RANK and WORLD_SIZE do not say which rank this is"};
  }
  if (!make_folder(folder, 2)) return os_error(folder, errno);
  // Whoever could write there could give us a file of his.
  struct stat info {};
  if (::lstat(folder, &info) != 0) return os_error(folder, errno);
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 022) != 0) {
    return Error{Errc::invalid_argument,
                 std::string(folder) + ": not a folder that only this user can write into"};
  }
  options.path = file_of_rank(folder, options.rank);
  return recorder.open(options);
}

OpRecorder* open_recorder() {
  static OpRecorder* const instance = new OpRecorder;  // NOLINT: threads may record until the end
  if (const auto opened = open_from_environment(*instance); !opened) {
    std::fprintf(stderr, "distrun: no flight record: %s\n", opened.error().detail.c_str());
  }
  ::pthread_atfork(nullptr, nullptr, [] { instance->forget(); });
  return instance;
}

}  // namespace

OpRecorder* recorder() {
  static OpRecorder* const instance = open_recorder();
  return instance;
}

}  // namespace distrun::recorder
