// JSON of etcd's v3 gateway: requests out, answers in.  Keys and values are base64, 64-bit numbers
// are strings, and what is false, zero or empty is left out.
#pragma once

#include "rendezvous/etcd/core/requests.h"
#include "runtime/base/result.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::rendezvous::etcd {

std::string path_of(const Request& request);
std::string body_of(const Request& request);
// Never throws.  The error says what is missing or cannot be.
Result<Answer> answer_from(const Request& request, std::string_view text);

inline constexpr std::string_view kLoginPath = "/v3/auth/authenticate";
std::string login_body(const std::string& user, const std::string& password);
Result<std::string> token_from(std::string_view text);

inline constexpr std::string_view kWatchPath = "/v3/watch";
std::string watch_body(const std::string& key, Revision from);
// One line of the stream.
struct WatchLine {
  std::vector<std::optional<KeyValue>> changes;  // nullopt: deleted
  std::optional<std::string> ended;              // no more will come, and why
};
Result<WatchLine> watch_line_from(std::string_view text);

// What etcd says went wrong, in its own words; the beginning of `body` if it is none of etcd's. One
// line of at most kMaxError bytes.
std::string error_from(std::string_view body);
bool is_error_of_etcd(std::string_view body);
inline constexpr std::size_t kMaxError = 200;

std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);

}  // namespace distrun::rendezvous::etcd
