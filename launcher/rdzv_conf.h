// RdzvConf: the text of --rdzv-conf, "key=value,key=value", as typed values.
//
// torchrun keeps keys it does not know and ignores them; here an unknown key is an error that lists
// the known ones, because a misspelt timeout is otherwise found hours later.  A key that is given
// twice keeps its last value.  A host is lost after keep_alive_interval * keep_alive_max_attempt of
// silence: 3 s, where torchrun says 15.
#pragma once

#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

struct RdzvConf {
  Duration timeout = std::chrono::seconds(900);
  Duration join_timeout = std::chrono::seconds(600);
  Duration last_call_timeout = std::chrono::seconds(30);
  Duration close_timeout = std::chrono::seconds(30);
  Duration heartbeat_timeout = std::chrono::seconds(5);
  Duration keep_alive_interval = std::chrono::seconds(1);  // torchrun: 5
  int keep_alive_max_attempt = 3;
  Duration read_timeout = std::chrono::seconds(60);
  std::optional<bool> is_host;     // nullopt: decided by who owns the endpoint's address
  std::string store_type = "tcp";  // or "file"
  std::string protocol = "http";   // or "https"
  std::string ssl_cert, ssl_cert_key, ca_cert;  // files, etcd-v2's names
  std::string cert, key, cacert;                // files, etcd's names
  std::string etcd_prefix = "/distrun/runs";    // torchrun: /torchelastic/p2p, in v2's own space
  std::string user, password;                   // etcd's
  int etcd_ttl = 2;                             // ours: seconds of the leader's lease

  // Ours.
  Duration rejoin_wait = std::chrono::milliseconds(100);  // hold for replacements after a loss
  Duration reattach_timeout = std::chrono::seconds(600);  // without a coordinator, workers going on
  std::string takeover = "majority";                      // or "any", "never"
  Duration takeover_timeout = std::chrono::seconds(30);   // without one that has a majority
  bool operator==(const RdzvConf&) const = default;
};

// Empty text gives the defaults.  The error's text does not name the option; the caller does.
Result<RdzvConf> parse_rdzv_conf(std::string_view text);

// In the order of the documentation.
std::vector<std::string_view> rdzv_conf_keys();

}  // namespace distrun::launcher
