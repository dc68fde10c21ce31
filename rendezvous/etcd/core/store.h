// EtcdStore: what a leader keeps in etcd, as a queue of changes that become transactions.
//
//   const auto ticket = store.save("train", text);
//   if (auto transaction = store.next(now)) …ask etcd…
//   store.answered(answer, now) → kept: all tickets up to that one are durable
//                                 again: ask the same once more
//                                 disowned: another leads, or etcd keeps nothing; nothing may be
//                                 done any more
//
// Each transaction is guarded twice.  By the leader's key: only who holds it writes.  And by a
// sequence number that each transaction raises by one: a try that was not answered may be carried
// out much later, after a newer one, and would take a job's record back.  So it finds another
// number and does nothing.  A transaction that is asked for again, and finds its own number, was
// carried out before.
//
// One transaction is on its way at a time; what comes meanwhile goes with the next, of each job
// only the last.  One that is not carried out in time ends the leadership: etcd may confirm that
// this replica leads and yet take no writes (it is full, or its disk hangs), and a leader whose
// decisions nobody hears is none.
//
// Pure, as EtcdLeader is.
#pragma once

#include "rendezvous/etcd/core/keys.h"
#include "rendezvous/etcd/core/requests.h"
#include "runtime/base/time.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>

namespace distrun::rendezvous::etcd {

// etcd takes 128 changes, and 1.5 MiB.
inline constexpr std::size_t kMaxChanges = 100;
inline constexpr std::size_t kMaxTransactionBytes = 1024UL * 1024;

std::string sequence_text(LeaseId lease, std::uint64_t number);

class EtcdStore {
 public:
  using Ticket = std::uint64_t;  // grows by one with each change
  struct Kept {
    Ticket upto = 0;
  };
  struct Again {
    std::string why;
  };
  struct Disowned {
    std::string why;
  };
  using Verdict = std::variant<Kept, Again, Disowned>;

  // `revision`, `lease`: of the leader's key.  `within`: from next() on, for all tries of a
  // transaction together.
  EtcdStore(Keys keys, Revision revision, LeaseId lease, Duration within);

  // With a lease of its own, the record goes when that ends.
  Ticket save(const std::string& job, std::string record, LeaseId lease = 0);
  Ticket forget(const std::string& job);
  // The transaction to ask for now; nullopt: one is on its way, or there is nothing to keep.
  std::optional<Transaction> next(TimePoint now);
  // REQUIRES: a transaction is on its way.  After Again it still is: ask for it once more.
  Verdict answered(const Answer& answer, TimePoint now);
  const Transaction& on_its_way() const { return *current_; }
  // For that.
  Duration time_left(TimePoint now) const { return keep_by_ - now; }
  bool idle() const { return !current_ && queue_.empty(); }
  std::size_t queued() const { return queue_.size(); }  // not more than there are jobs

 private:
  struct Queued {
    std::string key;
    std::optional<std::string> value;  // nullopt: forget
    LeaseId lease = 0;
    Ticket ticket = 0;  // of the first change that it stands for
  };
  Ticket add(std::string key, std::optional<std::string> value, LeaseId lease);
  Verdict judge(const Transacted& done);

  Keys keys_;
  Revision revision_;
  LeaseId lease_;
  Duration within_;
  std::uint64_t number_ = 0;  // of the last transaction that was carried out
  Ticket last_ticket_ = 0;
  std::deque<Queued> queue_;
  std::optional<Transaction> current_;
  Ticket current_upto_ = 0;
  TimePoint keep_by_{};  // current_
};

}  // namespace distrun::rendezvous::etcd
