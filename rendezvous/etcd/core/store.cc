#include "rendezvous/etcd/core/store.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <utility>

namespace distrun::rendezvous::etcd {

std::string sequence_text(LeaseId lease, std::uint64_t number) {
  return std::to_string(lease) + ":" + std::to_string(number);
}

EtcdStore::EtcdStore(Keys keys, Revision revision, LeaseId lease, Duration within)
    : keys_(std::move(keys)), revision_(revision), lease_(lease), within_(within) {}

EtcdStore::Ticket EtcdStore::save(const std::string& job, std::string record, LeaseId lease) {
  return add(keys_.job(job), std::move(record), lease);
}

EtcdStore::Ticket EtcdStore::forget(const std::string& job) {
  return add(keys_.job(job), std::nullopt, 0);
}

EtcdStore::Ticket EtcdStore::add(std::string key, std::optional<std::string> value, LeaseId lease) {
  ++last_ticket_;
  const auto waits = std::find_if(queue_.begin(), queue_.end(),
                                  [&](const Queued& queued) { return queued.key == key; });
  if (waits != queue_.end()) {
    waits->value = std::move(value);
    waits->lease = lease;
  } else {
    queue_.push_back({std::move(key), std::move(value), lease, last_ticket_});
  }
  return last_ticket_;
}

std::optional<Transaction> EtcdStore::next(TimePoint now) {
  if (current_ || queue_.empty()) return std::nullopt;
  Transaction transaction;
  transaction.conditions.emplace_back(CreatedAt{keys_.leader(), revision_});
  transaction.conditions.emplace_back(HasValue{keys_.sequence(), sequence_text(lease_, number_)});
  transaction.changes.emplace_back(
      Put{keys_.sequence(), sequence_text(lease_, number_ + 1), lease_});
  std::size_t bytes = 0;
  for (std::size_t taken = 0; !queue_.empty() && taken < kMaxChanges; ++taken) {
    Queued& front = queue_.front();
    bytes += front.key.size() + (front.value ? front.value->size() : 0);
    if (taken > 0 && bytes > kMaxTransactionBytes) break;
    if (front.value) {
      transaction.changes.emplace_back(
          Put{std::move(front.key), std::move(*front.value), front.lease});
    } else {
      transaction.changes.emplace_back(Delete{std::move(front.key)});
    }
    queue_.pop_front();
  }
  // A newer change of a job that goes now may have a higher ticket: it is kept no later than said.
  current_upto_ = queue_.empty() ? last_ticket_ : queue_.front().ticket - 1;
  keep_by_ = now + within_;
  transaction.otherwise = {keys_.leader(), keys_.sequence()};
  current_ = transaction;
  return transaction;
}

EtcdStore::Verdict EtcdStore::answered(const Answer& answer, TimePoint now) {
  DISTRUN_CHECK(current_.has_value());
  if (const auto* failed = std::get_if<Failed>(&answer)) {
    if (failed->refused) return Disowned{failed->why};
    if (now < keep_by_) return Again{failed->why};
    return Disowned{"etcd has kept nothing for " + duration_text(within_) + ": " + failed->why};
  }
  const auto* done = std::get_if<Transacted>(&answer);
  DISTRUN_CHECK(done != nullptr);
  return judge(*done);
}

EtcdStore::Verdict EtcdStore::judge(const Transacted& done) {
  const auto find = [&](const std::string& key) {
    return std::find_if(done.keys.begin(), done.keys.end(),
                        [&](const KeyValue& entry) { return entry.key == key; });
  };
  if (!done.succeeded) {
    const auto leader = find(keys_.leader());
    if (leader == done.keys.end() || leader->create_revision != revision_) {
      return Disowned{leader == done.keys.end() ? keys_.leader() + " is gone"
                                                : leader->value + " leads now"};
    }
    const auto sequence = find(keys_.sequence());
    if (sequence == done.keys.end() || sequence->value != sequence_text(lease_, number_ + 1)) {
      return Disowned{"somebody else has written " + keys_.sequence() +
                      "; give each set of replicas a prefix of its own"};
    }
    // An earlier try of this very transaction was carried out.
  }
  ++number_;
  current_.reset();
  return Kept{current_upto_};
}

}  // namespace distrun::rendezvous::etcd
