// Happening: what took place in a job, for the event file, the status page and people.  One
// sentence and the facts it is made of.
#pragma once

#include "rendezvous/core/messages.h"

#include <optional>
#include <string>
#include <string_view>

namespace distrun::rendezvous {

enum class HappeningKind {
  join,      // a node waits for a round
  reattach,  // a member of the running round is back on a new connection
  refuse,    // a node was turned away
  seal,      // a round begins
  failure,   // a worker failed first
  leave,     // a node left by itself
  loss,      // a node is lost
  disband,   // a round ends before its work is done
  restart,   // one of the budget is used
  takeover,  // a coordinator came back, or another took over
  over,      // the job is over
};
std::string_view to_string(HappeningKind kind);

struct Happening {
  HappeningKind kind = HappeningKind::join;
  std::string job;
  Fence round;  // the last sealed one
  NodeId node;  // empty: of no single node
  std::string host;
  std::string text;  // one sentence
  bool operator==(const Happening&) const = default;
};

}  // namespace distrun::rendezvous
