#include "runtime/worker/lent_store.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace distrun {
namespace {

struct Lent {
  std::shared_ptr<Store> store;
  std::string last_error;
};

drb_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::timeout:
      return DRB_TIMEOUT;
    case ErrorKind::network:
      return DRB_NETWORK;
    case ErrorKind::invalid_argument:
    case ErrorKind::unsupported:
    case ErrorKind::store:
    case ErrorKind::queue_empty:
    case ErrorKind::backend:
      return DRB_STORE;
  }
  return DRB_STORE;
}

// No exception goes across to C.
template <class F>
drb_status at_border(void* user, F&& f) noexcept {
  auto& lent = *static_cast<Lent*>(user);
  try {
    try {
      f(*lent.store);
      return DRB_OK;
    } catch (const DistError& error) {
      lent.last_error = error.what();
      return status_of(error.kind());
    } catch (const std::exception& error) {
      lent.last_error = error.what();
    }
  } catch (...) {
    // Not even memory for the text.
  }
  return DRB_STORE;
}

// A negative one: the store's own.
Timeout timeout_of(const Store& store, std::int64_t ms) {
  return ms < 0 ? store.timeout() : Timeout(ms);
}

drb_status set(void* user, const char* key, const void* value, std::uint64_t bytes) {
  return at_border(user, [&](Store& store) {
    store.set(key, std::string_view(static_cast<const char*>(value), bytes));
  });
}

drb_status get(void* user, const char* key, std::int64_t timeout_ms, void* value,
               std::uint64_t capacity, std::uint64_t* bytes) {
  return at_border(user, [&](Store& store) {
    store.wait({key}, timeout_of(store, timeout_ms));
    const std::string all = store.get(key);
    *bytes = all.size();
    const std::size_t copied = std::min<std::size_t>(all.size(), capacity);
    if (copied > 0) std::memcpy(value, all.data(), copied);
  });
}

drb_status wait(void* user, const char* const* keys, std::uint32_t n, std::int64_t timeout_ms) {
  return at_border(user, [&](Store& store) {
    store.wait(std::vector<std::string>(keys, keys + n), timeout_of(store, timeout_ms));
  });
}

drb_status add(void* user, const char* key, std::int64_t delta, std::int64_t* sum) {
  return at_border(user, [&](Store& store) { *sum = store.add(key, delta); });
}

const char* last_error(void* user) {
  return static_cast<Lent*>(user)->last_error.c_str();
}

void release(void* user) {
  delete static_cast<Lent*>(user);
}

drb_status clone(void* user, drb_store* out) {
  return at_border(user, [&](Store& store) { *out = lend(store.clone()); });
}

}  // namespace

drb_store lend(const std::shared_ptr<Store>& store) {
  return {.size = sizeof(drb_store),
          .reserved = 0,
          .user = new Lent{store, {}},
          .set = set,
          .get = get,
          .wait = wait,
          .add = add,
          .last_error = last_error,
          .clone = clone,
          .release = release};
}

}  // namespace distrun
