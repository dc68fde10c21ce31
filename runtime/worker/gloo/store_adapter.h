// Our Store as Gloo's: it meets its peers through one.
#pragma once

#include "runtime/base/time.h"
#include "runtime/worker/waiting_in_store.h"
#include <distrun/store.h>

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace distrun {

class GlooStoreAdapter final : public gloo::rendezvous::Store {
 public:
  GlooStoreAdapter(distrun::Store& store, TimePoint deadline, std::function<void()> hear)
      : store_(store), deadline_(deadline), hear_(std::move(hear)) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(key, {data.data(), data.size()});
  }
  std::vector<char> get(const std::string& key) override {
    wait({key});
    const std::string value = store_.get(key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    wait_or_hear(store_, keys, deadline_, hear_);
  }
  // The whole joining has one deadline, whatever Gloo thinks of its parts.
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  distrun::Store& store_;
  const TimePoint deadline_;
  const std::function<void()> hear_;
};

}  // namespace distrun
