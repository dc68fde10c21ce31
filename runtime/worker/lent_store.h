// A Store as a backend sees it: the functions of drb_store over a clone of its own.
#pragma once

#include <distrun/backend_abi.h>
#include <distrun/store.h>

#include <memory>

namespace distrun {

// Lives until its release() is called, as each of its clones does.
drb_store lend(const std::shared_ptr<Store>& store);

// Gives it back at the end of the scope.
class LentStore {
 public:
  explicit LentStore(const std::shared_ptr<Store>& store) : store_(lend(store)) {}
  ~LentStore() { store_.release(store_.user); }
  LentStore(const LentStore&) = delete;
  LentStore& operator=(const LentStore&) = delete;
  const drb_store* get() const { return &store_; }

 private:
  drb_store store_;
};

}  // namespace distrun
