#include "tests/runtime/nccl/memory_store.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace distrun::nccl::testing {

MemoryStore::MemoryStore() : table_(std::make_shared<Table>()) {}

const drb_store* MemoryStore::lend(const std::string& prefix) {
  const std::lock_guard lock(mutex_);
  auto& entry = lent_[prefix];
  if (!entry.first) {
    entry.first = std::make_unique<Clone>(Clone{table_, prefix, {}});
    entry.second = functions(entry.first.get());
  }
  return &entry.second;
}

std::string MemoryStore::value(const std::string& key) const {
  const std::lock_guard lock(table_->mutex);
  const auto found = table_->values.find(key);
  return found == table_->values.end() ? "" : found->second;
}
bool MemoryStore::has(const std::string& key) const {
  const std::lock_guard lock(table_->mutex);
  return table_->values.contains(key);
}
void MemoryStore::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(table_->mutex);
  table_->values[key] = value;
  table_->changed.notify_all();
}
void MemoryStore::break_down() {
  const std::lock_guard lock(table_->mutex);
  table_->broken = true;
  table_->changed.notify_all();
}
int MemoryStore::clones() const {
  const std::lock_guard lock(table_->mutex);
  return table_->clones;
}

drb_store MemoryStore::functions(Clone* lent) {
  drb_store store{};
  store.size = sizeof store;
  store.user = lent;
  store.set = [](void* user, const char* key, const void* value,
                 std::uint64_t bytes) -> drb_status {
    auto& clone = *static_cast<Clone*>(user);
    const std::lock_guard lock(clone.table->mutex);
    if (clone.table->broken) return clone.last_error = "the server is gone", DRB_NETWORK;
    clone.table->values[clone.prefix + key] =
        std::string(static_cast<const char*>(value), static_cast<std::size_t>(bytes));
    clone.table->changed.notify_all();
    return DRB_OK;
  };
  store.get = [](void* user, const char* key, std::int64_t timeout_ms, void* value,
                 std::uint64_t capacity, std::uint64_t* bytes) -> drb_status {
    auto& clone = *static_cast<Clone*>(user);
    auto& table = *clone.table;
    const std::string name = clone.prefix + key;
    std::unique_lock lock(table.mutex);
    table.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                           [&] { return table.broken || table.values.contains(name); });
    if (table.broken) return clone.last_error = "the server is gone", DRB_NETWORK;
    const auto found = table.values.find(name);
    if (found == table.values.end()) {
      clone.last_error = name + " is not there";
      return DRB_TIMEOUT;
    }
    *bytes = found->second.size();
    std::memcpy(value, found->second.data(), std::min<std::size_t>(capacity, found->second.size()));
    return DRB_OK;
  };
  store.wait = [](void* user, const char* const* keys, std::uint32_t n,
                  std::int64_t timeout_ms) -> drb_status {
    auto& clone = *static_cast<Clone*>(user);
    auto& table = *clone.table;
    std::unique_lock lock(table.mutex);
    const auto all = [&] {
      for (std::uint32_t i = 0; i < n; ++i) {
        if (!table.values.contains(clone.prefix + keys[i])) return false;
      }
      return true;
    };
    table.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                           [&] { return table.broken || all(); });
    if (table.broken) return clone.last_error = "the server is gone", DRB_NETWORK;
    if (all()) return DRB_OK;
    clone.last_error = "not there";
    return DRB_TIMEOUT;
  };
  store.add = [](void* user, const char* key, std::int64_t delta, std::int64_t* sum) -> drb_status {
    auto& clone = *static_cast<Clone*>(user);
    const std::lock_guard lock(clone.table->mutex);
    if (clone.table->broken) return clone.last_error = "the server is gone", DRB_NETWORK;
    std::string& value = clone.table->values[clone.prefix + key];
    *sum = (value.empty() ? 0 : std::stoll(value)) + delta;
    value = std::to_string(*sum);
    clone.table->changed.notify_all();
    return DRB_OK;
  };
  store.last_error = [](void* user) -> const char* {
    return static_cast<Clone*>(user)->last_error.c_str();
  };
  store.clone = [](void* user, drb_store* out) -> drb_status {
    const auto& clone = *static_cast<Clone*>(user);
    {
      const std::lock_guard lock(clone.table->mutex);
      ++clone.table->clones;
    }
    *out = functions(new Clone{clone.table, clone.prefix, {}});
    return DRB_OK;
  };
  store.release = [](void* user) {
    auto* clone = static_cast<Clone*>(user);
    {
      const std::lock_guard lock(clone->table->mutex);
      --clone->table->clones;
    }
    delete clone;
  };
  return store;
}

}  // namespace distrun::nccl::testing
