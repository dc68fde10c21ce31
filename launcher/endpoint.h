// Endpoint: "host[:port]" of --rdzv-endpoint, taken apart.  An IPv6 address with a port stands in
// brackets, "[::1]:29400"; the brackets are not part of the host.  Nothing is looked up here.
#pragma once

#include "runtime/base/result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace distrun::launcher {

struct Endpoint {
  std::string host;
  std::optional<std::uint16_t> port;
  bool operator==(const Endpoint&) const = default;
};

// The error's text does not name the option; the caller does.
Result<Endpoint> parse_endpoint(std::string_view text);

// A host alone: a name, an IPv4 address, or an IPv6 address with or without brackets.
Result<std::string> parse_host(std::string_view text);

}  // namespace distrun::launcher
