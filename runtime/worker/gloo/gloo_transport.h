// Gloo as the carrier of messages: its TCP transport, one thread of its own per group.
//
// Only the transport is used.  Gloo's collectives bound each single wait instead of the whole
// operation, close all connections when one wait ends in vain, name no rank, and end the process
// from their own thread when sizes differ; runtime/worker/collectives.h does none of that.
#pragma once

#include "runtime/base/time.h"
#include "runtime/worker/transport.h"
#include <distrun/store.h>

#include <functional>
#include <memory>
#include <string>

namespace distrun {

struct GlooAddress {
  std::string interfaces;  // if not empty: the first of these that can be used
  std::string variable;    // where they were named
  std::string address;     // else this one
};

// Connects every rank with every other.  `hear` is called now and then while others are waited for,
// and may throw.  Throws DistError.
std::unique_ptr<Transport> connect_gloo(Store& store, int rank, int size,
                                        const GlooAddress& address, TimePoint deadline,
                                        const std::function<void()>& hear);

// Connects two ranks when one of them reaches for the other (Transport::reach), whatever that one
// does meanwhile; `store` has to last.  `alive`: whether a rank's process still runs.
std::unique_ptr<Transport> connect_gloo_when_used(std::shared_ptr<Store> store, int rank, int size,
                                                  const GlooAddress& address,
                                                  std::function<bool(int rank)> alive);

}  // namespace distrun
