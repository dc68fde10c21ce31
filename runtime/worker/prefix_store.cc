#include <distrun/store.h>

namespace distrun {

PrefixStore::PrefixStore(std::string prefix, std::shared_ptr<Store> store)
    : prefix_(std::move(prefix)), store_(std::move(store)) {
  if (!store_) throw DistArgumentError("PrefixStore \"" + prefix_ + "\": the store is null");
}

std::vector<std::string> PrefixStore::prefixed(const std::vector<std::string>& keys) const {
  std::vector<std::string> result;
  result.reserve(keys.size());
  for (const std::string& key : keys) result.push_back(prefixed(key));
  return result;
}

std::string PrefixStore::description() const {
  return "PrefixStore \"" + prefix_ + "\" on " + store_->description();
}

void PrefixStore::set(const std::string& key, std::string_view value) {
  store_->set(prefixed(key), value);
}
std::string PrefixStore::get(const std::string& key) {
  return store_->get(prefixed(key));
}
std::int64_t PrefixStore::add(const std::string& key, std::int64_t delta) {
  return store_->add(prefixed(key), delta);
}
bool PrefixStore::check(const std::vector<std::string>& keys) {
  return store_->check(prefixed(keys));
}
std::string PrefixStore::compare_set(const std::string& key, std::string_view expected,
                                     std::string_view desired) {
  return store_->compare_set(prefixed(key), expected, desired);
}
bool PrefixStore::delete_key(const std::string& key) {
  return store_->delete_key(prefixed(key));
}
void PrefixStore::wait(const std::vector<std::string>& keys, Timeout timeout) {
  store_->wait(prefixed(keys), timeout);
}
std::int64_t PrefixStore::num_keys() {
  return store_->num_keys();
}
std::vector<std::string> PrefixStore::list_keys() {
  std::vector<std::string> keys;
  const std::string start = prefix_ + "/";
  for (std::string& key : store_->list_keys())
    if (key.starts_with(start)) keys.push_back(key.substr(start.size()));
  return keys;
}
bool PrefixStore::has_extended_api() const {
  return store_->has_extended_api();
}
void PrefixStore::append(const std::string& key, std::string_view value) {
  store_->append(prefixed(key), value);
}
std::vector<std::string> PrefixStore::multi_get(const std::vector<std::string>& keys) {
  return store_->multi_get(prefixed(keys));
}
void PrefixStore::multi_set(const KeyValues& values) {
  KeyValues all;
  all.reserve(values.size());
  for (const auto& [key, value] : values) all.emplace_back(prefixed(key), value);
  store_->multi_set(all);
}
void PrefixStore::queue_push(const std::string& key, std::string_view value) {
  store_->queue_push(prefixed(key), value);
}
std::string PrefixStore::queue_pop(const std::string& key) {
  return store_->queue_pop(prefixed(key));
}
std::string PrefixStore::queue_try_pop(const std::string& key) {
  return store_->queue_try_pop(prefixed(key));
}
std::int64_t PrefixStore::queue_len(const std::string& key) {
  return store_->queue_len(prefixed(key));
}
std::shared_ptr<Store> PrefixStore::clone() {
  return std::make_shared<PrefixStore>(prefix_, store_->clone());
}
void PrefixStore::set_timeout(Timeout timeout) {
  store_->set_timeout(timeout);
}
Timeout PrefixStore::timeout() const {
  return store_->timeout();
}

std::shared_ptr<Store> PrefixStore::underlying_non_prefix_store() const {
  std::shared_ptr<Store> store = store_;
  while (const auto* prefix = dynamic_cast<const PrefixStore*>(store.get()))
    store = prefix->underlying_store();
  return store;
}

}  // namespace distrun
