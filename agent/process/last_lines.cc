#include "agent/process/last_lines.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace distrun::agent {
namespace {

bool unprintable(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t') || byte == 0x7f;
}

}  // namespace

std::string printable(std::string_view line) {
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const std::size_t overwritten = line.rfind('\r');
  if (overwritten != line.npos) line.remove_prefix(overwritten + 1);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string shown;
  shown.reserve(line.size());
  for (const char c : line) {
    if (!unprintable(c)) {
      shown += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    shown.append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
  }
  return shown;
}

void ByteTail::append(std::string_view bytes) {
  if (bytes.size() >= kTailBytes) {
    cut_ = cut_ || !kept_.empty() || bytes.size() > kTailBytes;
    kept_ = bytes.substr(bytes.size() - kTailBytes);
    return;
  }
  if (kept_.size() + bytes.size() > 2 * kTailBytes) {
    kept_.erase(0, kept_.size() - kTailBytes);
    cut_ = true;
  }
  kept_ += bytes;
}

std::string_view ByteTail::bytes() const {
  return kept_;
}

std::vector<std::string> last_lines(std::string_view bytes, bool cut) {
  std::vector<std::string> lines;
  if (!bytes.empty() && bytes.back() == '\n') bytes.remove_suffix(1);
  if (bytes.empty()) return lines;
  while (lines.size() < kTailLines) {
    const std::size_t newline = bytes.rfind('\n');
    const bool whole = newline != bytes.npos || !cut;
    if (whole || lines.empty()) {
      lines.push_back(printable(newline == bytes.npos ? bytes : bytes.substr(newline + 1)));
    }
    if (newline == bytes.npos) break;
    bytes = bytes.substr(0, newline);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

std::vector<std::string> last_lines_of_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  struct stat status {};
  std::string bytes;
  off_t begin = 0;
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    begin = std::max<off_t>(0, status.st_size - static_cast<off_t>(kTailBytes));
    bytes.resize(kTailBytes);
    const ssize_t n = ::pread(fd, bytes.data(), bytes.size(), begin);
    bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  }
  ::close(fd);
  return last_lines(bytes, begin > 0);
}

}  // namespace distrun::agent
