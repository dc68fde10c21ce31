// What is asked of etcd, and what it answers, as plain structs: the part of its v3 interface that
// an election and a few records need.  How they look on the wire is gateway/json.h's concern.
//
// Any request may be carried out twice, or long after who asked has given up: a try that was not
// answered may still wait in a member that lost the others.  leader.h and store.h live with that.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace distrun::rendezvous::etcd {

using Revision = std::int64_t;
using LeaseId = std::int64_t;

struct KeyValue {
  std::string key;
  std::string value;
  Revision create_revision = 0;
  LeaseId lease = 0;
  bool operator==(const KeyValue&) const = default;
};

// ---- requests ----------------------------------------------------------------------------------

struct Grant {
  int ttl_seconds = 0;
  bool operator==(const Grant&) const = default;
};
struct KeepAlive {
  LeaseId lease = 0;
  bool operator==(const KeepAlive&) const = default;
};
struct Revoke {  // and all keys that hang on it
  LeaseId lease = 0;
  bool operator==(const Revoke&) const = default;
};
struct Range {
  std::string key;
  std::string end;  // empty: that key alone
  int limit = 0;    // 0: all
  bool operator==(const Range&) const = default;
};
struct Put {
  std::string key;
  std::string value;
  LeaseId lease = 0;  // 0: none
  bool operator==(const Put&) const = default;
};
struct Delete {
  std::string key;
  bool operator==(const Delete&) const = default;
};
struct CreatedAt {  // 0: there is no such key
  std::string key;
  Revision revision = 0;
  bool operator==(const CreatedAt&) const = default;
};
struct HasValue {
  std::string key;
  std::string value;
  bool operator==(const HasValue&) const = default;
};
using Condition = std::variant<CreatedAt, HasValue>;
using Change = std::variant<Put, Delete>;
// If all conditions hold, all changes are made, at once; else the keys of `otherwise` are read.
struct Transaction {
  std::vector<Condition> conditions;
  std::vector<Change> changes;
  std::vector<std::string> otherwise;
  bool operator==(const Transaction&) const = default;
};
using Request = std::variant<Grant, KeepAlive, Revoke, Range, Transaction>;

// ---- answers -----------------------------------------------------------------------------------

struct Granted {
  LeaseId lease = 0;
  int ttl_seconds = 0;  // not less than was asked for
};
struct KeptAlive {
  int ttl_seconds = 0;  // 0: there is no such lease any more
};
struct Revoked {};
struct Found {
  std::vector<KeyValue> keys;
  bool more = false;
  Revision revision = 0;  // of the whole store, when it was read
};
struct Transacted {
  bool succeeded = false;
  Revision revision = 0;
  std::vector<KeyValue> keys;  // of `otherwise`, those that exist
};
// Not carried out, or nobody knows.
struct Failed {
  std::string why;       // names the endpoints, and what to do
  bool refused = false;  // etcd understood it and will not do it: no use to ask again
};
using Answer = std::variant<Granted, KeptAlive, Revoked, Found, Transacted, Failed>;

}  // namespace distrun::rendezvous::etcd
