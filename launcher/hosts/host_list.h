// Host lists as people type them: "h1,h2:8,ann@h3,[fd77::4]:2", and files of them, one host a line,
// with ":8" or Open MPI's "slots=8", and comments.
//
// A host is a name, an IPv4 address, or an IPv6 address in brackets, perhaps with a user before it.
// Pure; nothing is looked up. What is there twice is refused: two agents of one job on a host would
// fight for its devices.
#pragma once

#include "runtime/base/result.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

// One ssh client runs for each.
inline constexpr std::size_t kHostsMax = 1024;

struct Host {
  std::string name;  // as ssh takes it: user@host; an IPv6 address without brackets
  std::optional<int> workers;
  bool operator==(const Host&) const = default;
};

// The host alone, without the user.
std::string_view address_of(const Host& host);

// The error's text does not name the option or file; the caller does.
Result<std::vector<Host>> parse_hosts(std::string_view text);
Result<std::vector<Host>> parse_hostfile(std::string_view text);

}  // namespace distrun::launcher
