#include "runtime/worker/shm/host.h"

#include "runtime/worker/shm/segment.h"
#include "runtime/worker/shm/unix_socket.h"
#include <distrun/error.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace distrun::shm {
namespace {

constexpr std::string_view kNoHost = "-";  // not every store keeps empty values

Timeout until(TimePoint deadline) {
  return std::max(std::chrono::ceil<Timeout>(deadline - Clock::now()), Timeout(1));
}

std::string join(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

// Tries what the rest of this folder needs of the kernel; sandboxes forbid some of it.
std::string why_not_here() {
  try {
    Segment::create(kPage);
    listen_unix("distrun-" + random_hex(), 1);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::vector<int> split(const std::string& text) {
  std::vector<int> numbers;
  const char* at = text.c_str();
  for (char* end = nullptr; *at != '\0'; at = *end == ',' ? end + 1 : end) {
    numbers.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    if (end == at) return {};
  }
  return numbers;
}

}  // namespace

HostIdentity this_host() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  const char* const wanted = std::getenv("DISTRUN_SHARED_MEMORY");
  if (wanted != nullptr && std::string_view(wanted) == "0")
    return {"", "switched off by DISTRUN_SHARED_MEMORY=0"};
  if (std::string problem = why_not_here(); !problem.empty()) return {"", problem};
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  if (!std::getline(file, boot) || boot.empty()) return {"", "no /proc/sys/kernel/random/boot_id"};
  struct stat network {};
  if (::stat("/proc/self/ns/net", &network) != 0) return {"", "no /proc/self/ns/net"};
  return {boot + " net:" + std::to_string(network.st_dev) + ":" + std::to_string(network.st_ino) +
              " user:" + std::to_string(::geteuid()),
          ""};
}

std::vector<int> number_hosts(std::span<const std::string> identities) {
  std::vector<int> hosts;
  std::map<std::string, int> known;
  int next = 0;
  for (const std::string& identity : identities) {
    if (identity.empty()) {
      hosts.push_back(next++);
      continue;
    }
    const auto [entry, is_new] = known.try_emplace(identity, next);
    if (is_new) ++next;
    hosts.push_back(entry->second);
  }
  return hosts;
}

std::vector<std::string> collect(Store& store, const std::string& prefix, int size,
                                 TimePoint deadline) {
  std::vector<std::string> keys;
  for (int rank = 1; rank < size; ++rank) keys.push_back(prefix + std::to_string(rank));
  if (keys.empty()) return {};
  try {
    store.wait(keys, until(deadline));
  } catch (const DistTimeoutError&) {
    std::string late;
    std::optional<int> first;
    for (int rank = 1; rank < size; ++rank) {
      if (store.check({keys[static_cast<std::size_t>(rank - 1)]})) continue;
      if (!first) first = rank;
      late += (late.empty() ? "" : ", ") + std::to_string(rank);
    }
    throw DistTimeoutError("setting up shared memory: waited in vain for rank(s) " + late, first);
  }
  return store.multi_get(keys);
}

std::vector<int> exchange_hosts(Store& store, int rank, int size, const std::string& identity,
                                TimePoint deadline) {
  if (size == 1) return {0};
  if (rank == 0) {
    std::vector<std::string> identities = collect(store, "host/", size, deadline);
    identities.insert(identities.begin(), identity);
    for (std::string& text : identities)
      if (text == kNoHost) text.clear();
    std::vector<int> hosts = number_hosts(identities);
    store.set("hosts", join(hosts));
    return hosts;
  }
  store.set("host/" + std::to_string(rank),
            identity.empty() ? kNoHost : std::string_view(identity));
  store.wait({"hosts"}, until(deadline));
  std::vector<int> hosts = split(store.get("hosts"));
  if (hosts.size() != static_cast<std::size_t>(size))
    throw DistStoreError("key \"hosts\": rank 0 wrote " + std::to_string(hosts.size()) +
                         " hosts for " + std::to_string(size) + " ranks");
  return hosts;
}

}  // namespace distrun::shm
