// The file: 16 bytes of name and version, u64 step, u64 number of parameters, the parameters, the
// momentum, and a u64 FNV-1a sum of all that.  Little-endian.
#include "apps/digits/checkpoint.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <unistd.h>

namespace digits {
namespace {

constexpr std::string_view kMagic = "digits state v1\n";
static_assert(kMagic.size() == 16);

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw std::runtime_error("checkpoint " + path + ": " + what);
}

std::string system_words() {
  return std::generic_category().message(errno);
}

std::uint64_t checksum(std::string_view bytes) {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const char byte : bytes) sum = (sum ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return sum;
}

void put(std::string& out, const void* data, std::size_t size) {
  out.append(static_cast<const char*>(data), size);
}

void write_and_sync(const std::string& part, std::string_view bytes) {
  const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail("cannot be written: " + system_words(), part);
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const std::string words = system_words();
      ::close(fd);
      fail("cannot be written: " + words, part);
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  const bool synced = ::fsync(fd) == 0;
  const std::string words = system_words();
  ::close(fd);
  if (!synced) fail("cannot be synced: " + words, part);
}

// The rename itself is on the disk only when its folder is.
void sync_folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

void save_checkpoint(const std::string& path, const TrainingState& state) {
  std::string bytes(kMagic);
  const std::uint64_t count = state.parameters.size();
  put(bytes, &state.step, sizeof state.step);
  put(bytes, &count, sizeof count);
  put(bytes, state.parameters.data(), count * sizeof(float));
  put(bytes, state.momentum.data(), count * sizeof(float));
  const std::uint64_t sum = checksum(bytes);
  put(bytes, &sum, sizeof sum);
  const std::string part = path + ".part";
  write_and_sync(part, bytes);
  if (::rename(part.c_str(), path.c_str()) != 0)
    fail("cannot be put in place: " + system_words(), path);
  sync_folder_of(path);
}

std::optional<TrainingState> load_checkpoint(const std::string& path, std::size_t parameters) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("cannot be read: " + system_words(), path);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  TrainingState state;
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  const std::size_t head = kMagic.size() + sizeof state.step + sizeof count;
  if (!std::string_view(bytes).starts_with(kMagic) || bytes.size() < head + sizeof sum)
    fail("is not one of this program's checkpoints; remove it, or name another file", path);
  std::memcpy(&state.step, bytes.data() + kMagic.size(), sizeof state.step);
  std::memcpy(&count, bytes.data() + kMagic.size() + sizeof state.step, sizeof count);
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  if (sum != checksum(std::string_view(bytes).substr(0, bytes.size() - sizeof sum)))
    fail("is damaged: the checksum is wrong; remove it to start from the beginning", path);
  if (count != parameters || bytes.size() != head + 2 * count * sizeof(float) + sizeof sum)
    fail("is of another network: " + std::to_string(count) + " parameters, not " +
             std::to_string(parameters),
         path);
  state.parameters.resize(count);
  state.momentum.resize(count);
  std::memcpy(state.parameters.data(), bytes.data() + head, count * sizeof(float));
  std::memcpy(state.momentum.data(), bytes.data() + head + count * sizeof(float),
              count * sizeof(float));
  return state;
}

}  // namespace digits
