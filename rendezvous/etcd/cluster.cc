#include "rendezvous/etcd/cluster.h"

#include <charconv>

namespace distrun::rendezvous::etcd {
namespace {

constexpr std::string_view kScheme = "etcd://";

Error wrong(std::string_view what, std::string_view why) {
  return Error{Errc::invalid_argument, "--state: " + std::string(what) + ": " + std::string(why) +
                                           "; as in etcd://10.0.0.1:2379,10.0.0.2:2379/distrun"};
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  Endpoint endpoint;
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return wrong(text, "a bracket is open");
    endpoint.host = text.substr(1, close - 1);
    port = text.substr(close + 1);
    if (!port.empty() && port.front() != ':') return wrong(text, "no port after the bracket");
  } else {
    const std::size_t colon = text.find(':');
    if (colon != std::string_view::npos && text.find(':', colon + 1) != std::string_view::npos) {
      return wrong(text, "an IPv6 address stands in brackets");
    }
    endpoint.host = text.substr(0, colon);
    if (colon != std::string_view::npos) port = text.substr(colon);
  }
  if (endpoint.host.empty()) return wrong(text.empty() ? "an endpoint" : text, "has no host");
  if (port.empty()) return endpoint;
  port.remove_prefix(1);
  const auto [end, fault] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (fault != std::errc() || end != port.data() + port.size() || endpoint.port == 0) {
    return wrong(text, "the port is not in 1..65535");
  }
  return endpoint;
}

}  // namespace

std::string to_text(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return (v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

bool is_etcd(std::string_view state) {
  return state.starts_with("etcd:") || state.starts_with("etcds:") ||
         state.starts_with("http://") || state.starts_with("https://");
}

Result<Cluster> parse_cluster(std::string_view text) {
  if (text.starts_with("etcds:") || text.starts_with("https:")) {
    return wrong(text,
                 "etcd with TLS cannot be used yet; reach it by a local TLS proxy, such as "
                 "etcd's own grpc-proxy or stunnel");
  }
  if (!text.starts_with(kScheme)) return wrong(text, "begins with etcd://");
  std::string_view rest = text.substr(kScheme.size());
  if (rest.find_first_of("?#") != std::string_view::npos) return wrong(text, "has no options");
  Cluster cluster;
  const std::size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    std::string_view prefix = rest.substr(slash);
    rest = rest.substr(0, slash);
    while (prefix.ends_with('/')) prefix.remove_suffix(1);
    if (!prefix.empty()) cluster.prefix = prefix;
  }
  if (rest.find('@') != std::string_view::npos) {
    return wrong("a user and password",
                 "cannot be used yet; give this etcd, or a proxy before it, "
                 "no authentication");
  }
  for (;;) {
    const std::size_t comma = rest.find(',');
    auto endpoint = parse_endpoint(rest.substr(0, comma));
    if (!endpoint) return endpoint.error();
    cluster.endpoints.push_back(std::move(*endpoint));
    if (cluster.endpoints.size() > kMaxEndpoints) return wrong(text, "has more than 16 endpoints");
    if (comma == std::string_view::npos) return cluster;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace distrun::rendezvous::etcd
