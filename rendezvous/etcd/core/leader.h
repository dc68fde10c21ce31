// EtcdLeader: one replica's part in the election of the coordinator.
//
//   idle --Start--> looking --nobody leads--> granting --> campaigning --won--> loading --> leading
//                    ^  |                                     |                    |          |
//                    |  +--another leads--> following <-lost--+                    |          |
//                    |                          |                                  |          |
//                    +---- it is gone ----------+------ the lease is not sure -----+----------+
//                                                                     any --Resign--> resigned
//
// - Who creates the key PREFIX/leader, which hangs on its lease, leads.  One transaction: create it
//   if nobody has.
// - It may act only while the lease is sure to live: for the lease's time, less a margin, counted
//   from when what etcd has confirmed last was *sent*.  etcd counts from when that arrived, so it
//   cannot give the key to another before.  Whoever asks acts() before each deed does none too
//   late, also when the whole process was paused meanwhile; and before anything else, each event
//   checks the time: an answer to a keep-alive that waited here for too long proves nothing.
// - Before each keep-alive it looks at the key, for members of etcd have confirmed keep-alives out
//   of an old state (etcd's issue 15247), and keys can be deleted by hand.  A look is linearizable.
// - One that is not sure any more keeps to itself what it decides, and goes on if etcd confirms in
//   time that it has held the key all along.  So the loss of etcd's own leader moves no
//   leadership: etcd elects another within one or two seconds, and ends no lease meanwhile.
// - What it keeps in etcd is guarded by that key as well (store.h): the clock is the first line of
//   defence, not the only one.
// - Who stands by watches the key, and looks for it every two seconds in case the watch is deaf.
// - Who has lost its lease gives it back, so that the key goes, and stands for election again.
//
// Pure: no socket, clock or log.  Not thread-safe; one owner.
#pragma once

#include "rendezvous/etcd/core/keys.h"
#include "rendezvous/etcd/core/requests.h"
#include "runtime/base/time.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace distrun::rendezvous::etcd {

enum class LeaderPhase {
  idle,
  looking,
  following,
  granting,
  campaigning,
  loading,
  leading,
  resigned
};
std::string_view to_string(LeaderPhase phase);

// Every legal change of phase.
inline constexpr std::array<std::pair<LeaderPhase, LeaderPhase>, 20> kLeaderEdges{{
    {LeaderPhase::idle, LeaderPhase::looking},
    {LeaderPhase::looking, LeaderPhase::following},
    {LeaderPhase::looking, LeaderPhase::granting},
    {LeaderPhase::following, LeaderPhase::granting},
    {LeaderPhase::following, LeaderPhase::looking},
    {LeaderPhase::granting, LeaderPhase::campaigning},
    {LeaderPhase::granting, LeaderPhase::looking},
    {LeaderPhase::campaigning, LeaderPhase::loading},
    {LeaderPhase::campaigning, LeaderPhase::following},
    {LeaderPhase::campaigning, LeaderPhase::looking},
    {LeaderPhase::loading, LeaderPhase::leading},
    {LeaderPhase::loading, LeaderPhase::looking},
    {LeaderPhase::leading, LeaderPhase::looking},
    {LeaderPhase::idle, LeaderPhase::resigned},
    {LeaderPhase::looking, LeaderPhase::resigned},
    {LeaderPhase::following, LeaderPhase::resigned},
    {LeaderPhase::granting, LeaderPhase::resigned},
    {LeaderPhase::campaigning, LeaderPhase::resigned},
    {LeaderPhase::loading, LeaderPhase::resigned},
    {LeaderPhase::leading, LeaderPhase::resigned},
}};

struct LeaderLimits {
  Keys keys{};
  std::string endpoint;  // where agents reach this replica, if it leads: "10.0.0.1:29400"
  std::string id;        // of this process, and never again of another
  std::string self = "this replica";  // in what is said
  int ttl_seconds = 2;                // etcd's least, with its own defaults

  // Beyond the lease's time, so long one that is not sure goes on to hope.  Less than what the next
  // leader waits for the members of a round: those that this one has kept still reach it.
  Duration hope = std::chrono::milliseconds(2500);
  Duration look_again = std::chrono::seconds(2);        // following: in case the watch is deaf
  Duration pause = std::chrono::milliseconds(500);      // after a failure
  Duration resigning = std::chrono::milliseconds(500);  // to give the lease back
  int page = 8;                                         // records read at once: 4 MiB at most
};

