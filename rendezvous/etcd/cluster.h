// Cluster: "etcd://h1:2379,h2:2379,h3:2379/prefix", taken apart.
#pragma once

#include "runtime/base/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::rendezvous::etcd {

struct Endpoint {
  std::string host;  // a name is looked up at each connection
  std::uint16_t port = 2379;
  bool operator==(const Endpoint&) const = default;
};
std::string to_text(const Endpoint& endpoint);  // "[::1]:2379"

struct Cluster {
  std::vector<Endpoint> endpoints;
  std::string prefix = "/distrun";  // of all keys
  bool operator==(const Cluster&) const = default;
};

inline constexpr std::size_t kMaxEndpoints = 16;

bool is_etcd(std::string_view state);  // begins with "etcd:", or with what people may mean by it
// The error names the part that cannot be, and says what can.
Result<Cluster> parse_cluster(std::string_view text);

}  // namespace distrun::rendezvous::etcd
