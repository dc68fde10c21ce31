// RendezvousClient: where the agent's Join and Leave go, and where Welcome comes from.
//
// One node needs no other: local_rendezvous.h.  A client of a coordinator on another machine
// implements the same three verbs.
#pragma once

#include "agent/core/events.h"

#include <functional>

namespace distrun::agent {

class RendezvousClient {
 public:
  // Where answers (Welcome, RoundFailed, Disband) go: from within join() or later, from the loop.
  using Answer = std::function<void(Event)>;

  virtual ~RendezvousClient() = default;
  virtual void on_answer(Answer answer) = 0;
  virtual void join(const Join& join) = 0;
  virtual void leave(const Leave& leave) = 0;
};

}  // namespace distrun::agent
