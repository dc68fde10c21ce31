// GroupOptions::init_method, read: where the ranks meet, and as which of how many.
#pragma once

#include "runtime/worker/environment.h"
#include <distrun/process_group.h>

#include <cstdint>
#include <memory>
#include <string>

namespace distrun {

struct Meeting {
  enum class Kind { tcp, file };
  Kind kind = Kind::tcp;
  std::string host;
  std::uint16_t port = 0;
  std::string path;
  int rank = 0;
  int world_size = 1;
  int attempt = 0;  // of the job
};

// Throws DistArgumentError or DistUnsupportedError.
Meeting meeting_of(const GroupOptions& options, const Lookup& variable);

std::shared_ptr<Store> open_store(const Meeting& meeting, Timeout timeout);

}  // namespace distrun
