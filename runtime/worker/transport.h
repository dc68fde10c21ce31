// What collectives and sends need from whatever carries their bytes: messages between two ranks, in
// order on each channel.  Gloo is one (gloo/gloo_transport.h), threads of one process another
// (tests).
//
// From any thread, if each channel to or from a rank is used by one at a time.  Memory that was
// handed to send or receive belongs to the transport until the Transfer is done, or the transport
// is closed.
#pragma once

#include "runtime/base/time.h"
#include "runtime/worker/call.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace distrun {

class Transfer {
 public:
  virtual ~Transfer() = default;
  // True: done.  False: the deadline passed; it may be asked again.  Throws PeerLost.
  virtual bool wait(TimePoint deadline) = 0;
  // Of a receive that is done: from whom.
  virtual int peer() const = 0;
};

using Channel = std::uint64_t;
inline constexpr Channel kCollectives = 0;

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Before a message to or from a rank that may not be connected yet (see who made the transport).
  // True: it is.  False: the deadline passed; it may be asked again.  Throws PeerLost.
  virtual bool reach(int /*peer*/, TimePoint /*deadline*/) { return true; }
  // Whether it is, without doing anything about it.  Throws PeerLost: it never will be.
  virtual bool connected(int /*peer*/) { return true; }

  virtual std::unique_ptr<Transfer> send(int peer, std::span<const std::byte> message,
                                         Channel channel = kCollectives) = 0;
  // The message may be shorter than the room.  A longer one may end the process (Gloo): agree on
  // sizes first.
  virtual std::unique_ptr<Transfer> receive(int peer, std::span<std::byte> room,
                                            Channel channel = kCollectives) = 0;
  // From whoever sends first.
  virtual std::unique_ptr<Transfer> receive_any(std::span<std::byte> room, Channel channel) = 0;

  // All connections: whoever waits for this rank is told at once.  Nothing is written to lent
  // memory after it returns.
  virtual void close() = 0;
};

}  // namespace distrun
