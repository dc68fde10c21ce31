// FileStore on disk: records "u32 key length, key, u32 value length, value", only ever appended;
// the last record of a key wins, and one whose key begins with "-" deletes the rest of that name.
// Users' keys have "/" in front, the store's own ("refcount/", "cleanup/") have not.
//
//   every call:  open, flock (shared to read, exclusive to write), read what is new, append, close
#include "runtime/base/result.h"
#include "runtime/worker/deadline.h"
#include "runtime/worker/stored_number.h"
#include <distrun/store.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace distrun {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(10);

// Above these a file is not one of ours.  PyTorch's own store has no limits.
constexpr std::uint32_t kKeyMax = 1 << 20;
constexpr std::uint32_t kValueMax = 1 << 30;

const std::string kRefCount = "refcount/";
const std::string kCleanUp = "cleanup/";

void put_u32_and_bytes(std::string& out, std::string_view bytes) {
  const auto size = static_cast<std::uint32_t>(bytes.size());
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out.append(bytes);
}

std::string record(std::string_view key, std::string_view value) {
  std::string out;
  put_u32_and_bytes(out, key);
  put_u32_and_bytes(out, value);
  return out;
}

// Locks are held for microseconds; a call with a shorter timeout than this still looks once.
constexpr auto kPatience = std::chrono::seconds(1);

TimePoint lock_deadline(Timeout timeout) {
  return deadline_after(std::max<Timeout>(timeout, kPatience), "FileStore");
}

enum class Lock { shared, exclusive };

