#include "runtime/worker/environment.h"

#include <charconv>
#include <cstdlib>
#include <limits>

namespace distrun {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw DistArgumentError(name + ": " + what);
}

std::string required(const Lookup& variable, const std::string& name) {
  const auto value = variable(name);
  if (!value)
    refuse(name, "is not set; start this program with distrun (or torchrun), which sets it");
  if (value->empty()) refuse(name, "is empty");
  return *value;
}

int number(const std::string& name, const std::string& text, int least, int most) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || stop != end) refuse(name, "not a number: \"" + text + "\"");
  if (value < least || value > most)
    refuse(name, "not in " + std::to_string(least) + ".." + std::to_string(most) + ": " + text);
  return value;
}

constexpr int kMost = std::numeric_limits<int>::max();

int required_number(const Lookup& variable, const std::string& name, int least, int most = kMost) {
  return number(name, required(variable, name), least, most);
}

int optional_number(const Lookup& variable, const std::string& name, int absent, int least) {
  const auto value = variable(name);
  return value ? number(name, *value, least, kMost) : absent;
}

// Both are counts of something: the first must be under the second.
void check_below(const char* rank_name, int rank, const char* size_name, int size) {
  if (rank >= size)
    refuse(rank_name, std::to_string(rank) + " is not below " + size_name + ", which is " +
                          std::to_string(size));
}

}  // namespace

WorkerInfo rendezvous_info_from(const Lookup& variable) {
  WorkerInfo info;
  info.rank = required_number(variable, "RANK", 0);
  info.world_size = required_number(variable, "WORLD_SIZE", 1);
  check_below("RANK", info.rank, "WORLD_SIZE", info.world_size);
  info.master_addr = required(variable, "MASTER_ADDR");
  info.master_port = static_cast<std::uint16_t>(required_number(variable, "MASTER_PORT", 1, 65535));
  // The exact text, as PyTorch's own rule has it.
  info.use_agent_store = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  info.restart_count = optional_number(variable, "TORCHELASTIC_RESTART_COUNT", 0, 0);
  return info;
}

WorkerInfo worker_info_from(const Lookup& variable) {
  WorkerInfo info = rendezvous_info_from(variable);
  info.local_rank = required_number(variable, "LOCAL_RANK", 0);
  info.local_world_size = required_number(variable, "LOCAL_WORLD_SIZE", 1);
  check_below("LOCAL_RANK", info.local_rank, "LOCAL_WORLD_SIZE", info.local_world_size);
  info.group_rank = required_number(variable, "GROUP_RANK", 0);
  info.group_world_size = optional_number(variable, "GROUP_WORLD_SIZE", info.group_rank + 1, 1);
  check_below("GROUP_RANK", info.group_rank, "GROUP_WORLD_SIZE", info.group_world_size);
  info.role_name = variable("ROLE_NAME").value_or("default");
  info.role_rank = optional_number(variable, "ROLE_RANK", info.rank, 0);
  info.role_world_size = optional_number(variable, "ROLE_WORLD_SIZE", info.world_size, 1);
  check_below("ROLE_RANK", info.role_rank, "ROLE_WORLD_SIZE", info.role_world_size);
  info.max_restarts = optional_number(variable, "TORCHELASTIC_MAX_RESTARTS", 0, 0);
  info.run_id = variable("TORCHELASTIC_RUN_ID").value_or("");
  info.error_file = variable("TORCHELASTIC_ERROR_FILE").value_or("");
  return info;
}

Lookup process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

WorkerInfo worker_info_from_environment() {
  return worker_info_from(process_environment());
}

bool is_launched() {
  return std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr;
}

}  // namespace distrun
