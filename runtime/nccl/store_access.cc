#include "runtime/nccl/store_access.h"

#include "runtime/nccl/failed.h"

#include <algorithm>

namespace distrun::nccl {

StoreAccess::StoreAccess(const drb_store& lent) {
  drb_store clone{};
  clone.size = sizeof clone;
  const drb_status status = lent.clone(lent.user, &clone);
  if (status != DRB_OK) {
    throw Failed(status, std::string("the store cannot be cloned: ") + lent.last_error(lent.user));
  }
  store_ = clone;
}

StoreAccess::~StoreAccess() {
  store_.release(store_.user);
}

void StoreAccess::fail(const std::string& what, drb_status status) const {
  const char* text = store_.last_error(store_.user);
  throw Failed(status, what + ": " + (text && *text ? text : "the store gives no reason"));
}

void StoreAccess::set(const std::string& key, const std::string& value) {
  const drb_status status = store_.set(store_.user, key.c_str(), value.data(), value.size());
  if (status != DRB_OK) fail("store, set " + key, status);
}

std::string StoreAccess::get(const std::string& key, std::chrono::milliseconds timeout) {
  std::string value(kMaxValue, '\0');
  std::uint64_t bytes = 0;
  const drb_status status =
      store_.get(store_.user, key.c_str(), std::max<std::int64_t>(timeout.count(), 0), value.data(),
                 value.size(), &bytes);
  if (status != DRB_OK) fail("store, get " + key, status);
  if (bytes > value.size()) {
    throw Failed(DRB_STORE, "store, get " + key + ": the value has " + std::to_string(bytes) +
                                " bytes, and never should have more than " +
                                std::to_string(kMaxValue));
  }
  value.resize(bytes);
  return value;
}

bool StoreAccess::has(const std::string& key) {
  const char* name = key.c_str();
  const drb_status status = store_.wait(store_.user, &name, 1, 0);
  if (status == DRB_TIMEOUT) return false;
  if (status != DRB_OK) fail("store, look for " + key, status);
  return true;
}

std::int64_t StoreAccess::add(const std::string& key, std::int64_t delta) {
  std::int64_t sum = 0;
  const drb_status status = store_.add(store_.user, key.c_str(), delta, &sum);
  if (status != DRB_OK) fail("store, add to " + key, status);
  return sum;
}

}  // namespace distrun::nccl
