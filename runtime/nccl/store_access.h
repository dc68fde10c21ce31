// The host's store, through the ABI's callbacks, as an object: a clone of its own, one call at a
// time, errors as Failed.
#pragma once

#include <distrun/backend_abi.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace distrun::nccl {

class StoreAccess {
 public:
  // Clones what it is lent; both throw Failed.  REQUIRES: all functions are there.
  explicit StoreAccess(const drb_store& lent);
  ~StoreAccess();
  StoreAccess(const StoreAccess&) = delete;
  StoreAccess& operator=(const StoreAccess&) = delete;

  void set(const std::string& key, const std::string& value);
  // Up to kMaxValue bytes; throws Failed(DRB_TIMEOUT) if the key is not there in time.
  std::string get(const std::string& key, std::chrono::milliseconds timeout);
  bool has(const std::string& key);
  std::int64_t add(const std::string& key, std::int64_t delta);

  const drb_store& raw() const { return store_; }

  static constexpr std::uint64_t kMaxValue = 16'384;

 private:
  [[noreturn]] void fail(const std::string& what, drb_status status) const;

  drb_store store_{};
};

}  // namespace distrun::nccl
