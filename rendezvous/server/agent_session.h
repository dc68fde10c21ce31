// AgentSession: one agent's connection.  Bytes in, messages out, and back.
//
//   greeting --"DRUN1\n"--> joining --Join--> joined
//       \---- too slow, another version, bytes or messages that are none ----/---> refused, closed
//
// What is wrong with an agent's bytes is said to it (Refused) before it is closed, and logged.
#pragma once

#include "rendezvous/core/messages.h"
#include "rendezvous/protocol/frame.h"
#include "rendezvous/server/connection.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

namespace distrun::rendezvous {

// Of what an agent has not read.
inline constexpr std::size_t kMaxUnsentBytes = 4UL * 1024 * 1024;

class AgentSession : public std::enable_shared_from_this<AgentSession> {
 public:
  struct Callbacks {
    // The first is a Join.
    std::function<void(AgentMessage message)> received;
    // It is gone.  Not after drop() or close().
    std::function<void()> closed;
  };
  // `join_within`: from start() to a whole Join.
  AgentSession(std::shared_ptr<Connection> connection, Duration join_within, Callbacks callbacks);

  // `first`: what has been read from the connection already.
  void start(std::string_view first);
  void send(const CoordinatorMessage& message);
  // Closes it once all that was sent is written.
  void drop();
  void close();

 private:
  void on_bytes(std::string_view bytes);
  void on_lost(const std::string& why);
  void read_messages();
  Result<void> take(std::string_view payload);
  void greet();
  void refuse(const Error& error);
  void end();

  std::shared_ptr<Connection> connection_;
  Duration join_within_;
  Callbacks callbacks_;
  FrameDecoder decoder_{kMaxAgentFrame};
  bool greeted_ = false;  // by us
  bool joined_ = false;
  bool over_ = false;
};

}  // namespace distrun::rendezvous
