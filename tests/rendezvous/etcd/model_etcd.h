// ModelEtcd: what etcd does with the requests of an election and its records, in memory and in the
// caller's time.  For tests of the cores.
#pragma once

#include "rendezvous/etcd/core/requests.h"
#include "runtime/base/time.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace distrun::rendezvous::etcd {

class ModelEtcd {
 public:
  Answer carry_out(const Request& request, TimePoint now) {
    expire(now);
    return std::visit([&](const auto& held) { return on(held, now); }, request);
  }
  // Ends leases whose time is over.  True: a key went with one.
  bool expire(TimePoint now) {
    bool gone = false;
    for (auto it = leases_.begin(); it != leases_.end();) {
      if (it->second.ends > now) {
        ++it;
        continue;
      }
      gone = end_keys_of(it->first) || gone;
      it = leases_.erase(it);
    }
    return gone;
  }
  // As a member does that was elected: no lease ends sooner than in its whole time.
  void promote(TimePoint now) {
    for (auto& [id, lease] : leases_)
      lease.ends = std::max(lease.ends, now + std::chrono::seconds(lease.ttl_seconds));
  }
  const KeyValue* find(const std::string& key) const {
    const auto found = keys_.find(key);
    return found == keys_.end() ? nullptr : &found->second;
  }
  // One that never ends.
  void add_lease(LeaseId lease) { leases_[lease] = {1, TimePoint::max()}; }
  void put(const std::string& key, const std::string& value) { on_change(Put{key, value, 0}); }
  void erase(const std::string& key) { on_change(Delete{key}); }

 private:
  struct Lease {
    int ttl_seconds = 0;
    TimePoint ends{};
  };
  Answer on(const Grant& grant, TimePoint now) {
    const LeaseId id = ++last_lease_;
    leases_[id] = {grant.ttl_seconds, now + std::chrono::seconds(grant.ttl_seconds)};
    return Granted{id, grant.ttl_seconds};
  }
  Answer on(const KeepAlive& keep, TimePoint now) {
    const auto found = leases_.find(keep.lease);
    if (found == leases_.end()) return KeptAlive{0};
    found->second.ends = now + std::chrono::seconds(found->second.ttl_seconds);
    return KeptAlive{found->second.ttl_seconds};
  }
  Answer on(const Revoke& revoke, TimePoint) {
    end_keys_of(revoke.lease);
    leases_.erase(revoke.lease);
    return Revoked{};
  }
  Answer on(const Range& range, TimePoint) {
    Found found;
    found.revision = revision_;
    for (const auto& [key, value] : keys_) {
      if (range.end.empty() ? key != range.key : key < range.key || key >= range.end) continue;
      if (range.limit > 0 && found.keys.size() == static_cast<std::size_t>(range.limit)) {
        found.more = true;
        break;
      }
      found.keys.push_back(value);
    }
    return found;
  }
  Answer on(const Transaction& transaction, TimePoint) {
    Transacted done;
    done.succeeded = std::all_of(transaction.conditions.begin(), transaction.conditions.end(),
                                 [this](const Condition& condition) { return holds(condition); });
    if (done.succeeded) {
      for (const Change& change : transaction.changes) {
        const auto* put = std::get_if<Put>(&change);
        if (put == nullptr || put->lease == 0 || leases_.contains(put->lease)) continue;
        Failed failed;
        failed.why = "etcdserver: requested lease not found";
        failed.refused = true;
        return failed;
      }
      ++revision_;
      for (const Change& change : transaction.changes) {
        std::visit([this](const auto& held) { apply(held); }, change);
      }
    } else {
      for (const std::string& key : transaction.otherwise) {
        if (const KeyValue* found = find(key)) done.keys.push_back(*found);
      }
    }
    done.revision = revision_;
    return done;
  }
  bool holds(const Condition& condition) const {
    if (const auto* created = std::get_if<CreatedAt>(&condition)) {
      const KeyValue* found = find(created->key);
      return (found == nullptr ? 0 : found->create_revision) == created->revision;
    }
    const auto& has = std::get<HasValue>(condition);
    const KeyValue* found = find(has.key);
    return found != nullptr && found->value == has.value;
  }
  void on_change(const Change& change) {
    ++revision_;
    std::visit([this](const auto& held) { apply(held); }, change);
  }
  void apply(const Put& put) {
    KeyValue& entry = keys_[put.key];
    if (entry.create_revision == 0) entry.create_revision = revision_;
    entry.key = put.key;
    entry.value = put.value;
    entry.lease = put.lease;
  }
  void apply(const Delete& gone) { keys_.erase(gone.key); }
  bool end_keys_of(LeaseId lease) {
    const std::size_t gone =
        std::erase_if(keys_, [&](const auto& entry) { return entry.second.lease == lease; });
    if (gone > 0) ++revision_;
    return gone > 0;
  }

  Revision revision_ = 1;
  LeaseId last_lease_ = 100;
  std::map<std::string, KeyValue> keys_;
  std::map<LeaseId, Lease> leases_;
};

}  // namespace distrun::rendezvous::etcd
