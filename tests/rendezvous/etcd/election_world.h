// ElectionWorld: several replicas' cores, an etcd in memory, and between them a network and clocks
// that do what they may; in virtual time, from a seed.  A referee looks at every step.
//
//   each replica   EtcdLeader, EtcdStore and, in place of a coordinator, a counter for each job
//                  that it raises while it leads ("a decision"), keeps, and then tells
//   the network    delays, loses and repeats requests; a try may be carried out long after who
//                  asked has given up; answers and news of the watch get lost
//   etcd           is away now and then, as while it elects, and extends all leases when it is
//                  back; or full: it confirms leases and takes no writes; or one of its members has
//                  not noticed that it leads the others no more: it confirms leases that have
//                  ended; its clock may run faster than the replicas'; leases may end late
//   a replica      is paused now and then, with all that waits for it, and woken
//
// What the referee says, of every run:
//   - at no time do two replicas act, and who acts holds the leader's key
//   - etcd takes a decision only from who holds the key at that moment
//   - what is told was written before, by who tells it
//   - what was told is found by every later leader: no number of a job is told twice, none goes
//     back
//   - nobody who leads waits for long for a decision to be kept
//   - once all faults are over, one acts
#pragma once

#include "rendezvous/etcd/core/leader.h"
#include "rendezvous/etcd/core/store.h"
#include "tests/rendezvous/etcd/model_etcd.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace distrun::rendezvous::etcd {

// Errors of whoever uses the cores, or of the cores themselves: a referee that lets one pass is
// worth nothing.
enum class Flaw {
  none,
  tells_before_it_is_kept,
  does_not_ask_before_it_tells,   // acts()
  writes_without_the_key,         // the guard by the leader's key is gone
  writes_without_the_sequence,    // the guard against late tries is gone
  a_pause_stops_its_clock,        // what comes after one is taken for punctual
  keeps_on_after_a_failed_guard,  // takes Disowned for Kept
  asks_for_ever_to_keep,          // takes a transaction's time for endless
  renews_without_a_look           // believes keep-alives alone
};

struct Tally {  // of a run: what it was worth
  int led = 0;
  int decided = 0;
  int told = 0;
  int late_tries = 0;  // carried out after who asked had given up
  int pauses = 0;
  int unkept = 0;     // led no more, for etcd took no writes
  int went_on = 0;    // was not sure for a time, and led on
  int not_moved = 0;  // keep-alives that a member confirmed which does not lead the others
  bool operator==(const Tally&) const = default;
};

class ElectionWorld {
 public:
  ElectionWorld(std::uint64_t seed, Flaw flaw);
  // Some minutes with faults, and some seconds without.  Empty, or the promise that was broken.
  std::string run();
  const Tally& tally() const { return tally_; }

 private:
  struct Told {
    int job = 0;
    int number = 0;
  };
  struct Saving {
    EtcdStore::Ticket ticket = 0;
    Told decision;
    TimePoint since{};
    bool kept = false;
  };
  struct Replica {
    explicit Replica(LeaderLimits limits) : leader(std::move(limits)) {}
    EtcdLeader leader;
    std::optional<EtcdStore> store;
    std::deque<Saving> saving;
    std::map<int, int> numbers;  // by job: the last it decided, or read
    LeaseId lease = 0;
    Revision revision = 0;
    int tenure = 0;
    int watch = 0;
    bool at_stale = false;  // asks the member that has not noticed, until that does not answer
    std::optional<TimePoint> awake_at;  // paused until then
    Duration lost{};                    // with a flaw: how much its clock is behind
    std::optional<TimePoint> tick_at;   // the one that counts,
    int tick = 0;                       // and its number
  };
  enum class Kind {
    to_etcd,
    answer,
    news,
    deaf,
    tick,
    decide,
    pause,
    wake,
    etcd_goes,
    etcd_comes,
    etcd_is_full,
    etcd_has_room,
    member_is_stale,
    member_notices
  };
  struct Entry {
    TimePoint at{};
    std::uint64_t order = 0;
    Kind kind = Kind::tick;
    int replica = 0;
    int call = 0;
    int watch = 0;
    std::optional<Answer> answer{};
    std::optional<KeyValue> value{};
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return std::pair(a.at, a.order) > std::pair(b.at, b.order);
    }
  };
  struct Call {
    int replica = 0;
    int ask = 0;  // 0: of the store
    int tenure = 0;
    LeaseId lease = 0;  // of the store's
    Request request;
    TimePoint deadline{};
    bool answered = false;
  };

  void step(Entry entry);
  void feed(int replica, const leader::Event& event);
  void apply(int replica, const leader::Ask& effect);
  void apply(int replica, const leader::Watch& effect);
  void apply(int replica, const leader::Unwatch& effect);
  void apply(int replica, const leader::Lead& effect);
  void apply(int replica, const leader::GoOn& effect);
  void apply(int replica, const leader::Halt& effect);
  void apply(int, const leader::Follow&) {}
  void apply(int, const leader::Resigned&) {}
  void apply(int, const leader::Say&) {}
  void ask(int replica, int number, Request request, Duration within);
  void carry_out(int id);
  bool asks_stale_member(int id);
  void answered(const Entry& entry);
  void decide(int replica);
  void pump(int replica);
  void keep(int replica, Transaction transaction);
  void on_kept(int replica, const Answer& answer);
  void tell_what_is_kept(int replica);
  void tell(int replica, const Told& decision);
  void spread_news();
  void check();
  void fail(std::string why);

  void schedule(Entry entry, Duration in);
  bool chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  Duration between(Duration low, Duration high);
  Duration delay();
  const KeyValue* key() const;
  bool holds_key(const Replica& replica) const;
  TimePoint time_of(const Replica& replica) const { return now_ - replica.lost; }
  TimePoint etcds_time() const;
  Replica& at(int replica) { return replicas_[static_cast<std::size_t>(replica)]; }
  bool acts(const Replica& replica) const { return replica.leader.acts(time_of(replica)); }

  std::mt19937_64 random_;
  Flaw flaw_;
  TimePoint now_{std::chrono::hours(1)};
  bool faults_ = true;
  ModelEtcd etcd_;
  bool etcd_away_ = false;
  bool etcd_full_ = false;
  bool member_stale_ = false;
  double etcd_clock_ = 1.0;  // how fast it runs
  TimePoint started_ = now_;
  std::optional<KeyValue> last_key_;
  std::vector<Replica> replicas_;
  std::vector<Call> calls_;
  std::priority_queue<Entry, std::vector<Entry>, Later> agenda_;
  std::uint64_t order_ = 0;
  std::map<int, int> written_;                      // by job: the highest number that etcd took
  std::map<std::pair<int, int>, LeaseId> writers_;  // of each number
  std::map<int, int> told_;                         // by job: the highest number
  std::string broken_;
  Tally tally_;
};

}  // namespace distrun::rendezvous::etcd
