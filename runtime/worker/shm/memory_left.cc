#include "runtime/worker/shm/memory_left.h"

#include <array>
#include <charconv>
#include <fstream>
#include <span>
#include <string_view>
#include <system_error>

namespace distrun::shm {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 1> kAvailable = {"MemAvailable:"};

// What it begins with; nullopt: with no number ("max", or there is no such file).
std::optional<std::uint64_t> number_of(std::string_view text) {
  const std::size_t digits = text.find_first_not_of(" \t");
  if (digits == std::string_view::npos) return std::nullopt;
  std::uint64_t value = 0;
  const auto result = std::from_chars(text.data() + digits, text.data() + text.size(), value);
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return number_of(line);
}

// The sum of the lines that begin with one of these names.
std::optional<std::uint64_t> sum_in(const fs::path& file, std::span<const std::string_view> names) {
  std::ifstream in(file);
  std::optional<std::uint64_t> sum;
  for (std::string line; std::getline(in, line);)
    for (const std::string_view name : names)
      if (line.starts_with(name))
        if (const auto value = number_of(std::string_view(line).substr(name.size())))
          sum = sum.value_or(0) + *value;
  return sum;
}

struct Files {
  const char* limit;
  const char* usage;
  std::array<std::string_view, 2> caches;  // of files: given back when it is needed
};
constexpr Files kV1{"memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                    {"total_inactive_file ", "total_active_file "}};
constexpr Files kV2{"memory.max", "memory.current", {"inactive_file ", "active_file "}};

std::optional<std::uint64_t> left_in(const fs::path& group, const Files& files) {
  const auto limit = number_in(group / files.limit);
  const auto usage = number_in(group / files.usage);
  // No limit is a number, too, in v1: the largest multiple of a page.
  if (!limit || !usage || *limit >= std::uint64_t{1} << 62) return std::nullopt;
  const std::uint64_t caches = sum_in(group / "memory.stat", files.caches).value_or(0);
  const std::uint64_t taken = *usage > caches ? *usage - caches : 0;
  return *limit > taken ? *limit - taken : 0;
}

// In a container the folder may be named as outside of it, and only its parents be there.
void look_upwards(std::optional<MemoryLeft>& least, const fs::path& root, fs::path group,
                  const Files& files) {
  for (;; group = group.parent_path()) {
    const auto left = left_in(root / group.relative_path(), files);
    if (left && (!least || *left < least->bytes))
      least = MemoryLeft{*left, "the control group " + group.string()};
    if (!group.has_relative_path()) return;
  }
}

}  // namespace

std::optional<MemoryLeft> memory_left(const fs::path& proc, const fs::path& groups) {
  std::optional<MemoryLeft> least;
  if (const auto kib = sum_in(proc / "meminfo", kAvailable); kib && *kib > 0)
    least = MemoryLeft{*kib * 1024, "this machine"};
  std::ifstream own(proc / "self/cgroup");
  for (std::string line; std::getline(own, line);) {  // "4:memory:/a/b" or "0::/a/b"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const fs::path group = fs::path("/") / line.substr(second + 1);
    if (controllers == ",,")
      look_upwards(least, groups, group, kV2);
    else if (controllers.find(",memory,") != std::string::npos)
      look_upwards(least, groups / "memory", group, kV1);
  }
  return least;
}

}  // namespace distrun::shm
