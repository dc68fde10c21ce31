#include "launcher/rdzv_conf.h"

#include "launcher/text.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace distrun::launcher {
namespace {

constexpr int kSecondsMax = 365 * 24 * 3600;

// Empty: taken.  Else what the value should have been.
using Complaint = std::string_view;

Complaint seconds(Duration& field, std::string_view value) {
  const auto n = parse_int(value, 1, kSecondsMax);
  if (!n) return "not a whole number of seconds from 1 up";
  field = std::chrono::seconds(*n);
  return {};
}

Complaint fraction(Duration& field, std::string_view value, Duration least) {
  const auto time = parse_seconds(value);
  if (!time || *time < least) return "not a number of seconds, or too small";
  field = *time;
  return {};
}

Complaint one_of(std::string& field, std::string_view value, std::string_view a, std::string_view b,
                 Complaint otherwise) {
  if (value != a && value != b) return otherwise;
  field = value;
  return {};
}

Complaint takeover(std::string& field, std::string_view value) {
  if (value != "majority" && value != "any" && value != "never") {
    return "neither majority, any nor never";
  }
  field = value;
  return {};
}

Complaint text(std::string& field, std::string_view value) {
  field = value;
  return {};
}

Complaint boolean(std::optional<bool>& field, std::string_view value) {
  std::string lower(value);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto is = [&lower](std::string_view word) { return lower == word; };
  if (is("1") || is("true") || is("t") || is("yes") || is("y")) {
    field = true;
  } else if (is("0") || is("false") || is("f") || is("no") || is("n")) {
    field = false;
  } else {
    return "neither true nor false";
  }
  return {};
}

Complaint whole(int& field, std::string_view value, int least, int most, Complaint otherwise) {
  const auto n = parse_int(value, least, most);
  if (!n) return otherwise;
  field = static_cast<int>(*n);
  return {};
}

struct Key {
  std::string_view name;
  Complaint (*set)(RdzvConf&, std::string_view);
};

using C = RdzvConf;
using V = std::string_view;
constexpr std::array kKeys{
    Key{"timeout", [](C& c, V v) { return seconds(c.timeout, v); }},
    Key{"join_timeout", [](C& c, V v) { return seconds(c.join_timeout, v); }},
    Key{"last_call_timeout", [](C& c, V v) { return seconds(c.last_call_timeout, v); }},
    Key{"close_timeout", [](C& c, V v) { return seconds(c.close_timeout, v); }},
    Key{"heartbeat_timeout", [](C& c, V v) { return seconds(c.heartbeat_timeout, v); }},
    Key{"keep_alive_interval",
        [](C& c, V v) {
          return fraction(c.keep_alive_interval, v, std::chrono::milliseconds(10));
        }},
    Key{"keep_alive_max_attempt",
        [](C& c, V v) {
          return whole(c.keep_alive_max_attempt, v, 1, 10'000,
                       "not a whole number from 1 to 10000");
        }},
    Key{"is_host", [](C& c, V v) { return boolean(c.is_host, v); }},
    Key{"read_timeout", [](C& c, V v) { return seconds(c.read_timeout, v); }},
    Key{"store_type",
        [](C& c, V v) { return one_of(c.store_type, v, "tcp", "file", "neither tcp nor file"); }},
    Key{"protocol",
        [](C& c, V v) { return one_of(c.protocol, v, "http", "https", "neither http nor https"); }},
    Key{"ssl_cert", [](C& c, V v) { return text(c.ssl_cert, v); }},
    Key{"ssl_cert_key", [](C& c, V v) { return text(c.ssl_cert_key, v); }},
    Key{"ca_cert", [](C& c, V v) { return text(c.ca_cert, v); }},
    Key{"cert", [](C& c, V v) { return text(c.cert, v); }},
    Key{"key", [](C& c, V v) { return text(c.key, v); }},
    Key{"cacert", [](C& c, V v) { return text(c.cacert, v); }},
    Key{"etcd_prefix", [](C& c, V v) { return text(c.etcd_prefix, v); }},
    Key{"etcd_ttl",
        [](C& c, V v) {
          return whole(c.etcd_ttl, v, 2, 600, "not a whole number of seconds from 2 to 600");
        }},
    Key{"user", [](C& c, V v) { return text(c.user, v); }},
    Key{"password", [](C& c, V v) { return text(c.password, v); }},
    Key{"rejoin_wait", [](C& c, V v) { return fraction(c.rejoin_wait, v, Duration::zero()); }},
    Key{"reattach_timeout",
        [](C& c, V v) { return fraction(c.reattach_timeout, v, std::chrono::seconds(1)); }},
    Key{"takeover", [](C& c, V v) { return takeover(c.takeover, v); }},
    Key{"takeover_timeout",
        [](C& c, V v) { return fraction(c.takeover_timeout, v, std::chrono::seconds(5)); }},
};

Error wrong(std::string text) {
  return Error{Errc::invalid_argument, std::move(text)};
}

}  // namespace

std::vector<std::string_view> rdzv_conf_keys() {
  std::vector<std::string_view> names;
  names.reserve(kKeys.size());
  for (const Key& key : kKeys) names.push_back(key.name);
  return names;
}

Result<RdzvConf> parse_rdzv_conf(std::string_view text) {
  RdzvConf conf;
  if (trim(text).empty()) return conf;
  int number = 0;
  bool after_password = false;  // what follows may be the rest of one, and is not repeated
  for (const std::string_view part : split(text, ',')) {
    ++number;
    const std::size_t equals = part.find('=');
    const std::string_view name = trim(part.substr(0, equals));
    if (name.empty()) {
      return wrong("not a list such as join_timeout=600,is_host=true: part " +
                   std::to_string(number) + " of it has no name");
    }
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : trim(part.substr(equals + 1));
    const auto* key =
        std::find_if(kKeys.begin(), kKeys.end(), [name](const Key& k) { return k.name == name; });
    if (key == kKeys.end() && after_password) {
      return wrong("part " + std::to_string(number) +
                   ", after password, is no known key; a password with a comma can only be given "
                   "in ETCDCTL_PASSWORD");
    }
    if (key == kKeys.end()) {
      const std::string_view close = nearest(name, rdzv_conf_keys());
      return wrong("unknown key " + quote(name) +
                   (close.empty() ? "" : " (did you mean " + std::string(close) + "?)") +
                   "; the known ones are " + join(rdzv_conf_keys(), ", "));
    }
    if (value.empty()) return wrong(std::string(name) + " has no value");
    if (const Complaint complaint = key->set(conf, value); !complaint.empty()) {
      return wrong(std::string(name) + ": " + std::string(complaint) + ": " + quote(value));
    }
    after_password = after_password || name == "password";
  }
  return conf;
}

}  // namespace distrun::launcher
