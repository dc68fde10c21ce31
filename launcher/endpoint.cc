#include "launcher/endpoint.h"

#include "launcher/text.h"

#include <algorithm>

namespace distrun::launcher {
namespace {

constexpr std::size_t kHostMax = 253;  // the longest DNS name

bool is_host_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-' || c == ':' || c == '%';  // %: the zone of a link-local address
}

Error wrong(std::string_view what, std::string_view text) {
  return Error{Errc::invalid_argument, std::string(what) + ": " + quote(text)};
}

}  // namespace

Result<std::string> parse_host(std::string_view text) {
  std::string_view host = text;
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty() || host.size() > kHostMax ||
      !std::all_of(host.begin(), host.end(), is_host_char)) {
    return wrong("not a host name or address", text);
  }
  return std::string(host);
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  const std::string_view all = trim(text);
  std::string_view host = all;
  std::optional<std::uint16_t> port;
  const std::size_t colon = all.rfind(':');
  const bool bracketed = !all.empty() && all.back() == ']';
  if (colon != std::string_view::npos && !bracketed) {
    const std::string_view digits = all.substr(colon + 1);
    const auto number = parse_int(digits, 0, 65535);
    if (!number || digits.size() > 5 ||
        digits.find_first_not_of("0123456789") != std::string_view::npos) {
      return wrong("the port is not a number from 0 to 65535", text);
    }
    port = static_cast<std::uint16_t>(*number);
    host = all.substr(0, colon);
  }
  if (host.find(':') != std::string_view::npos && host.front() != '[') {
    return wrong("an IPv6 address stands in brackets, as in [2001:db8::5]:29400", text);
  }
  auto name = parse_host(host);
  if (!name) return wrong("not host[:port]", text);
  return Endpoint{std::move(*name), port};
}

}  // namespace distrun::launcher
