// A store in this process's memory, behind the ABI's callbacks: what a host gives a backend.
#pragma once

#include <distrun/backend_abi.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace distrun::nccl::testing {

class MemoryStore {
 public:
  MemoryStore();
  // Valid as long as this is; clones live on.  `prefix` goes before every key.
  const drb_store* lend(const std::string& prefix);

  std::string value(const std::string& key) const;  // empty: none
  bool has(const std::string& key) const;
  void set(const std::string& key, const std::string& value);
  // From now on every call fails, as if the server were gone.
  void break_down();
  int clones() const;

 private:
  struct Table {
    mutable std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, std::string> values;
    bool broken = false;
    int clones = 0;
  };
  struct Clone {
    std::shared_ptr<Table> table;
    std::string prefix;
    std::string last_error;
  };
  static drb_store functions(Clone* lent);

  std::shared_ptr<Table> table_;
  std::mutex mutex_;
  std::map<std::string, std::pair<std::unique_ptr<Clone>, drb_store>> lent_;
};

}  // namespace distrun::nccl::testing
