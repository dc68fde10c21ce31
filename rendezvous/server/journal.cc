#include "rendezvous/server/journal.h"

#include "rendezvous/protocol/record_json.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"

#include <boost/crc.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <optional>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace distrun::rendezvous {
namespace {

constexpr std::string_view kMagic = "distrun-journal ";
constexpr std::string_view kHeader = "distrun-journal 1\n";
constexpr const char* kName = "journal";
constexpr const char* kNewName = "journal.new";
constexpr std::size_t kPrefix = 18;  // "LLLLLLLL CCCCCCCC "
constexpr std::size_t kMaxFile = 4096UL * 1024 * 1024;
constexpr std::string_view kSave = "{\"save\":";
constexpr std::string_view kForget = "{\"forget\":";

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  int get() const { return fd_; }

 private:
  void reset() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd_;
};

std::uint32_t checksum(std::string_view text) {
  boost::crc_32_type crc;
  crc.process_bytes(text.data(), text.size());
  return crc.checksum();
}

std::string line_of(std::string_view json) {
  std::array<char, kPrefix + 1> prefix{};
  std::snprintf(prefix.data(), prefix.size(), "%08zx %08x ", json.size(), checksum(json));
  return prefix.data() + std::string(json) + '\n';
}

// REQUIRES: `record` can be read again.
std::string save_line(const Record& record) {
  return line_of(std::string(kSave) + record_to_json(record) + '}');
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<std::uint32_t> parse_hex(std::string_view digits) {
  std::uint32_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// Length and checksum that a line begins with.
struct Prefix {
  std::size_t length = 0;
  std::uint32_t crc = 0;
};
std::optional<Prefix> parse_prefix(std::string_view rest) {
  if (rest.size() < kPrefix || rest[8] != ' ' || rest[17] != ' ') return std::nullopt;
  const auto length = parse_hex(rest.substr(0, 8));
  const auto crc = parse_hex(rest.substr(9, 8));
  if (!length || !crc) return std::nullopt;
  return Prefix{*length, *crc};
}

// The JSON of the line at the beginning of `rest`, if all of it is there and as written.
std::optional<std::string_view> whole_entry(std::string_view rest) {
  const auto prefix = parse_prefix(rest);
  if (!prefix || rest.size() < kPrefix + prefix->length) return std::nullopt;
  const std::string_view json = rest.substr(kPrefix, prefix->length);
  const std::string_view after = rest.substr(kPrefix + prefix->length);
  // Without its newline, or with a zero in its place, the last line is whole all the same.
  const bool ended = after.empty() || after.front() == '\n' || after == std::string_view("\0", 1);
  if (!ended || checksum(json) != prefix->crc) return std::nullopt;
  return json;
}

// Is `rest`, which is no whole entry, the beginning of one that was being written when all stopped?
// A line is written with its newline at the end, so such a tail has none; or the file system had
// made room for it and the bytes never came: zeros.
bool torn(std::string_view rest) {
  if (rest.find('\n') != std::string_view::npos) return false;
  if (rest.ends_with(std::string_view("\0\0", 2))) return true;
  const auto prefix = parse_prefix(rest);
  return !prefix || rest.size() < kPrefix + prefix->length;
}

}  // namespace

class Journal::File {
 public:
  File(std::string folder, JournalOptions options)
      : folder_(std::move(folder)), path_(folder_ + "/" + kName), options_(std::move(options)) {}

  Result<void> open() {
    if (auto locked = lock_folder(); !locked) return locked;
    ::unlinkat(folder_fd_.get(), kNewName, 0);  // of a daemon that was killed while it wrote it
    file_ = Fd(::openat(folder_fd_.get(), kName, O_RDWR | O_APPEND | O_CLOEXEC));
    rewrite_above_ = options_.compact_above;
    if (file_.get() >= 0) return recover();
    if (errno != ENOENT) return os_error(path_, errno);
    return rewrite();
  }

  const std::vector<Record>& records() const { return records_; }

  Result<void> save(const Record& record) {
    // One that cannot be read again would keep the daemon from starting.
    const auto read_again = record_from_json(record_to_json(record));
    if (!read_again || read_again->job != record.job) {
      return Error{Errc::invalid_argument,
                   path_ + ": a job's record cannot be kept: " +
                       (read_again ? "its name is not UTF-8" : read_again.error().detail)};
    }
    return write(save_line(record), [&record](auto& records) { put(records, record); });
  }

  Result<void> forget(const std::string& job) {
    const auto at = place(records_, job);
    if (at == records_.end() || at->job != job) return {};
    return write(line_of(std::string(kForget) + quoted(job) + '}'),
                 [&job](auto& records) { remove(records, job); });
  }

 private:
  static std::vector<Record>::iterator place(std::vector<Record>& records, const std::string& job) {
    return std::lower_bound(records.begin(), records.end(), job,
                            [](const Record& r, const std::string& name) { return r.job < name; });
  }
  static void put(std::vector<Record>& records, Record record) {
    const auto at = place(records, record.job);
    if (at != records.end() && at->job == record.job) {
      *at = std::move(record);
    } else {
      records.insert(at, std::move(record));
    }
  }
  static void remove(std::vector<Record>& records, const std::string& job) {
    const auto at = place(records, job);
    if (at != records.end() && at->job == job) records.erase(at);
  }

  // 0, or the errno that a test wants instead of the call.
  int step(std::string_view name) const {
    return options_.interfere ? options_.interfere(name) : 0;
  }

  Result<void> lock_folder() {
    if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) return os_error(folder_, errno);
    folder_fd_ = Fd(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder_fd_.get() < 0) return os_error(folder_, errno);
    if (::flock(folder_fd_.get(), LOCK_EX | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK) return os_error(folder_, errno);
    return Error{Errc::io, folder_ +
                               ": another distrund that is still running has its state there; give "
                               "each its own folder, or stop that one first"};
  }

  // ---- reading ---------------------------------------------------------------------------------

  Result<void> recover() {
    auto text = read_all();
    if (!text) return text.error();
    if (!text->starts_with(kHeader)) return without_header(*text);
    std::size_t at = kHeader.size();
    int line = 2;
    while (at < text->size()) {
      const std::string_view rest = std::string_view(*text).substr(at);
      const auto json = whole_entry(rest);
      if (!json) {
        if (!torn(rest)) return damaged(line, at);
        return cut_off(at, text->size());
      }
      if (auto applied = apply(*json, line, at); !applied) return applied;
      at += kPrefix + json->size() + 1;
      ++line;
    }
    size_ = at;
    return *text == kHeader || text->ends_with('\n') ? Result<void>() : end_line();
  }

  Result<std::string> read_all() const {
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) return os_error(path_, errno);
    const auto size = static_cast<std::size_t>(status.st_size);
    if (!S_ISREG(status.st_mode)) return Error{Errc::io, path_ + ": not a regular file"};
    if (size > kMaxFile) return Error{Errc::limit, path_ + ": larger than 4 GiB; no journal is"};
    std::string text(size, '\0');
    for (std::size_t at = 0; at < size;) {
      const ssize_t n = ::pread(file_.get(), text.data() + at, size - at, static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return os_error(path_, errno);
      if (n == 0) return Error{Errc::io, path_ + ": became shorter while it was read"};
      at += static_cast<std::size_t>(n);
    }
    return text;
  }

  Result<void> without_header(const std::string& text) {
    if (kHeader.starts_with(text)) return cut_off(0, text.size());
    if (text.starts_with(kMagic)) {
      return Error{Errc::unsupported,
                   path_ +
                       ": written by another version of distrund, or damaged in "
                       "its first line; this one reads format 1. Start that "
                       "version, or move the file away if none of its jobs runs"};
    }
    return Error{Errc::protocol, path_ +
                                     ": not a journal of distrund, or damaged in its first line; "
                                     "give another --state folder, or restore the file"};
  }

  Error damaged(int line, std::size_t at) const {
    const std::string offset = std::to_string(at);
    return Error{
        Errc::protocol,
        path_ + ": line " + std::to_string(line) + " (at byte " + offset +
            ") is not as it was written, and later ones may depend on it: the disk is "
            "damaged or somebody changed the file. Restore it from a copy; or, if no job of "
            "it runs any more, move it away; or keep what stands before the damage: "
            "truncate -s " +
            offset + " " + path_};
  }

  Result<void> apply(std::string_view json, int line, std::size_t at) {
    if (json.starts_with(kSave) && json.ends_with('}')) {
      json.remove_prefix(kSave.size());
      json.remove_suffix(1);
      auto record = record_from_json(json);
      if (!record) return not_understood(line, record.error().detail);
      put(records_, std::move(*record));
      return {};
    }
    if (json.starts_with(kForget) && json.ends_with('}')) {
      json.remove_prefix(kForget.size());
      json.remove_suffix(1);
      const auto job = nlohmann::json::parse(json, nullptr, false);
      if (!job.is_string()) return damaged(line, at);
      remove(records_, job.get<std::string>());
      return {};
    }
    return not_understood(line, "neither save nor forget");
  }

  Error not_understood(int line, const std::string& why) const {
    return Error{Errc::unsupported, path_ + ": line " + std::to_string(line) +
                                        " is whole but not understood (" + why +
                                        "); was it written by another version of distrund?"};
  }

  Result<void> cut_off(std::size_t at, std::size_t size) {
    log::warn(path_ + ": its last line was not written to the end; cut off at byte " +
              std::to_string(at) + " of " + std::to_string(size) +
              ". Nothing that was promised is lost");
    if (at < kHeader.size()) return rewrite();
    if (::ftruncate(file_.get(), static_cast<off_t>(at)) != 0 || ::fdatasync(file_.get()) != 0) {
      return os_error(path_, errno);
    }
    size_ = at;
    return {};
  }

  // The last line is whole but for its newline.
  Result<void> end_line() {
    size_ -= 1;
    if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) return os_error(path_, errno);
    return append("\n");
  }

  // ---- writing ---------------------------------------------------------------------------------

  Result<void> write(const std::string& line,
                     const std::function<void(std::vector<Record>&)>& change) {
    if (doubtful_) {
      std::vector<Record> before = records_;
      change(records_);
      auto written = rewrite();
      if (!written) records_.swap(before);
      return written;
    }
    if (auto appended = append(line); !appended) return appended;
    change(records_);
    if (size_ > rewrite_above_) compact();
    return {};
  }

  Result<void> append(std::string_view line) {
    auto written = write_all(file_, line);
    if (written) written = sync(file_, "fdatasync");
    if (written) {
      size_ += line.size();
      return {};
    }
    // What is on the disk now is only sure in a file that was written anew.
    doubtful_ = true;
    if (step("ftruncate") == 0 && ::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) {
      log::warn(os_error(path_ + ": cannot take back what was written in part", errno).detail);
    }
    return written;
  }

  void compact() {
    const std::size_t before = size_;
    const auto written = rewrite();
    if (written) {
      log::debug(path_ + ": written anew",
                 {{"bytes_before", std::to_string(before)}, {"bytes", std::to_string(size_)}});
      return;
    }
    rewrite_above_ = size_ * 2;  // not again at every save
    log::warn("the journal grows, because it cannot be written anew: " + written.error().detail);
  }

  // All records into a new file, which then takes the place of this one.
  Result<void> rewrite() {
    std::string text(kHeader);
    for (const Record& record : records_) text += save_line(record);
    const std::string path = folder_ + "/" + kNewName;
    if (const int error = step("open")) return os_error(path, error);
    Fd file(::openat(folder_fd_.get(), kNewName, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC,
                     0600));
    if (file.get() < 0) return os_error(path, errno);
    if (auto written = write_all(file, text); !written) return written;
    if (auto synced = sync(file, "fsync"); !synced) return synced;
    if (const int error = step("rename")) return os_error(path, error);
    if (::renameat(folder_fd_.get(), kNewName, folder_fd_.get(), kName) != 0) {
      return os_error(path, errno);
    }
    file_ = std::move(file);
    size_ = text.size();
    rewrite_above_ = std::max(options_.compact_above, 4 * size_);
    // Until the folder is on the disk, the old file could come back.
    auto synced = sync(folder_fd_, "fsync of the folder");
    doubtful_ = !synced;
    return synced;
  }

  Result<void> write_all(const Fd& file, std::string_view text) const {
    if (const int error = step("write")) return os_error(path_, error);
    while (!text.empty()) {
      const ssize_t n = ::write(file.get(), text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return os_error(path_, errno);
      text.remove_prefix(static_cast<std::size_t>(n));
    }
    return {};
  }

  Result<void> sync(const Fd& file, std::string_view name) const {
    if (const int error = step(name)) return os_error(path_, error);
    const int failed = name == "fdatasync" ? ::fdatasync(file.get()) : ::fsync(file.get());
    if (failed != 0) return os_error(path_, errno);
    return {};
  }

  const std::string folder_;
  const std::string path_;
  const JournalOptions options_;
  Fd folder_fd_;  // holds the lock
  Fd file_;
  std::size_t size_ = 0;  // of what is sure
  std::size_t rewrite_above_ = 0;
  bool doubtful_ = false;  // the file must be written anew before it can be relied upon
  std::vector<Record> records_;
};

Journal::Journal(std::unique_ptr<File> file) : file_(std::move(file)) {}
Journal::~Journal() = default;

Result<std::unique_ptr<Journal>> Journal::open(const std::string& folder, JournalOptions options) {
  auto file = std::make_unique<File>(folder, std::move(options));
  if (auto opened = file->open(); !opened) return opened.error();
  return std::unique_ptr<Journal>(new Journal(std::move(file)));
}

const std::vector<Record>& Journal::records() const {
  return file_->records();
}
Result<void> Journal::save(const Record& record) {
  return file_->save(record);
}
Result<void> Journal::forget(const std::string& job) {
  return file_->forget(job);
}

}  // namespace distrun::rendezvous
