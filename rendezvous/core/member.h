// Member: one node's side of the rendezvous.  It keeps this node attached to the job's coordinator,
// finds it again, finds the next one, or becomes it.
//
//   idle --Asked--> dialing --first good word--> attached --Welcome--> (member of a round)
//                   ^    |                          |
//                   |    | nobody answers           | closed, or silent for too long
//                   |    v                          |
//                   +--pausing <---- or dialing <---+              done: Over, NoRound or Left
//
//   Beside that, and only if takeover is allowed, a node may be hosting: nobody before it in the
//   order of succession is to be found, so it opens the rendezvous itself and attaches to it. While
//   that has no quorum, it looks at all others every second and yields to one that has.
//
// - Workers go on while the coordinator is away.  Whoever comes back to a coordinator that knows
// its
//   round goes on as if nothing had been.
// - One vote: this node answers the pings of one coordinator at a time.  It turns to another only
//   after so long a silence that the old one cannot count on it any more, or when it is known not
//   to act: its host refuses the connection (the process is dead), it forgot this node's round, or
//   it sends this node elsewhere.  A Join is no vote; it is sent to one coordinator at a time.
// - A coordinator whose last round is older than this node's is not followed (stale), and what is
//   said of an older round is dropped.
// - Without a coordinator for `patience` (external) or without one that has a quorum for
//   `takeover_patience` (hosted by agents), the node gives up: NoRound, closed.
//
// Pure, as Rendezvous is.
#pragma once

#include "rendezvous/core/messages.h"
#include "rendezvous/core/quorum.h"
#include "rendezvous/core/rendezvous.h"
#include "runtime/base/backoff.h"
#include "runtime/base/time.h"

#include <array>
#include <cstdint>
#include <map>
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

// Every legal change of phase.
inline constexpr std::array<std::pair<MemberPhase, MemberPhase>, 10> kMemberEdges{{
    {MemberPhase::idle, MemberPhase::dialing},
    {MemberPhase::idle, MemberPhase::done},
    {MemberPhase::dialing, MemberPhase::pausing},
    {MemberPhase::dialing, MemberPhase::attached},
    {MemberPhase::dialing, MemberPhase::done},
    {MemberPhase::pausing, MemberPhase::dialing},
    {MemberPhase::pausing, MemberPhase::done},
    {MemberPhase::attached, MemberPhase::dialing},
    {MemberPhase::attached, MemberPhase::pausing},  // it did not last
    {MemberPhase::attached, MemberPhase::done},
}};

// Where somebody may answer.
struct Contact {
  std::string address;  // or a name, which the edge looks up
  std::uint16_t port = 0;
  bool operator==(const Contact&) const = default;
};
// For people: "10.0.0.1:29400", "[::1]:29400"; "3", "4 (epoch 17)".
std::string to_text(const Contact& contact);
std::string to_text(const Fence& round);

struct MemberLimits {
  // What this node says of itself.  address and the ports are filled in at each Join, from
  // Connected and Asked.
  Join self;
  Contact endpoint;
  // The coordinator at the endpoint is this very agent's, from the beginning.
  bool hosts = false;
  bool takeover = false;  // this node may host (self.takeover_port is bound), or follow who does
  TakeoverRule rule = TakeoverRule::majority;
  Duration start_timeout = std::chrono::seconds(900);     // without a coordinator, before any round
  Duration patience = std::chrono::seconds(600);          // without a coordinator, with workers
  Duration takeover_patience = std::chrono::seconds(30);  // without one that has a quorum
  Duration dial_timeout = std::chrono::seconds(2);
  Backoff::Limits backoff{std::chrono::milliseconds(50), std::chrono::milliseconds(500)};
  std::uint64_t seed = 0;  // of the backoff's jitter
};