// An open, locked file.
class LockedFile {
 public:
  LockedFile() = default;
  explicit LockedFile(int fd) : fd_(fd) {}
  LockedFile(LockedFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~LockedFile() {
    if (fd_ >= 0) ::close(fd_);  // closing unlocks
  }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace

// What the clones of one store share.  It is on the file's books from birth to death.
class FileStore::File {
 public:
  File(std::string path, int world_size) : path_(std::move(path)), world_size_(world_size) {
    writing(lock_deadline(kPatience), O_CREAT, [this](const Table&) {
      return record(kRefCount, std::to_string(add_to_stored(kRefCount, value_of(kRefCount), 1)));
    });
  }
  ~File() {
    try {
      retire();
    } catch (const DistError&) {
      // Nobody to tell: the file stays, which harms nobody.
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }

  // Runs `read` with the shared lock held, the table up to date.  No file: the table is empty.
  template <class Read>
  auto reading(TimePoint deadline, Read read) {
    const std::lock_guard lock(mutex_);
    const LockedFile file = open(Lock::shared, O_RDONLY, deadline);
    refresh(file);
    return read(table_);
  }

  // Runs `decide` with the exclusive lock held; it returns the bytes to append.
  template <class Decide>
  void writing(TimePoint deadline, int create, Decide decide) {
    const std::lock_guard lock(mutex_);
    const LockedFile file = open(Lock::exclusive, O_RDWR | create, deadline);
    refresh(file);
    const std::string bytes = decide(table_);
    if (file.fd() >= 0 && !bytes.empty()) append(file, bytes);
  }

  // Waits until all keys are there, then runs `read` on the same state.
  template <class Read>
  void poll(const std::vector<std::string>& keys, Timeout timeout, Read read) {
    const TimePoint deadline = deadline_after(timeout, "wait");
    std::string missing;
    const auto look = [&](const Table& table) {
      missing.clear();
      for (const std::string& key : keys)
        if (!table.contains("/" + key)) missing += (missing.empty() ? "" : ", ") + key;
      if (missing.empty()) read(table);
      return missing.empty();
    };
    while (!reading(std::max(deadline, lock_deadline(kPatience)), look)) {
      if (Clock::now() >= deadline)
        throw DistTimeoutError("FileStore " + path_ + ": wait timeout after " + to_string(timeout) +
                               ", keys: " + missing);
      std::this_thread::sleep_until(std::min(deadline, Clock::now() + kPollInterval));
    }
  }

 private:
  using Table = std::map<std::string, std::string>;

  // Takes one object off the books, and the file away if it was the last.
  void retire() {
    const std::lock_guard lock(mutex_);
    const LockedFile file = open(Lock::exclusive, O_RDWR, lock_deadline(kPatience));
    if (file.fd() < 0) return;
    refresh(file);
    const std::int64_t gone = add_to_stored(kCleanUp, value_of(kCleanUp), 1);
    const std::int64_t left = add_to_stored(kRefCount, value_of(kRefCount), -1);
    append(file, record(kCleanUp, std::to_string(gone)) + record(kRefCount, std::to_string(left)));
    // Still locked: nobody can come in between the count and the removal.
    if (left == 0 && world_size_ >= 0 && gone >= world_size_) ::unlink(path_.c_str());
  }

  // No file (and none wanted): fd() is -1.
  LockedFile open(Lock lock, int flags, TimePoint deadline) {
    for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, kPollInterval)) {
      LockedFile file(::open(path_.c_str(), flags | O_CLOEXEC, 0644));
      if (file.fd() < 0) {
        if (errno == ENOENT && (flags & O_CREAT) == 0) return file;
        if (errno == EINTR) continue;
        throw DistStoreError("FileStore: " + os_error("open " + path_, errno).detail);
      }
      const int how = (lock == Lock::shared ? LOCK_SH : LOCK_EX) | LOCK_NB;
      if (::flock(file.fd(), how) == 0) {
        // It may have been removed, or replaced, between the opening and the lock.
        struct stat here {
        }, there{};
        if (::fstat(file.fd(), &here) == 0 && ::stat(path_.c_str(), &there) == 0 &&
            here.st_ino == there.st_ino && here.st_dev == there.st_dev)
          return file;
      } else if (errno != EWOULDBLOCK && errno != EINTR) {
        throw DistStoreError("FileStore: " + os_error("flock " + path_, errno).detail);
      }
      if (Clock::now() + pause > deadline)
        throw DistTimeoutError("FileStore " + path_ + ": another process held its lock too long");
      std::this_thread::sleep_for(pause);
    }
  }

  // Reads what was appended since the last time.  A torn record at the end is left for later.
  void refresh(const LockedFile& file) {
    struct stat now {};
    if (file.fd() >= 0 && ::fstat(file.fd(), &now) != 0)
      throw DistStoreError("FileStore: " + os_error("fstat " + path_, errno).detail);
    if (file.fd() < 0 || now.st_ino != inode_ || now.st_size < offset_) {
      table_.clear();
      offset_ = 0;
      inode_ = now.st_ino;
    }
    if (file.fd() < 0) return;
    std::string bytes(static_cast<std::size_t>(now.st_size - offset_), '\0');
    for (std::size_t have = 0; have < bytes.size();) {
      const ssize_t n = ::pread(file.fd(), bytes.data() + have, bytes.size() - have,
                                offset_ + static_cast<off_t>(have));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw DistStoreError("FileStore: " + os_error("read " + path_, errno).detail);
      if (n == 0) bytes.resize(have);
      have += static_cast<std::size_t>(n);
    }
    std::string_view rest = bytes;
    while (auto whole = next_record(rest)) {
      rest.remove_prefix(whole->size);
      offset_ += static_cast<off_t>(whole->size);
      if (whole->key.starts_with('-'))
        table_.erase(std::string(whole->key.substr(1)));
      else
        table_[std::string(whole->key)] = whole->value;
    }
    torn_ = !rest.empty();
  }

  struct Record {
    std::string_view key;
    std::string_view value;
    std::size_t size;
  };

  // nullopt: not whole.  Throws if these are not the bytes of a store.
  std::optional<Record> next_record(std::string_view bytes) const {
    std::string_view rest = bytes;
    const auto blob = [&](std::uint32_t limit) -> std::optional<std::string_view> {
      std::uint32_t size = 0;
      if (rest.size() < sizeof size) return std::nullopt;
      std::memcpy(&size, rest.data(), sizeof size);
      if (size > limit) refuse("a length of " + std::to_string(size));
      rest.remove_prefix(sizeof size);
      if (rest.size() < size) return std::nullopt;
      const std::string_view body = rest.substr(0, size);
      rest.remove_prefix(size);
      return body;
    };
    const auto key = blob(kKeyMax);
    if (!key) return std::nullopt;
    if (!key->starts_with('/') && !key->starts_with('-') && *key != kRefCount && *key != kCleanUp)
      refuse("a key that begins with neither \"/\" nor \"-\"");
    const auto value = blob(kValueMax);
    if (!value) return std::nullopt;
    return Record{*key, *value, bytes.size() - rest.size()};
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw DistStoreError("FileStore: " + path_ + " is not the file of a store: " + what +
                         " at offset " + std::to_string(offset_) +
                         "; name another file, or remove this one");
  }

  // Holding the exclusive lock, so a torn record is of a writer that is gone: cut it off.
  void append(const LockedFile& file, std::string_view bytes) {
    if (torn_ && ::ftruncate(file.fd(), offset_) != 0)
      throw DistStoreError("FileStore: " + os_error("truncate " + path_, errno).detail);
    torn_ = false;
    for (off_t at = offset_; !bytes.empty();) {
      const ssize_t n = ::pwrite(file.fd(), bytes.data(), bytes.size(), at);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const Error error = os_error("write " + path_, errno);
        // Leaves no half of a record behind, if the disk lets us.
        static_cast<void>(::ftruncate(file.fd(), offset_));
        throw DistStoreError("FileStore: " + error.detail);
      }
      at += n;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    refresh(file);
  }

  std::string value_of(const std::string& key) const {
    const auto found = table_.find(key);
    return found == table_.end() ? "" : found->second;
  }

  const std::string path_;
  const int world_size_;
  std::mutex mutex_;
  Table table_;       // with "/" in front of users' keys
  off_t offset_ = 0;  // end of the last whole record
  ino_t inode_ = 0;
  bool torn_ = false;
};

FileStore::FileStore(std::string path, int world_size, Timeout timeout)
    : Store(timeout), file_(std::make_shared<File>(std::move(path), world_size)) {}

FileStore::FileStore(std::shared_ptr<File> file, Timeout timeout)
    : Store(timeout), file_(std::move(file)) {}

FileStore::~FileStore() = default;

const std::string& FileStore::path() const {
  return file_->path();
}

std::string FileStore::description() const {
  return "FileStore " + path();
}

void FileStore::set(const std::string& key, std::string_view value) {
  file_->writing(lock_deadline(timeout()), O_CREAT,
                 [&](const auto&) { return record("/" + key, value); });
}

std::string FileStore::get(const std::string& key) {
  std::string value;
  file_->poll({key}, timeout(), [&](const auto& table) { value = table.at("/" + key); });
  return value;
}

std::int64_t FileStore::add(const std::string& key, std::int64_t delta) {
  std::int64_t sum = 0;
  file_->writing(lock_deadline(timeout()), O_CREAT, [&](const auto& table) {
    const auto old = table.find("/" + key);
    sum = add_to_stored(key, old == table.end() ? "" : old->second, delta);
    return record("/" + key, std::to_string(sum));
  });
  return sum;
}

bool FileStore::check(const std::vector<std::string>& keys) {
  return file_->reading(lock_deadline(timeout()), [&](const auto& table) {
    return std::all_of(keys.begin(), keys.end(),
                       [&](const auto& key) { return table.contains("/" + key); });
  });
}

std::string FileStore::compare_set(const std::string& key, std::string_view expected,
                                   std::string_view desired) {
  std::string result;
  file_->writing(lock_deadline(timeout()), O_CREAT, [&](const auto& table) {
    const auto old = table.find("/" + key);
    const std::string_view now = old == table.end() ? std::string_view() : old->second;
    if (now == expected) {
      result = desired;
      return record("/" + key, desired);
    }
    result = old == table.end() ? expected : now;
    return std::string();
  });
  return result;
}

bool FileStore::delete_key(const std::string& key) {
  file_->writing(lock_deadline(timeout()), 0, [&](const auto&) { return record("-/" + key, ""); });
  return true;
}

void FileStore::wait(const std::vector<std::string>& keys, Timeout timeout) {
  file_->poll(keys, timeout, [](const auto&) {});
}

std::int64_t FileStore::num_keys() {
  return file_->reading(lock_deadline(timeout()),
                        [](const auto& table) { return static_cast<std::int64_t>(table.size()); });
}

std::vector<std::string> FileStore::list_keys() {
  return file_->reading(lock_deadline(timeout()), [](const auto& table) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : table)
      if (key.starts_with('/')) keys.push_back(key.substr(1));
    return keys;
  });
}

void FileStore::append(const std::string& key, std::string_view value) {
  file_->writing(lock_deadline(timeout()), O_CREAT, [&](const auto& table) {
    const auto old = table.find("/" + key);
    return record("/" + key, (old == table.end() ? "" : old->second) + std::string(value));
  });
}

std::shared_ptr<Store> FileStore::clone() {
  return std::shared_ptr<Store>(new FileStore(file_, timeout()));
}

}  // namespace distrun