namespace leader {

// ---- events ------------------------------------------------------------------------------------

struct Start {};
struct Answered {
  int number = 0;  // of the Ask
  Answer answer;
};
// Of the watch in force: the key is there with another value, or gone.
struct Changed {
  int watch = 0;
  std::optional<KeyValue> now;
};
struct Deaf {  // the watch ended
  int watch = 0;
};
struct Disowned {  // a guarded write found that another leads
  std::string why;
};
struct Resign {};
struct Tick {};
using Event = std::variant<Start, Answered, Changed, Deaf, Disowned, Resign, Tick>;

// ---- effects -----------------------------------------------------------------------------------

// Owed: one Answered.  `within`: for all tries together.
struct Ask {
  int number = 0;
  Request request;
  Duration within{};
};
// Of the leader's key, from that revision on.  Replaces the one before.
struct Watch {
  int watch = 0;
  Revision from = 0;
};
struct Unwatch {};
// This replica leads: coordinate, from these records.
struct Lead {
  Revision revision = 0;  // at which its key was created
  LeaseId lease = 0;
  Duration patience{};  // so long it may go on to lead without hearing from etcd
  std::vector<KeyValue> jobs;
};
// It acts again, after a time in which it led and did not: what was kept back may be told.
struct GoOn {};
// It leads no more: nothing may leave it from now on.
struct Halt {
  std::string why;
};
// Who leads: send agents there.  Empty: nobody that is known.
struct Follow {
  std::string endpoint;
};
struct Resigned {};
enum class Tone { info, warning };
struct Say {
  Tone tone = Tone::info;
  std::string text;
  bool refused = false;  // etcd will not have this replica: to go on trying is of little use
};
using Effect = std::variant<Ask, Watch, Unwatch, Lead, GoOn, Halt, Follow, Resigned, Say>;
using Effects = std::vector<Effect>;

}  // namespace leader

class EtcdLeader {
 public:
  explicit EtcdLeader(LeaderLimits limits);

  // REQUIRES: `now` never goes backwards.
  leader::Effects handle(const leader::Event& event, TimePoint now);
  // When to send the next Tick; nullopt: nothing is pending.
  std::optional<TimePoint> next_deadline() const;

  LeaderPhase phase() const { return phase_; }
  // It leads, and no other can at `now`.
  bool acts(TimePoint now) const;
  // It leads, or may find out that it does: what it decides meanwhile is told later, or never.
  bool leads(TimePoint now) const;

 private:
  void on(const leader::Start&);
  void on(const leader::Answered& answered);
  void on(const leader::Changed& changed);
  void on(const leader::Deaf& deaf);
  void on(const leader::Disowned& disowned);
  void on(const leader::Resign&);
  void on(const leader::Tick&) {}
  void on_answer(const Granted& granted);
  void on_answer(const KeptAlive&) {}
  void on_answer(const Revoked&) {}
  void on_answer(const Found& found);
  void on_answer(const Transacted& done);
  void on_answer(const Failed& failed);

  void on_renewal(const Answer& answer);
  void renewed(const KeptAlive& kept);
  void settle();
  void look();
  void grant();
  void campaign();
  void won(Revision revision);
  void load();
  void take_page(const Found& found);
  void follow(const std::optional<KeyValue>& key, Revision revision);
  void direct(const std::optional<KeyValue>& key);
  void watch(Revision from);
  void lose(const std::string& why);
  void give_back();  // the lease
  int ask(Request request, Duration within);
  void trouble(const Failed& failed);
  void enter(LeaderPhase next);

  bool holds_key() const {
    return phase_ == LeaderPhase::loading || phase_ == LeaderPhase::leading;
  }
  Duration lease_time() const { return std::chrono::seconds(ttl_seconds_); }
  // For which a lease is sure to live after it was asked for: etcd's clock may run faster than
  // ours, and a deed takes a moment after acts() was asked.
  Duration sure_time() const { return lease_time() * 3 / 4; }
  TimePoint gives_up_at() const;  // REQUIRES: holds_key().  Hope is for who has something to lose.
  Duration patience() const { return lease_time() + limits_.hope; }
  std::string own_value() const { return limits_.endpoint + " " + limits_.id; }

  LeaderLimits limits_;
  LeaderPhase phase_ = LeaderPhase::idle;
  TimePoint now_{};
  leader::Effects out_;

  int last_ask_ = 0;
  int pending_ = 0;      // the Ask that this phase waits for; 0: none
  int renewal_ask_ = 0;  // the look, or the keep-alive after it, on its way; 0: none
  int revoke_ask_ = 0;   // resigned: the last one
  int last_watch_ = 0;
  int watch_ = 0;  // in force; 0: none

  LeaseId lease_ = 0;      // 0: none
  int ttl_seconds_ = 0;    // of it
  Revision revision_ = 0;  // at which the own key was created
  TimePoint sent_{};       // the grant, then the last look
  Revision seen_ = 0;      // up to which nothing has happened to it
  TimePoint acts_until_{};
  TimePoint leads_until_{};
  bool unsure_ = false;  // and has said so
  std::optional<TimePoint> renewal_at_;
  std::optional<TimePoint> retry_at_;
  std::optional<TimePoint> look_at_;
  std::optional<TimePoint> resigned_by_;
  std::vector<KeyValue> jobs_;  // read so far
  std::optional<std::string> followed_;
  std::string said_;  // the last trouble
};

}  // namespace distrun::rendezvous::etcd