namespace member {

// ---- events ------------------------------------------------------------------------------------

// The agent wants a place in the next round; `outcome` of the one before.
struct Asked {
  std::optional<Outcome> outcome;  // its failure's age counts on from this event
  std::uint16_t store_port = 0;    // a fresh store, if it could be opened before connecting; else 0
};
struct FailedHere {  // a worker failed first: tell the others at once
  Failure failure;   // age counts on from this event
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
using Event =
    std::variant<Asked, FailedHere, Left, Connected, NotConnected, Received, Closed, Tick>;

// ---- effects -----------------------------------------------------------------------------------

// Connect, and keep it until HangUp.  Owed, unless HangUp comes first: Connected or NotConnected;
// after Connected, Closed if it ends.  One dial is the attachment; beside it, or before there is
// one, up to kMaxDials others are tried at once.  A number is never used twice.
struct Dial {
  int dial = 0;
  Contact contact;
  Duration timeout;
};
struct Send {
  int dial = 0;
  // A Join's or an Ended's store_port may be 0: the edge fills in that of a fresh store, unless it
  // is the Join of a node whose workers run (held without outcome), which needs none.
  AgentMessage message;
};
// Close it once all that was sent is written.  Nothing is owed, and what still comes in is dropped.
struct HangUp {
  int dial = 0;
};
// Answer connections on the takeover port as this job's coordinator, from this record.
struct Host {
  Record record;
  int successor = 0;  // Authority::successor
};
// No longer, be it the one at the takeover port or, with MemberLimits::hosts, the one at the
// endpoint.  Its connections are closed; from now on both ports say what Direct told.
// Not owed at the end: after JobOver, NoRound and Left a hosting edge goes on until the others
// know.
struct StopHosting {};
// What is said to whoever asks at the takeover port (see StopHosting) while this node does not
// host. Before the first: not_yet.
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
using Effect = std::variant<Dial, Send, HangUp, Host, StopHosting, Direct, Placed, Disbanded,
                            JobOver, NoRound, Say, Progress>;
using Effects = std::vector<Effect>;

inline constexpr int kMaxDials =
    kMaxSuccessors + 2;             // the endpoint, the last coordinator, all heirs
inline constexpr int kMaxHops = 4;  // of "elsewhere" in a row
inline constexpr Duration kLookAround = std::chrono::seconds(1);      // of a host without a quorum
inline constexpr Duration kLookAtEndpoint = std::chrono::seconds(2);  // of one with

}  // namespace member

class Member {
 public:
  explicit Member(MemberLimits limits);

  // REQUIRES: `now` never goes backwards.
  member::Effects handle(const member::Event& event, TimePoint now);
  // When to send the next Tick; nullopt: nothing is pending.
  std::optional<TimePoint> next_deadline() const;

  MemberPhase phase() const { return phase_; }
  bool hosting() const { return hosting_; }
  // The last round in which this node had a place.
  Fence round() const { return round_; }
  // Whose pings are answered; nullopt: nobody's.
  std::optional<Contact> coordinator() const;
  // Empty, or the promise of this class that is broken.  For tests and simulations.
  std::string broken_invariant() const;

 private:
  // A connection, or the try to get one.
  struct Line {
    Contact contact;
    int order = 0;  // of whom it leads to: the endpoint is -1, then the order of succession
    int hops = 0;   // of "elsewhere" that led there
    bool connected = false;
    std::string local_address;
    bool joined = false;                 // a Join was sent
    bool told = false;                   // with the outcome of the last round
    std::optional<TimePoint> answer_by;  // joined: the first good word
    std::optional<Waiting> waiting;      // came before that
    std::optional<Disband> disband;      // likewise
  };
  using Lines = std::map<int, Line>;

  void on(const member::Asked& asked);  // one overload per event
  void on(const member::FailedHere& failed);
  void on(const member::Left& left);
  void on(const member::Connected& connected);
  void on(const member::NotConnected& answer);
  void on(const member::Received& received);
  void on(const member::Closed& closed);
  void on(const member::Tick&) {}
  void on_message(int dial, const Welcome& welcome);
  void on_message(int dial, const Waiting& waiting);
  void on_message(int dial, const Disband& disband);
  void on_message(int dial, const Over& over);
  void on_message(int dial, const Refused& refused);
  void on_message(int dial, const Ping& ping);

