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
//   kMembershipWindow; beyond that it waits.  As many losses in that window end the job.
// - One budget of restarts after failures for the whole job.
// - An agent-hosted coordinator seals only with a quorum of the last sealed round (quorum.h).
//
// Time is the caller's monotonic clock.  A coordinator that was itself paused does not take the
// silence of that time for theirs.
//
// Pure: no socket, clock or log.  Not thread-safe; one owner.  In files: rendezvous.cc (how a round
// goes), _admission (who may come in), _seal (a round begins), _quorum.
#pragma once

#include "rendezvous/core/happening.h"
#include "rendezvous/core/liveness.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/quorum.h"
#include "rendezvous/core/restart_budget.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace distrun::rendezvous {

enum class RoundPhase { gathering, last_call, sealed, ended, recovering, over };
std::string_view to_string(RoundPhase phase);

// Every legal change of phase.
inline constexpr std::array<std::pair<RoundPhase, RoundPhase>, 14> kRoundEdges{{
    {RoundPhase::gathering, RoundPhase::last_call},
    {RoundPhase::gathering, RoundPhase::sealed},
    {RoundPhase::gathering, RoundPhase::over},
    {RoundPhase::last_call, RoundPhase::gathering},
    {RoundPhase::last_call, RoundPhase::sealed},
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
  NodeId founder;  // Welcome's
  Terms terms;
  Fence last;                      // the last sealed round; generation -1: none yet
  int node_count = 0;              // of that round
  std::vector<std::string> hosts;  // of that round by rank, as far as known
  int restarts = 0;
  NodeId coordinator;        // agent-hosted, or elected: the node that hosted it then
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
  std::shared_ptr<const Record> record;  // never null; shared, as an Effect is to be small
};
// The job is of no interest any more: its record can go.
struct Forget {
  std::string job;
};
struct Note {
  Happening happening;
};
using Effect = std::variant<Send, Drop, Save, Forget, Note>;
using Effects = std::vector<Effect>;

// ---- what others may see of it -----------------------------------------------------------------

struct MemberState {
  NodeId node;
  std::string host;
  std::string address;
  int nproc = 1;
  std::string role;
  SessionId session;
  std::optional<NodeRank> rank;    // in the present or the last round
  bool elects = false;             // was in the last round, be it without a Welcome (quorum.h)
  std::optional<NodeRank> asked;   // --node-rank
  std::optional<Outcome> outcome;  // of the last round; set: it is ready for the next, or done
  bool waiting = false;            // for the next round
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
  Fence last;          // the last sealed round
  int node_count = 0;  // of it
  int electors = 0;    // of these, known to this coordinator and not gone for good
  int left = 0;        // of these, gone for good
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
  // Without `host`: the node that was elected to coordinate, by whoever sees to it that it is the
  // only one.  Empty: no node's (distrund).
  NodeId elected{};
};

class Rendezvous {
 public:
  // A new job, as its first Join wants it.
  Rendezvous(const Join& founder, Authority authority);
  // A job that was.
  Rendezvous(Record record, Authority authority, TimePoint now);

  // REQUIRES: `now` never goes backwards.
  Effects handle(const Event& event, TimePoint now);
  // When to send the next Tick; nullopt: nothing is pending.
  std::optional<TimePoint> next_deadline() const;

  RendezvousState state() const;
  RoundPhase phase() const { return phase_; }
  bool empty() const { return members_.empty(); }
  // All nodes of the last round have left for good, and nobody waits: the job is nobody's any more.
  bool abandoned() const {
    return members_.empty() && record_.node_count > 0 && left_ >= record_.node_count;
  }
  const Record& record() const { return record_; }

 private:
  struct Member {
    Join join;  // as it came, without terms; address and store_port are kept up to date
    std::optional<NodeRank> rank;    // in the last sealed round
    std::optional<Outcome> outcome;  // of that round
    bool waiting = false;            // for the next round
    bool draining = false;           // stops the workers of a round that is over for it
    bool confirmed = false;          // it answered a ping that was sent behind its Welcome
  };
  // The members of an older round that may not all know of a newer one yet (quorum.h).
  struct Electorate {
    int members = 0;
    int left = 0;
    NodeId incumbent;
    std::set<NodeId> nodes;  // electors_ of that time
  };
  using Members = std::map<SessionId, Member>;  // in order of arrival
  // Epochs of one takeover differ by the successor's index; the last is for one that is none.
  static constexpr int kEpochs = kMaxSuccessors + 1;
  static constexpr int kNoSuccessor = kEpochs - 1;

  void on(const Received& event);
  void on(const Closed& event);
  void on(const ReachedAt& event);
  void on(const Tick&) {}
  void on_message(SessionId session, const Join& join);
  void on_message(SessionId session, const Failed& failed);
  void on_message(SessionId session, const Ended& ended);
  void on_message(SessionId session, const Pong& pong);
  void on_message(SessionId session, const Leave& leave);

  std::optional<Refused> refusal(const Join& join) const;
  bool replace_older_session(SessionId session, const Join& join);
  void seat_again(SessionId session, const Join& join);  // a member of the last round is back
  void adopt(const Join& join);                          // a round that this coordinator forgot
  void take_outcome(Member& member, Outcome outcome);
  void take_failure(const Member& member, const Failure& failure);
  void remove(SessionId session, HappeningKind how, const std::string& why);
  bool spend(std::deque<TimePoint>& changes) const;
  bool spend_membership_change();  // false: the job is over

  void settle();  // all that follows without a further event
  bool step();
  bool step_recovering();
  bool newcomers_give_up();
  void end_round(const std::string& why, bool membership);
  void decide();  // the round has ended everywhere
  void seal();
  void finish(Over over);
  void report_waiting();
  void hand_over(const std::string& why);
  Disband disband_message(const std::string& why) const;
  std::string failure_text() const;
  std::string newcomer() const;
  NodeId lowest_node() const;
  bool taken_seat(NodeRank rank, const NodeId& node) const;
  Waiting waiting() const;  // as for a member without a place

  int electors_here() const;
  bool holds_quorum() const;
  template <class Holds>
  bool is_quorum_of(const Electorate& older, Holds holds) const;
  void confirm(Member& member, std::uint64_t ping);
  Ping ping_message(std::uint64_t number) const;
  void ping_now(SessionId session);
  bool knows_newer(const Join& join) const;
  bool of_another_job(const Join& join) const;
  bool holds_last(const Join& join) const;
  void direct_elsewhere(const Join& coordinator);
  bool scales_up() const;
  TimePoint join_deadline() const { return gathering_since_ + record_.terms.join_timeout; }
  void set_waiting(Member& member, bool waiting);
  void set_draining(Member& member, bool draining);
  void enter(RoundPhase next);
  void send(SessionId session, CoordinatorMessage message);
  void note(HappeningKind kind, std::string text, const Member* member = nullptr);

  Record record_;
  Authority authority_;
  RestartBudget budget_;
  Liveness liveness_;
  RoundPhase phase_ = RoundPhase::gathering;
  Members members_;
  std::map<NodeId, SessionId> by_node_;
  std::map<NodeRank, SessionId> asked_ranks_;
  int waiting_ = 0;    // members that wait for the next round
  int working_ = 0;    // members of the last round without an outcome
  int succeeded_ = 0;  // seats of the last round that did
  int seated_ = 0;     // members of the last round that are here
  int draining_ = 0;   // members that stop the workers of a round that is over for them

  std::vector<bool> seat_succeeded_;   // by rank: also of those that have gone since
  int left_ = 0;                       // seats of the last round that left for good
  NodeId incumbent_;                   // decides a draw
  std::vector<Successor> successors_;  // of the last sealed round
  // Members of the last round: all whom this coordinator gave a place, or those who showed that
  // they hold it; not who left for good.  Why also who never heard of it: quorum.h.
  std::set<NodeId> electors_;
  std::vector<Electorate> electorates_;  // agent-hosted: of rounds before the last, oldest first
  std::uint64_t sealed_ping_ = 0;        // sent right behind the last Welcomes
  bool superseded_ = false;              // somebody knows a newer round than this coordinator
  bool adopted_ = false;                 // the last round is known by hearsay
  std::optional<Refused> elsewhere_;     // where the job runs in truth
  std::optional<Failure> failure_;       // the last round's first
  TimePoint failed_at_{};
  Outcome failed_outcome_;               // of the node with that failure, once it is known
  std::optional<Failure> last_failure_;  // of any round
  std::string ended_why_;
  bool membership_ = false;  // the last round ended by a change of it
  bool broken_ = false;      // a member had stopped its workers before it came back
  std::string remains_;      // hosts where processes of it are alive

  TimePoint gathering_since_{};
  TimePoint hold_until_{};  // no seal before
  std::optional<TimePoint> last_call_ends_;
  TimePoint recovery_ends_{};
  bool has_taken_over_ = false;       // agent-hosted, recovering: with a quorum
  bool waits_for_incumbent_ = false;  // elected, recovering: all others are back
  bool new_epoch_ = false;            // the next seal begins one
  TimePoint next_report_{};
  std::string last_loss_;
  std::deque<TimePoint> losses_;  // of members, within the window
  std::deque<TimePoint> joins_;   // that ended a round, within the window
  TimePoint now_{};               // of the event in hand
  Effects out_;
};

}  // namespace distrun::rendezvous
