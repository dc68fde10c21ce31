// Rendezvous decides who takes part in one job, round after round, and when the job is over.
//
//                 +---- a member lost or left, a failure, a newcomer ----+
//                 v                                                      |
//   gathering --MIN--> last_call --MAX, or time is up--> sealed --> ended --all back--> gathering…
//       |                                                  |         |
//       | join_timeout                  all succeeded      |         | budget spent, no retry
//       +---------------------------> over <---------------+---------+
//
//   recovering: a coordinator that has come back, or taken over, waits for the members of the last
//   sealed round to re-attach.  All there: sealed, as if nothing had been.  Time up: ended.  One
//   that has come back without memory gets there by the first member that tells it of its round.
//
// The rules:
// - A round is sealed with MAX nodes at once; with MIN after `last_call` in the first round; in
//   later rounds as soon as every known survivor is back, and `rejoin_wait` after a loss is over.
// - Survivors keep their node rank where they can, newcomers fill holes.  At first: the ranks that
//   were asked for, then the coordinator's own node, then natural order of names.
// - A member that is silent for Terms::silence() or whose connection closes is lost.  The loss of a
//   member that had not succeeded ends the round for all.
// - Nodes above MAX are spares: they fill holes, and end with the job.
// - A node that comes late ends a round that is not full, at most kMembershipChanges times per
//   kMembershipWindow; beyond that it waits.  So many losses in that window end the job.
// - One budget of restarts after failures for the whole job.
// - An agent-hosted coordinator seals only with a quorum of the last sealed round (quorum.h).
//
// Time is the caller's monotonic clock.  A coordinator that was itself paused does not take the
// silence of that time for theirs.
//
// Pure: no socket, clock or log.  Not thread-safe; one owner.
#pragma once

#include "rendezvous/core/happening.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/quorum.h"
#include "rendezvous/core/restart_budget.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"

#include <array>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace distrun::rendezvous {

using SessionId = Id<struct SessionTag>;  // a connection; the edge never gives one twice

enum class RoundPhase { gathering, last_call, sealed, ended, recovering, over };
std::string_view to_string(RoundPhase phase);

// Every legal change of phase.
inline constexpr std::array<std::pair<RoundPhase, RoundPhase>, 15> kRoundEdges{{
    {RoundPhase::gathering, RoundPhase::last_call},
    {RoundPhase::gathering, RoundPhase::sealed},
    {RoundPhase::gathering, RoundPhase::over},
    {RoundPhase::last_call, RoundPhase::gathering},
    {RoundPhase::last_call, RoundPhase::sealed},
    {RoundPhase::last_call, RoundPhase::over},
    {RoundPhase::sealed, RoundPhase::ended},
    {RoundPhase::sealed, RoundPhase::over},
    {RoundPhase::gathering, RoundPhase::recovering},
    {RoundPhase::last_call, RoundPhase::recovering},
    {RoundPhase::ended, RoundPhase::gathering},
    {RoundPhase::ended, RoundPhase::over},
    {RoundPhase::recovering, RoundPhase::sealed},
    {RoundPhase::recovering, RoundPhase::ended},
    {RoundPhase::recovering, RoundPhase::over},
}};

inline constexpr int kMembershipChanges = 20;
inline constexpr Duration kMembershipWindow = std::chrono::minutes(10);
// How long members of the last round have to come back to a coordinator that has come back.
inline constexpr Duration kRecovery = std::chrono::seconds(5);
inline constexpr int kMaxNodes = 65'536;

// All that outlives a coordinator: what its journal keeps, and what a successor inherits.
struct Record {
  std::string job;
  std::string token;
  Terms terms;
  Fence last;                      // the last sealed round; generation -1: none yet
  int node_count = 0;              // of that round
  std::vector<std::string> hosts;  // of that round by rank, as far as known
  int restarts = 0;
  NodeId coordinator;        // agent-hosted: the node that hosted it then
  std::optional<Over> over;  // the job is over
  bool operator==(const Record&) const = default;
};

// ---- events ------------------------------------------------------------------------------------

struct Received {  // the first of a session is a Join
  SessionId session;
  AgentMessage message;
};
struct Closed {  // the connection is gone
  SessionId session;
};
// Others reached this coordinator at that address: what its own node advertises if it knew only
// loopback.
struct ReachedAt {
  std::string address;
};
struct Tick {};  // a deadline of next_deadline() has come
using Event = std::variant<Received, Closed, ReachedAt, Tick>;

// ---- effects -----------------------------------------------------------------------------------

struct Send {
  SessionId session;
  CoordinatorMessage message;
};
// Close it once all that was sent is written; no Closed is owed.
struct Drop {
  SessionId session;
};
// Make it durable before anything that follows is sent.
struct Save {
  Record record;
};
struct Note {
  Happening happening;
};
using Effect = std::variant<Send, Drop, Save, Note>;
using Effects = std::vector<Effect>;

// ---- what others may see of it -----------------------------------------------------------------

struct MemberState {
  NodeId node;
  std::string host;
  std::string address;
  int nproc = 1;
  std::string role;
  SessionId session;
  std::optional<NodeRank> rank;     // in the present or the last round
  std::optional<NodeRank> asked;    // --node-rank
  std::optional<Outcome> outcome;   // of the last round; set: it is ready for the next, or done
  bool waiting = false;             // for the next round
  TimePoint heard{};
  int losses = 0;
  std::uint16_t store_port = 0;
  std::uint16_t takeover_port = 0;
  bool hosts = false;
};

struct RendezvousState {
  std::string job;
  RoundPhase phase = RoundPhase::gathering;
  Terms terms;
  Fence last;           // the last sealed round
  int node_count = 0;   // of it
  int restarts = 0;
  bool has_quorum = true;
  std::vector<MemberState> members;  // in order of arrival
  std::optional<Failure> last_failure;
  std::optional<Over> over;
};

// Who answers for the job.
struct Authority {
  // Set: an agent hosts the coordinator, and this is its node; quorum rules hold.
  std::optional<NodeId> host;
  // Which successor this is (its index in Welcome::successors); epochs differ by it.  0: the first
  // coordinator.
  int successor = 0;
  TakeoverRule rule = TakeoverRule::majority;
};

class Rendezvous {
 public:
  // A new job, with the terms of its first Join.
  Rendezvous(std::string job, std::string token, Terms terms, Authority authority);
  // A job that was.
  Rendezvous(Record record, Authority authority, TimePoint now);

  // REQUIRES: `now` never goes backwards.
  Effects handle(const Event& event, TimePoint now);
  // When to send the next Tick; nullopt: nothing is pending.
  std::optional<TimePoint> next_deadline() const;

  RendezvousState state() const;
  RoundPhase phase() const { return phase_; }
  bool empty() const { return members_.empty(); }
  const Record& record() const { return record_; }

 private:
  struct Member;
};

}  // namespace distrun::rendezvous
