// A HashStore through which ranks of one process believe that they are on several hosts.
#pragma once

#include <distrun/store.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace distrun::test {

class HostsStore final : public Store {
 public:
  // Each rank's host.
  explicit HostsStore(std::vector<int> host_of, std::shared_ptr<Store> of = nullptr)
      : host_of_(std::move(host_of)), store_(of ? std::move(of) : std::make_shared<HashStore>()) {}

  using Store::wait;
  std::string description() const override { return store_->description(); }
  // What makes out a host is written by each rank but rank 0, whose host is 0.
  void set(const std::string& key, std::string_view value) override {
    const auto at = key.find("/hosts/host/");
    if (at == std::string::npos) return store_->set(key, value);
    const auto rank = static_cast<std::size_t>(std::stoi(key.substr(key.rfind('/') + 1)));
    const int host = host_of_.at(rank);
    store_->set(
        key, host == 0 ? std::string(value) : std::string(value) + " host " + std::to_string(host));
  }
  std::string get(const std::string& key) override { return store_->get(key); }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    return store_->add(key, delta);
  }
  bool check(const std::vector<std::string>& keys) override { return store_->check(keys); }
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override {
    return store_->compare_set(key, expected, desired);
  }
  bool delete_key(const std::string& key) override { return store_->delete_key(key); }
  void wait(const std::vector<std::string>& keys, Timeout timeout) override {
    store_->wait(keys, timeout);
  }
  std::int64_t num_keys() override { return store_->num_keys(); }
  std::shared_ptr<Store> clone() override {
    return std::make_shared<HostsStore>(host_of_, store_->clone());
  }
  void set_timeout(Timeout timeout) override { store_->set_timeout(timeout); }
  Timeout timeout() const override { return store_->timeout(); }

 private:
  const std::vector<int> host_of_;
  const std::shared_ptr<Store> store_;
};

}  // namespace distrun::test
