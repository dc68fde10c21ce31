// Cluster: an etcd as its users name it, taken apart: "etcds://job@h1:2379,h2:2379/prefix".
#pragma once

#include "rendezvous/etcd/gateway/tls.h"
#include "runtime/base/result.h"

#include <cstdint>
#include <functional>
#include <optional>
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
std::string to_text(const std::vector<Endpoint>& endpoints);

struct Security {
  bool tls = false;
  TlsFiles files{};  // with tls
  std::string user;  // empty: etcd asks for none
  std::string password;
  bool operator==(const Security&) const = default;
};

struct Cluster {
  std::vector<Endpoint> endpoints;
  std::string prefix = "/distrun";  // of all keys
  Security security{};
  int ttl_seconds = 2;  // of the leader's lease (core/leader.h)
  bool operator==(const Cluster&) const = default;
};

inline constexpr std::size_t kMaxEndpoints = 16;

bool is_loopback(const Endpoint& endpoint);  // as far as the text says

bool is_etcd(std::string_view state);  // begins with "etcd:", or with what people may mean by it
// The errors name the part that cannot be, and say what can; they do not name the option.
Result<Cluster> parse_cluster(std::string_view text);  // "etcd://…", or "etcds://…" for TLS
Result<std::vector<Endpoint>> parse_endpoints(std::string_view text);  // "h1:2379,h2,h3"

// Where agents reach a replica, "10.0.0.1:29400": what it was told to say, or else where it
// listens. The error says what to do.
Result<std::string> advertised(std::string_view told, const std::string& address,
                               std::uint16_t port);

// What was left open, from the variables that etcdctl has, too: ETCDCTL_USER (NAME, or
// NAME:PASSWORD), ETCDCTL_PASSWORD, ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY.
using Variables = std::function<std::optional<std::string>(const char* name)>;
Result<void> complete(Security& security, const Variables& variables);

}  // namespace distrun::rendezvous::etcd
