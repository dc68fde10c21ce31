#include "runtime/worker/lent_store.h"

#include "runtime/worker/deadline.h"
#include "runtime/worker/waiting_in_store.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace distrun {
namespace {

// Between two looks for bad news, which cost the store a request each.
constexpr Timeout kPause(250);

struct Lent {
  std::shared_ptr<Store> store;
  std::shared_ptr<BadNews> news;
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
      return DRB_STORE;
    case ErrorKind::backend:
      return DRB_BACKEND;
  }
  return DRB_STORE;
}

// No exception goes across to C.
template <class F>
drb_status at_border(void* user, F&& f) noexcept {
  auto& lent = *static_cast<Lent*>(user);
  try {
    try {
      lent.news->listen();
      f(lent);
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

// `timeout_ms` negative: the store's own.
void wait_for(Lent& lent, const std::vector<std::string>& keys, std::int64_t timeout_ms) {
  const Timeout timeout = timeout_ms < 0 ? lent.store->timeout() : Timeout(timeout_ms);
  wait_or_hear(*lent.store, keys, deadline_after(timeout, "the store's timeout"),
               [&] { lent.news->listen(); });
}

drb_status set(void* user, const char* key, const void* value, std::uint64_t bytes) {
  return at_border(user, [&](Lent& lent) {
    lent.store->set(key, std::string_view(static_cast<const char*>(value), bytes));
  });
}

drb_status get(void* user, const char* key, std::int64_t timeout_ms, void* value,
               std::uint64_t capacity, std::uint64_t* bytes) {
  return at_border(user, [&](Lent& lent) {
    wait_for(lent, {key}, timeout_ms);
    const std::string all = lent.store->get(key);
    *bytes = all.size();
    const std::size_t copied = std::min<std::size_t>(all.size(), capacity);
    if (copied > 0) std::memcpy(value, all.data(), copied);
  });
}

drb_status wait(void* user, const char* const* keys, std::uint32_t n, std::int64_t timeout_ms) {
  return at_border(user, [&](Lent& lent) {
    wait_for(lent, std::vector<std::string>(keys, keys + n), timeout_ms);
  });
}

drb_status add(void* user, const char* key, std::int64_t delta, std::int64_t* sum) {
  return at_border(user, [&](Lent& lent) { *sum = lent.store->add(key, delta); });
}

const char* last_error(void* user) {
  return static_cast<Lent*>(user)->last_error.c_str();
}

void release(void* user) {
  delete static_cast<Lent*>(user);
}

drb_status clone(void* user, drb_store* out) {
  return at_border(user, [&](Lent& lent) { *out = lend(lent.store->clone(), lent.news); });
}

}  // namespace

void BadNews::listen() {
  const std::lock_guard lock(mutex_);
  if (!look_) return;
  if (heard_) std::rethrow_exception(heard_);
  if (Clock::now() < next_look_) return;
  next_look_ = Clock::now() + kPause;
  try {
    look_();
  } catch (...) {
    heard_ = std::current_exception();
    throw;
  }
}

std::exception_ptr BadNews::end() {
  const std::lock_guard lock(mutex_);
  look_ = nullptr;
  return heard_;
}

drb_store lend(const std::shared_ptr<Store>& store, const std::shared_ptr<BadNews>& news) {
  return {.size = sizeof(drb_store),
          .reserved = 0,
          .user = new Lent{store, news, {}},
          .set = set,
          .get = get,
          .wait = wait,
          .add = add,
          .last_error = last_error,
          .clone = clone,
          .release = release};
}

}  // namespace distrun
