// Keys: what is where in etcd.
//
//   PREFIX/leader       "10.0.0.1:29400 host-a.4711.9f3c21d0": who leads, on its lease
//   PREFIX/sequence     "7587862094:12": the leader's lease, and how often it has written; on it,
//   too PREFIX/jobs/NAME    a job's record (protocol/record_json.h)
#pragma once

#include <string>
#include <string_view>

namespace distrun::rendezvous::etcd {

struct Keys {
  std::string prefix = "/distrun";

  std::string leader() const { return prefix + "/leader"; }
  std::string sequence() const { return prefix + "/sequence"; }
  std::string jobs() const { return prefix + "/jobs/"; }
  std::string jobs_end() const { return prefix + "/jobs0"; }  // '0' follows '/'
  std::string job(std::string_view name) const { return jobs() + std::string(name); }
};

}  // namespace distrun::rendezvous::etcd
