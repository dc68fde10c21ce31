#include "launcher/machine_files.h"

#include "launcher/text.h"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

namespace distrun::launcher {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
  constexpr std::size_t kMax = 262144;
  std::string contents;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return contents;
  char buffer[4096];
  while (contents.size() < kMax) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n <= 0) break;
    contents.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(fd);
  return contents;
}

bool exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> result;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    result.push_back(it->path().filename().string());
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<std::pair<int, std::string>> numbered(const std::string& folder,
                                                  std::string_view prefix) {
  std::vector<std::pair<int, std::string>> result;
  for (const std::string& name : entries(folder)) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view digits = std::string_view(name).substr(prefix.size());
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos)
      continue;
    if (const auto number = parse_int(digits, 0, 1'000'000)) {
      std::string path = folder;
      path += '/';
      path += name;
      result.emplace_back(static_cast<int>(*number), std::move(path));
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace distrun::launcher
