// What a collective needs from whatever carries its bytes: messages between two ranks, in order.
// Gloo is one (gloo/gloo_transport.h), threads of one process another (tests).
//
// One thread at a time.  Memory that was handed to send or receive belongs to the transport until
// the Transfer is done, or the transport is closed.
#pragma once

#include "runtime/base/time.h"

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace distrun {

// The connection to one rank is gone.
struct PeerLost : std::runtime_error {
  PeerLost(int lost_peer, const std::string& why) : std::runtime_error(why), peer(lost_peer) {}
  int peer;
};

class Transfer {
 public:
  virtual ~Transfer() = default;
  // True: done.  False: the deadline passed; it may be asked again.  Throws PeerLost.
  virtual bool wait(TimePoint deadline) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual std::unique_ptr<Transfer> send(int peer, std::span<const std::byte> message) = 0;
  // The message may be shorter than the room.  A longer one may end the process (Gloo): agree on
  // sizes first.
  virtual std::unique_ptr<Transfer> receive(int peer, std::span<std::byte> room) = 0;

  // All connections: whoever waits for this rank is told at once.  Nothing is written to lent
  // memory after it returns.
  virtual void close() = 0;
};

}  // namespace distrun
