// Member: one node's side of the rendezvous.  It keeps this node attached to the job's coordinator,
// finds it again, finds the next one, or becomes it.
//
//   idle --ask--> dialing --connected--> attached --Welcome--> (member of a round)
//                  ^   |                    |
//                  |   | all tried          | closed, or silent for Terms::silence()
//                  |   v                    |
//                  +--pause <---------------+
//                  |   |
//                  |   | nobody before this node in the order of succession is to be found
//                  |   v
//                  +-- hosting: this node opens the rendezvous itself, attaches to it, and goes on
//                      looking for another that has a quorum, until it has one itself
//
// - Workers go on while the coordinator is away.  Whoever comes back to a coordinator that knows its
//   round goes on as if nothing had been.
// - A node turns to another coordinator only after silence() without a ping from the old one, or
//   when the old one's host refuses the connection: its process is dead then.
// - A coordinator whose last round is older than this node's is refused (stale).
// - Without a coordinator for `patience`, the node gives up: workers are stopped, exit code of
//   RoundError::closed.
//
// Pure, as Rendezvous is.
#pragma once

#include "rendezvous/core/messages.h"
#include "rendezvous/core/quorum.h"
#include "rendezvous/core/rendezvous.h"
#include "runtime/base/backoff.h"
#include "runtime/base/time.h"

#include <array>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace distrun::rendezvous {

enum class MemberPhase { idle, dialing, pausing, attached, done };
std::string_view to_string(MemberPhase phase);

// Where somebody may answer.
struct Contact {
  std::string address;  // or a name, which the edge looks up
  std::uint16_t port = 0;
  bool operator==(const Contact&) const = default;
};

struct MemberLimits {
  // What this node says of itself.  address and the ports are filled in at each Join, from
  // Connected and Asked.
  Join self;
  Contact endpoint;
  // The coordinator at the endpoint is this very agent's, from the beginning.
  bool hosts = false;
  bool takeover = false;  // this node may host, and others' offers are followed
  TakeoverRule rule = TakeoverRule::majority;
  Duration start_timeout = std::chrono::seconds(900);  // to the first Waiting or Welcome
  Duration patience = std::chrono::seconds(600);       // without a coordinator, with workers
  Duration takeover_patience = std::chrono::seconds(30);  // for a quorum after a takeover began
  Duration dial_timeout = std::chrono::seconds(2);
  Backoff::Limits backoff{std::chrono::milliseconds(50), std::chrono::milliseconds(500)};
  std::uint64_t seed = 0;  // of the backoff's jitter
};

namespace member {

// ---- events ------------------------------------------------------------------------------------

// The agent wants a place in the next round; `outcome` of the one before.
struct Asked {
  std::optional<Outcome> outcome;
  std::uint16_t store_port = 0;  // a fresh store, if it could be opened before connecting; else 0
};
struct FailedHere {  // a worker failed first: tell the others at once
  Failure failure;   // age counts from this event
};
struct Left {  // the agent gives up its place for good
  std::string why;
};
// Answers to Dial.
struct Connected {
  int dial = 0;
  std::string local_address;  // of this end: proved to be reachable
};
enum class NoAnswer {
  refused,      // its host says that nobody listens: no such process
  unreachable,  // no answer in time, or no way
  unknown,      // the name cannot be looked up
  alien,        // something answered that is no coordinator
};
struct NotConnected {
  int dial = 0;
  NoAnswer reason = NoAnswer::unreachable;
  std::string why;  // one clause with the address tried: "10.0.0.1:29400: connection refused"
};
struct Received {
  int dial = 0;
  CoordinatorMessage message;
};
struct Closed {
  int dial = 0;
  std::string why;
};
struct Tick {};
using Event = std::variant<Asked, FailedHere, Left, Connected, NotConnected, Received, Closed, Tick>;

// ---- effects -----------------------------------------------------------------------------------

// Connect, and until HangUp keep it.  Owed: Connected or NotConnected.  At most one at a time.
struct Dial {
  int dial = 0;
  Contact contact;
  Duration timeout;
};
struct Send {
  int dial = 0;
  AgentMessage message;  // a Join's address and store_port are the edge's to fill in if empty
};
struct HangUp {
  int dial = 0;
};
// Answer connections on the takeover port as this job's coordinator, from this record.
struct Host {
  Record record;
  int successor = 0;
};
// No longer.  Connections are closed.
struct StopHosting {};
// What is said to whoever asks at the takeover port while this node does not host.
struct Direct {
  Refused answer;
};
// To the agent's core.
struct Placed {
  Welcome welcome;
};
struct Disbanded {
  Fence round;
  std::string why;
};
struct JobOver {
  Over over;
};
enum class GaveUp { timed_out, closed, refused };
struct NoRound {
  GaveUp reason = GaveUp::closed;
  std::string why;  // what was tried, what answered, what to do
};
enum class Tone { debug, info, warning };
struct Say {
  Tone tone = Tone::info;
  std::string text;
};
// What the rendezvous waits for, for people; when it changes.
struct Progress {
  Waiting waiting;
};
using Effect = std::variant<Dial, Send, HangUp, Host, StopHosting, Direct, Placed, Disbanded, JobOver,
                            NoRound, Say, Progress>;
using Effects = std::vector<Effect>;

}  // namespace member

class Member {
 public:
  explicit Member(MemberLimits limits);

  // REQUIRES: `now` never goes backwards.
  member::Effects handle(const member::Event& event, TimePoint now);
  std::optional<TimePoint> next_deadline() const;
  MemberPhase phase() const;

 private:
};

}  // namespace distrun::rendezvous