  void settle();  // all that follows without a further event
  void check_deadlines();
  void begin_pass();
  void widen_pass();
  void end_pass();
  bool may_host_now() const;
  void look_around();
  void dial(const Contact& contact, int order, int hops);
  void join_next();
  void send_join(int dial, Line& line);
  bool acceptable(int dial, const Fence& last, bool quorum);
  bool worth_following(const Line& line, const Fence& last, bool quorum) const;
  void follow(int dial, const Contact& target);  // "elsewhere"
  void attach(int dial);
  void detach();
  void tell_pending(Line& line);
  void lose(const std::string& how);
  void search_again();
  void leave_line(int dial, const std::string& why);
  void drop(int dial);  // hang up
  void note_answer(std::string what);
  void host();
  void stop_hosting();
  void update_direct();
  void take_waiting(const Waiting& waiting);
  void set_quorum(bool quorum);
  void place(const Welcome& welcome);
  void give_up(member::GaveUp reason, std::string why);
  void finish();
  void say(member::Tone tone, std::string text);
  void enter(MemberPhase next);

  bool has_round() const { return round_.generation >= Generation(0); }
  bool agents_host() const { return !coordinator_.empty(); }
  bool may_take_over() const;
  bool free_to_vote() const;  // the old coordinator cannot count on this node
  Duration silence() const;
  bool waits_for_a_word() const;  // on a line beside the attachment
  bool is_trying(const Contact& contact) const;
  void release(const Contact& contact);  // it cannot, or will not, count on this node
  Contact own_contact() const;           // where this node's own coordinator answers
  Contact takeover_contact() const;      // where others look for it; port 0: nowhere
  int own_order() const;
  std::vector<Successor> succession() const;  // by rank, but the heir first
  int order_of(const Contact& contact) const;
  Outcome outcome_now() const;  // its failure's age at this moment
  Failure failure_now() const;
  std::string answers_text() const;
  std::string advice() const;
  std::optional<TimePoint> giving_up_at() const;

  MemberLimits limits_;
  Backoff backoff_;
  std::mt19937_64 random_;
  MemberPhase phase_ = MemberPhase::idle;
  TimePoint now_{};
  member::Effects out_;

  // What this node has, wants and has to tell.
  Fence round_;
  NodeId founder_;          // of the job that round_ is of
  NodeRank rank_;           // in round_
  int node_count_ = 1;      // of round_
  int restart_count_ = 0;   // in round_
  bool asked_ = false;      // for the next round
  bool disbanded_ = false;  // the agent was told that round_ is over
  std::uint16_t store_port_ = 0;
  std::optional<Outcome> outcome_;  // of round_
  TimePoint outcome_at_{};
  std::optional<Failure> failure_;  // in round_
  TimePoint failed_at_{};
  int left_ = 0;  // out of Disband
  NodeId heir_;
  NodeId coordinator_;                 // agent-hosted: the node that sealed round_
  std::vector<Successor> successors_;  // of it

  // Where it is attached, and since when it is not.
  Lines lines_;
  int last_dial_ = 0;
  int attached_ = 0;  // a line; 0: none
  TimePoint attached_since_{};
  TimePoint heard_{};                     // the last ping, or the first word
  TimePoint silent_at_{};                 // when it has been silent for too long
  bool forgiven_ = false;                 // a pause of this process was not counted as its silence
  Duration their_silence_{};              // as their pings say
  std::optional<Contact> old_;            // the last coordinator
  std::optional<TimePoint> bound_until_;  // the vote given to it lasts for so long
  std::optional<TimePoint> lost_since_;   // nullopt: never asked, or attached
  std::optional<TimePoint> no_quorum_since_;
  bool said_none_ = false;  // that nobody answers yet

  // The search: one pass over all who may answer, a pause, the next.
  bool wide_ = false;      // this pass is not only for the old one
  bool somebody_ = false;  // one before this node in succession is there
  std::vector<Contact> tried_;
  std::optional<TimePoint> pause_until_;
  std::optional<TimePoint> look_at_;                  // hosting: the next look at the others
  std::vector<std::pair<std::string, int>> answers_;  // since lost_since_, and how often
  std::optional<member::NoAnswer> last_no_answer_;
  std::string waiting_why_;

  bool hosting_ = false;
  int own_index_ = -1;  // in successors_ when it began to host; -1: at the endpoint
  std::optional<Refused> directed_;
};

}  // namespace distrun::rendezvous
