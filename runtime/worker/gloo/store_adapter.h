// Our Store as Gloo's: it meets its peers through one.
#pragma once

#include "runtime/base/time.h"
#include <distrun/store.h>

#include <gloo/rendezvous/store.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace distrun {

class GlooStoreAdapter final : public gloo::rendezvous::Store {
 public:
  GlooStoreAdapter(distrun::Store& store, TimePoint deadline)
      : store_(store), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(key, {data.data(), data.size()});
  }
  std::vector<char> get(const std::string& key) override {
    store_.wait({key}, left());
    const std::string value = store_.get(key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { store_.wait(keys, left()); }
  // The whole joining has one deadline, whatever Gloo thinks of its parts.
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    store_.wait(keys, left());
  }

 private:
  Timeout left() const {
    return std::chrono::duration_cast<Timeout>(
        std::max(deadline_ - Clock::now(), Duration::zero()));
  }

  distrun::Store& store_;
  const TimePoint deadline_;
};

}  // namespace distrun
