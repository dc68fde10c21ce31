// RendezvousClient: where the agent's Join, Leave and Report go, and where Welcome comes from.
//
// One node needs no other: local_rendezvous.h.  A client of a coordinator on another machine
// implements the same verbs.
#pragma once

#include "agent/core/events.h"

#include <functional>
#include <string>

namespace distrun::agent {

class RendezvousClient {
 public:
  // Where answers (Welcome, RoundFailed, JobOver, Disband) go: from within a verb or later, from
  // the loop.
  using Answer = std::function<void(Event)>;

  virtual ~RendezvousClient() = default;
  virtual void on_answer(Answer answer) = 0;
  // `report`: the failure report of the round that ended, for the other nodes; empty: it did not
  // fail.  At most rendezvous::kMaxReport bytes.
  virtual void join(const Join& join, std::string report) = 0;
  // A worker failed first here: others stop at once, before this node's workers have stopped.
  virtual void report(const Report& report) = 0;
  virtual void leave(const Leave& leave) = 0;
};

}  // namespace distrun::agent
