#include "rendezvous/etcd/cluster.h"

#include <algorithm>
#include <charconv>

namespace distrun::rendezvous::etcd {
namespace {

Error wrong(std::string_view what, std::string_view why) {
  return Error{Errc::invalid_argument, std::string(what) + ": " + std::string(why)};
}

// As it may stand in a message: without what may be a user and a password.
std::string without_user(std::string_view url) {
  const std::size_t at = url.rfind('@');
  if (at == std::string_view::npos) return std::string(url);
  const std::size_t scheme = url.find("://");
  const bool has_scheme = scheme != std::string_view::npos && scheme < at;
  return std::string(url.substr(0, has_scheme ? scheme + 3 : 0)) + "..." +
         std::string(url.substr(at));
}

Error wrong_url(std::string_view what, std::string_view why) {
  return wrong(without_user(what),
               std::string(why) + "; as in etcd://10.0.0.1:2379,10.0.0.2:2379/distrun");
}

Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port) {
  Endpoint endpoint;
  endpoint.port = default_port;
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
  const bool plain = std::all_of(endpoint.host.begin(), endpoint.host.end(),
                                 [](char c) { return c > ' ' && c <= '~'; });
  if (!plain) return wrong("an endpoint", "its host is no name and no address");
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

std::string to_text(const std::vector<Endpoint>& endpoints) {
  std::string text;
  for (const Endpoint& endpoint : endpoints) text += (text.empty() ? "" : ",") + to_text(endpoint);
  return text;
}

bool is_etcd(std::string_view state) {
  return state.starts_with("etcd:") || state.starts_with("etcds:") ||
         state.starts_with("http://") || state.starts_with("https://");
}

Result<std::vector<Endpoint>> parse_endpoints(std::string_view text) {
  std::vector<Endpoint> endpoints;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    auto endpoint = parse_endpoint(rest.substr(0, comma), Endpoint{}.port);
    if (!endpoint) return endpoint.error();
    endpoints.push_back(std::move(*endpoint));
    if (endpoints.size() > kMaxEndpoints) return wrong(text, "has more than 16 endpoints");
    if (comma == std::string_view::npos) return endpoints;
    rest.remove_prefix(comma + 1);
  }
}

Result<Cluster> parse_cluster(std::string_view text) {
  Cluster cluster;
  const std::size_t scheme = text.find("://");
  if (text.starts_with("etcds://")) {
    cluster.security.tls = true;
  } else if (!text.starts_with("etcd://")) {
    return wrong_url(text, "begins with etcd://, or with etcds:// if etcd speaks TLS");
  }
  std::string_view rest = text.substr(scheme + 3);
  if (rest.find_first_of("?#") != std::string_view::npos) return wrong_url(text, "has no options");
  const std::size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    std::string_view prefix = rest.substr(slash);
    if (prefix.find('@') != std::string_view::npos) {
      return wrong_url(text,
                       "a user's name with '/' is put into ETCDCTL_USER, and a prefix has no '@'");
    }
    rest = rest.substr(0, slash);
    while (prefix.ends_with('/')) prefix.remove_suffix(1);
    if (!prefix.empty()) cluster.prefix = prefix;
  }
  const std::size_t at = rest.rfind('@');
  if (at != std::string_view::npos) {
    const std::string_view user = rest.substr(0, at);
    if (user.find(':') != std::string_view::npos) {
      return wrong_url("a password",
                       "anybody can read command lines; put it into ETCDCTL_PASSWORD");
    }
    cluster.security.user = user;
    rest.remove_prefix(at + 1);
  }
  auto endpoints = parse_endpoints(rest);
  if (!endpoints) {
    return Error{endpoints.error().code,
                 endpoints.error().detail + "; as in etcd://10.0.0.1:2379,10.0.0.2:2379/distrun"};
  }
  cluster.endpoints = std::move(*endpoints);
  return cluster;
}

bool is_loopback(const Endpoint& endpoint) {
  return endpoint.host == "localhost" || endpoint.host == "::1" ||
         endpoint.host.starts_with("127.");
}

Result<std::string> advertised(std::string_view told, const std::string& address,
                               std::uint16_t port) {
  std::string text(told.empty() ? std::string_view(address) : told);
  const bool bare_v6 = !text.starts_with('[') && std::count(text.begin(), text.end(), ':') > 1;
  if (bare_v6) text = "[" + text + "]";
  auto endpoint = parse_endpoint(text, port);
  if (!endpoint) {
    return Error{endpoint.error().code,
                 "--advertise: " + endpoint.error().detail +
                     "; give ADDRESS or ADDRESS:PORT, [ADDRESS]:PORT for IPv6"};
  }
  if (endpoint->host == "0.0.0.0" || endpoint->host == "::") {
    if (!told.empty()) return wrong("--advertise: " + std::string(told), "nobody can go there");
    return wrong("--advertise is missing",
                 "with --state etcd://… and --host " + address +
                     " the other replicas cannot tell agents where this one is; give the address "
                     "at which agents reach it");
  }
  return to_text(*endpoint);
}

Result<void> complete(Security& security, const Variables& variables) {
  const auto fill = [&](std::string& field, const char* name) {
    if (field.empty()) field = variables(name).value_or("");
  };
  if (security.tls) {
    fill(security.files.ca, "ETCDCTL_CACERT");
    if (security.files.cert.empty() && security.files.key.empty()) {
      fill(security.files.cert, "ETCDCTL_CERT");
      fill(security.files.key, "ETCDCTL_KEY");
    }
  }
  if (security.user.empty()) {
    const std::string both = variables("ETCDCTL_USER").value_or("");
    const std::size_t colon = both.find(':');
    security.user = both.substr(0, colon);
    if (colon != std::string::npos) security.password = both.substr(colon + 1);
  }
  if (security.user.empty()) return {};
  fill(security.password, "ETCDCTL_PASSWORD");
  if (!security.password.empty()) return {};
  return wrong("etcd's user " + security.user, "has no password; put it into ETCDCTL_PASSWORD");
}

}  // namespace distrun::rendezvous::etcd
