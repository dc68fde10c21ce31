#include "agent/process/cgroup.h"

#include <algorithm>
#include <optional>

namespace distrun::agent {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    const std::size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == text.npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

bool lists(std::string_view comma_separated, std::string_view word) {
  const auto words = split(comma_separated, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

struct Memberships {
  std::optional<std::string> v1;
  std::optional<std::string> v2;
};

Memberships memberships(std::string_view controller, std::string_view proc_cgroup) {
  Memberships ours;
  for (const std::string_view line : split(proc_cgroup, '\n')) {  // "ID:CONTROLLERS:/path"
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) ours.v2 = line.substr(second + 1);
    if (lists(controllers, controller)) ours.v1 = line.substr(second + 1);
  }
  return ours;
}

// A mount may show only the part of the tree below `root` (mountinfo's word), while our path is
// told from the tree's own root.
std::string below(std::string_view root, std::string_view path) {
  const bool inside = root != "/" && path.starts_with(root) &&
                      (path.size() == root.size() || path[root.size()] == '/');
  if (inside) path.remove_prefix(root.size());
  return path == "/" ? std::string() : std::string(path);
}

}  // namespace

std::vector<std::string> Cgroup::folders() const {
  std::vector<std::string> found;
  std::string_view left = path;
  for (;;) {
    found.push_back(mount + std::string(left));
    if (left.empty()) return found;
    const std::size_t slash = left.rfind('/');
    left = left.substr(0, slash == left.npos ? 0 : slash);
  }
}

std::vector<Cgroup> find_cgroups(std::string_view controller, std::string_view proc_cgroup,
                                 std::string_view mountinfo) {
  const Memberships ours = memberships(controller, proc_cgroup);
  std::vector<Cgroup> found;
  for (const std::string_view line : split(mountinfo, '\n')) {
    // 30 23 0:26 ROOT MOUNTPOINT options… - TYPE SOURCE SUPEROPTIONS
    const std::size_t dash = line.find(" - ");
    if (dash == line.npos) continue;
    const auto left = split(line.substr(0, dash), ' ');
    const auto right = split(line.substr(dash + 3), ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    if (right[0] == "cgroup2" && ours.v2) {
      found.push_back({std::string(left[4]), below(left[3], *ours.v2), true});
    } else if (right[0] == "cgroup" && ours.v1 && lists(right[2], controller)) {
      found.push_back({std::string(left[4]), below(left[3], *ours.v1), false});
    }
  }
  std::stable_partition(found.begin(), found.end(), [](const Cgroup& one) { return !one.v2; });
  return found;
}

}  // namespace distrun::agent
