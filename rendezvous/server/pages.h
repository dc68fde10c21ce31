// The pages that a coordinator serves over HTTP.
//
//   /status    the jobs as JSON (protocol/record_json.h)
//   /metrics   figures for Prometheus
#pragma once

#include "rendezvous/core/coordinator.h"
#include "rendezvous/server/http_session.h"
#include "runtime/base/time.h"

#include <cstddef>
#include <string_view>

namespace distrun::rendezvous {

// Of the server, at one moment.
struct Figures {
  std::size_t agents = 0;  // connections
  std::size_t store_connections = 0;
  std::size_t other_connections = 0;  // HTTP, not known yet, or on their way out
  std::size_t store_bytes = 0;
  std::size_t store_bytes_limit = 0;
};

HttpAnswer page_for(std::string_view target, const Coordinator& coordinator, const Figures& figures,
                    TimePoint now);

}  // namespace distrun::rendezvous
