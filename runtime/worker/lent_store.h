// A Store as a backend sees it: the functions of drb_store over a clone of its own.
#pragma once

#include "runtime/base/time.h"
#include <distrun/backend_abi.h>
#include <distrun/store.h>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>

namespace distrun {

// How a backend that waits in the store hears that there is nothing to wait for any more.
class BadNews {
 public:
  // `look` throws it.  Asked now and then by whoever uses the store, from any thread.
  explicit BadNews(std::function<void()> look) : look_(std::move(look)) {}

  // Throws it, and whatever was heard before.
  void listen();
  // It is not asked any more.  Returns what was heard.
  std::exception_ptr end();

 private:
  std::mutex mutex_;
  std::function<void()> look_;  // null: ended
  std::exception_ptr heard_;
  TimePoint next_look_;
};

// Lives until its release() is called, as each of its clones does.
drb_store lend(const std::shared_ptr<Store>& store, const std::shared_ptr<BadNews>& news);

// Gives it back at the end of the scope.
class LentStore {
 public:
  LentStore(const std::shared_ptr<Store>& store, const std::shared_ptr<BadNews>& news)
      : store_(lend(store, news)) {}
  ~LentStore() { store_.release(store_.user); }
  LentStore(const LentStore&) = delete;
  LentStore& operator=(const LentStore&) = delete;
  const drb_store* get() const { return &store_; }

 private:
  drb_store store_;
};

}  // namespace distrun
