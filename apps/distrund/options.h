// distrund's command line.  The only file here that sees CLI11 is options.cc.
#pragma once

#include "rendezvous/etcd/gateway/tls.h"
#include "runtime/base/log.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace distrun::daemon {

// Exit statuses, as --help lists them; the launcher's (launcher/exit_code.h) mean the same.
inline constexpr int kStopped = 0;
inline constexpr int kUsage = 2;
inline constexpr int kInternal = 70;
inline constexpr int kCannotListen = 71;

struct Options {
  std::string host = "127.0.0.1";
  std::uint16_t port = 29400;
  std::string state;      // folder of the journal, or etcd://…; empty: none
  std::string advertise;  // with etcd: where agents reach this one; empty: host and port
  rendezvous::etcd::TlsFiles etcd_tls{};  // what is empty: from the environment
  int etcd_ttl = 2;                       // seconds of the leader's lease
  std::string events;                     // file; empty: none
  std::size_t max_memory = 4UL * 1024 * 1024 * 1024;
  log::Options log;
};

// Nullopt: there is nothing to serve; `exit_code` says how it went, and what was to be said
// (--help, --version, a usage error) has been said.
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace distrun::daemon
