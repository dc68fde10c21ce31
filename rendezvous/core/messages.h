// What an agent and its coordinator say to each other, as plain structs.  How they look on the wire
// is protocol/frame.h's concern; what they cause is rendezvous.h's (coordinator) and member.h's
// (agent).
//
//   agent                                coordinator
//     | Join ------------------------------> |   first on every connection
//     | <------------------------- Waiting   |   now and then, until there are enough
//     | <------------------------- Welcome   |   a place in a sealed round
//     | <--------------------- Ping, Pong -> |   all along
//     | Failed ----------------------------> |   a worker failed first here: at once
//     | <------------------------- Disband   |   the round is over: stop the workers
//     | Ended -----------------------------> |   nothing of it is alive here; ready for the next
//     | <---------------- Welcome or Over    |
//     | Leave -----------------------------> |   for good
//
// One message an agent and phase, so that a round costs O(nodes) messages in all.
#pragma once

#include "runtime/base/ids.h"
#include "runtime/base/time.h"

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace distrun::rendezvous {

inline constexpr int kProtocolVersion = 1;

// One agent process, named by itself and never again: "host-a.4711.9f3c21d0".
using NodeId = std::string;

// The name of a round.  A coordinator counts generations; each coordinator that takes over begins a
// new epoch, so that no two of them can give one name to different rounds.
struct Fence {
  int epoch = 0;
  Generation generation{-1};  // -1: before the first round
  auto operator<=>(const Fence&) const = default;
};

// What a job is.  The first node's terms hold; a node that comes with others is refused, except
// that times may differ (the first node's are used).
struct Terms {
  int min_nodes = 1;
  int max_nodes = 1;
  std::string command;       // program and arguments, for the comparison
  bool fixed_ranks = false;  // static: every node brings its rank, MIN is MAX
  int max_restarts = 0;
  std::optional<Duration> restart_window;  // nullopt: the whole life of the job

  Duration join_timeout = std::chrono::seconds(600);      // below MIN for so long: the job is over
  Duration last_call = std::chrono::seconds(30);          // first round: from MIN to the seal
  Duration rejoin_wait = std::chrono::milliseconds(100);  // later rounds: hold after a loss
  Duration beat = std::chrono::seconds(1);                // between two pings
  int beats_missed = 3;                                   // silence of so many: lost

  Duration silence() const { return beat * beats_missed; }
  bool operator==(const Terms&) const = default;
};

// The first failure of a round, on whatever node.
struct Failure {
  std::string host;
  Rank rank;
  LocalRank local_rank;
  int pid = 0;
  std::string status;  // "exited with status 13", "killed by SIGSEGV (core dumped)"
  int exit_code = 1;   // the job's, if it ends by this
  // How long ago, by the clock of the node that says so, when the message left.
  Duration age{};
  bool operator==(const Failure&) const = default;
};

enum class RoundResult { succeeded, failed, stopped };

// How a round went on one node.
struct Outcome {
  Fence round;
  RoundResult result = RoundResult::stopped;
  std::optional<Failure> failure;  // set exactly if failed
  bool failed_at_start = false;    // no worker here ever worked: a restart would be blind
  bool remains = false;            // processes of it survived SIGKILL
  std::string report;              // of the failure, for people; at most kMaxReport bytes
  bool operator==(const Outcome&) const = default;
};
inline constexpr std::size_t kMaxReport = 48UL * 1024;

// ---- agent → coordinator -----------------------------------------------------------------------

// A node that comes back: the last round it had a place in, which place, and how that went
// (nullopt: its workers run).
struct Held {
  Fence round;
  NodeRank rank;
  int node_count = 1;  // of that round; with the next, what a coordinator without memory needs
  int restart_count = 0;
  std::optional<Outcome> outcome;
  NodeId founder{};  // Welcome's
  bool operator==(const Held&) const = default;
};

struct Join {
  using Held = rendezvous::Held;
  int version = kProtocolVersion;
  std::string job;
  std::string token;  // shared secret of the job; empty: none
  NodeId node;
  std::string host;                 // for people; never looked up
  std::string address;              // where the other nodes reach this one
  std::uint16_t store_port = 0;     // a fresh store listens there, for the next round
  std::uint16_t takeover_port = 0;  // listens for whoever looks for a new coordinator; 0: never
  int nproc = 1;
  std::string role = "default";
  std::optional<NodeRank> node_rank;  // asked for
  bool hosts = false;                 // the coordinator runs in this agent
  Terms terms;

  std::optional<Held> held;
  bool operator==(const Join&) const = default;
};
struct Failed {
  Fence round;
  Failure failure;
  bool operator==(const Failed&) const = default;
};
struct Ended {
  Outcome outcome;
  std::uint16_t store_port = 0;  // a fresh one, for the next round
  bool operator==(const Ended&) const = default;
};
struct Pong {
  std::uint64_t number = 0;  // the ping's
  bool operator==(const Pong&) const = default;
};
struct Leave {
  std::string why;
  bool operator==(const Leave&) const = default;
};
using AgentMessage = std::variant<Join, Failed, Ended, Pong, Leave>;

// ---- coordinator → agent -----------------------------------------------------------------------

// Where a member waits for others should the coordinator be lost.
struct Successor {
  NodeId node;
  std::string host;
  std::string address;
  std::uint16_t port = 0;
  NodeRank rank;
  bool operator==(const Successor&) const = default;
};
inline constexpr int kMaxSuccessors = 15;  // the lowest ranks; a list of all would cost O(nodes^2)

struct Welcome {
  Fence round;
  // The node whose Join began the job: with it, a later job of the same name is another.
  NodeId founder;
  NodeRank node_rank;
  int node_count = 1;
  Rank base_rank;  // of this node's local rank 0
  int world_size = 1;
  int base_role_rank = 0;
  int role_world_size = 1;
  std::string master_addr;  // of the round's store
  std::uint16_t master_port = 0;
  int restart_count = 0;
  // Only if an agent hosts the coordinator: who takes over.
  NodeId coordinator;
  std::vector<Successor> successors;
  bool operator==(const Welcome&) const = default;
};
struct Waiting {
  int present = 0;
  int min_nodes = 1;
  int max_nodes = 1;
  std::vector<std::string> hosts;        // at most kMaxHosts of those present, by name
  std::optional<Duration> sealing_in;    // nullopt: not before there are MIN
  std::optional<Duration> giving_up_in;  // nullopt: there are MIN
  std::string why;                       // what else it waits for; empty: nothing
  bool quorum = true;                    // false: the coordinator may not seal a round (quorum.h)
  bool spare = false;                    // this node is above MAX and takes over when one is lost
  bool finished = false;  // this node's workers have succeeded; `why` says how many others' have
  // As in Welcome, for a spare: it has none.
  NodeId coordinator;
  std::vector<Successor> successors;
  bool operator==(const Waiting&) const = default;
};
inline constexpr int kMaxHosts = 8;
struct Disband {
  Fence round;
  std::string why;
  // Should the coordinator go now: how many members of the round have left for good, and who
  // decides a draw (quorum.h).
  int left = 0;
  NodeId heir;
  bool operator==(const Disband&) const = default;
};
enum class OverResult { succeeded, failed, timed_out, closed };
struct Over {
  OverResult result = OverResult::succeeded;
  int exit_code = 0;
  std::string why;  // one sentence
  int restarts = 0;
  std::optional<Failure> failure;
  std::string report;
  bool operator==(const Over&) const = default;
};
enum class RefusalCode {
  version,    // another protocol version
  terms,      // other flags
  rank,       // the rank asked for is taken, or cannot be
  token,      // not the job's
  closed,     // the job is over
  limit,      // too many jobs or nodes
  stale,      // what it said is about an older round
  elsewhere,  // not the coordinator of this job: see address and port
  not_yet,    // would be, but has no majority yet; stay connected elsewhere or come again
};
std::string_view to_string(RefusalCode code);
struct Refused {
  RefusalCode code = RefusalCode::closed;
  std::string why;      // one sentence, with what to do
  std::string address;  // elsewhere: the coordinator's, as far as known
  std::uint16_t port = 0;
  bool operator==(const Refused&) const = default;
};
struct Ping {
  std::uint64_t number = 0;
  Fence last;  // the last round that this coordinator knows of
  // It may act (quorum.h).  false: its own node looks for another that may.
  bool quorum = true;
  // The silence after which it gives a member up; a member waits no less for it.  Terms may differ
  // between nodes in times, and the coordinator's hold.  0: as the member's own terms say.
  Duration silence{};
  bool operator==(const Ping&) const = default;
};
using CoordinatorMessage = std::variant<Welcome, Waiting, Disband, Over, Refused, Ping>;

}  // namespace distrun::rendezvous
