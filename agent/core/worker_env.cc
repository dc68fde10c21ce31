#include "agent/core/worker_env.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace distrun::agent {

namespace {

constexpr std::string_view kDevices = "CUDA_VISIBLE_DEVICES";
constexpr std::string_view kNcclErrors = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
constexpr std::string_view kOmp = "OMP_NUM_THREADS";

const std::string* find(const Spec& spec, std::string_view name) {
  // The last of several counts, as it does for getenv after setenv.
  const auto found = std::find_if(spec.environment.rbegin(), spec.environment.rend(),
                                  [name](const auto& entry) { return entry.first == name; });
  return found == spec.environment.rend() ? nullptr : &found->second;
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n\r\f\v";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kBlank) - first + 1));
}

std::vector<std::string> comma_items(std::string_view text) {
  std::vector<std::string> items;
  while (true) {
    const auto comma = text.find(',');
    items.push_back(trimmed(text.substr(0, comma)));
    if (comma == std::string_view::npos) return items;
    text.remove_prefix(comma + 1);
  }
}

std::string entry(std::string_view name, std::string_view value) {
  std::string text;
  text.reserve(name.size() + 1 + value.size());
  text.append(name).append("=").append(value);
  return text;
}

// The variables that differ between the workers of a node.
constexpr std::string_view kPerWorker[] = {"RANK", "LOCAL_RANK", "ROLE_RANK",
                                           "TORCHELASTIC_ERROR_FILE"};

}  // namespace

WorkerEnvironment::WorkerEnvironment(const Spec& spec, const Assignment& assignment,
                                     const std::string& flight_folder)
    : assignment_(assignment), virtual_local_rank_(spec.virtual_local_rank) {
  DISTRUN_CHECK(!virtual_rank_problem(spec));
  const auto number = [](int value) { return std::to_string(value); };

  std::vector<std::pair<std::string_view, std::string>> ours = {
      {"GROUP_RANK", number(assignment.node_rank.value)},
      {"GROUP_WORLD_SIZE", number(assignment.node_count)},
      {"LOCAL_WORLD_SIZE", number(spec.nproc)},
      {"WORLD_SIZE", number(assignment.world_size)},
      {"ROLE_NAME", spec.role},
      {"ROLE_WORLD_SIZE", number(assignment.role_world_size)},
      {"MASTER_ADDR", assignment.master_addr},
      {"MASTER_PORT", number(assignment.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", number(assignment.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", number(spec.max_restarts)},
      {"TORCHELASTIC_RUN_ID", spec.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},  // we serve their store: rank 0 must not host one
  };
  if (!flight_folder.empty()) ours.emplace_back("DISTRUN_FLIGHT_RECORDER_DIR", flight_folder);
  if (!find(spec, kNcclErrors)) ours.emplace_back(kNcclErrors, "1");
  if (!find(spec, kOmp) && spec.nproc > 1) ours.emplace_back(kOmp, "1");

  std::unordered_set<std::string_view> taken(std::begin(kPerWorker), std::end(kPerWorker));
  for (const auto& [name, value] : ours) taken.insert(name);
  if (virtual_local_rank_) {
    taken.insert(kDevices);
    if (const std::string* devices = find(spec, kDevices)) devices_ = comma_items(*devices);
  }

  shared_.reserve(ours.size() + spec.environment.size());
  for (const auto& [name, value] : ours) shared_.push_back(entry(name, value));
  // Backwards, so that of several entries of one name the last one stays.
  for (auto it = spec.environment.rbegin(); it != spec.environment.rend(); ++it) {
    if (taken.insert(it->first).second) shared_.push_back(entry(it->first, it->second));
  }
}

EnvBlock WorkerEnvironment::of(LocalRank local_rank, const std::string& error_file) const {
  const int shown = virtual_local_rank_ ? 0 : local_rank.value;
  EnvBlock block;
  block.own_.reserve(std::size(kPerWorker) + 1);
  const auto add = [&block](std::string_view name, std::string_view value) {
    block.own_.push_back(entry(name, value));
  };
  add("RANK", std::to_string(assignment_.base_rank.value + local_rank.value));
  add("LOCAL_RANK", std::to_string(shown));
  add("ROLE_RANK", std::to_string(assignment_.base_role_rank + local_rank.value));
  add("TORCHELASTIC_ERROR_FILE", error_file);
  if (virtual_local_rank_) {
    add(kDevices, devices_.empty() ? std::to_string(local_rank.value)
                                   : devices_[static_cast<std::size_t>(local_rank.value)]);
  }

  block.pointers_.reserve(shared_.size() + block.own_.size() + 1);
  for (const std::string& text : block.own_) block.pointers_.push_back(text.c_str());
  for (const std::string& text : shared_) block.pointers_.push_back(text.c_str());
  block.pointers_.push_back(nullptr);
  return block;
}

std::optional<Error> virtual_rank_problem(const Spec& spec) {
  if (!spec.virtual_local_rank) return std::nullopt;
  const std::string* devices = find(spec, kDevices);
  if (!devices) return std::nullopt;
  const auto count = std::ssize(comma_items(*devices));
  if (count >= spec.nproc) return std::nullopt;
  return Error{Errc::invalid_argument, "--virtual-local-rank: CUDA_VISIBLE_DEVICES lists " +
                                           std::to_string(count) + " devices, too few for " +
                                           std::to_string(spec.nproc) + " workers: " + *devices};
}

// ---- arguments ---------------------------------------------------------------------------------

namespace {

constexpr std::string_view kMacro = "local_rank";

// [_a-zA-Z][_a-zA-Z0-9]*, whatever the locale.
std::size_t identifier_length(std::string_view text) {
  const auto letter = [](char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  std::size_t n = 0;
  while (n < text.size() && (letter(text[n]) || (n > 0 && text[n] >= '0' && text[n] <= '9'))) ++n;
  return n;
}

// How many characters after a '$' make the macro; 0: they do not.
std::size_t macro_length(std::string_view text) {
  const bool braced = text.starts_with('{');
  if (braced) text.remove_prefix(1);
  const std::size_t length = identifier_length(text);
  if (text.substr(0, length) != kMacro) return 0;
  if (!braced) return length;
  return text.substr(length).starts_with('}') ? length + 2 : 0;
}

std::string substitute(std::string_view text, const std::string& value) {
  std::string result;
  while (true) {
    const auto dollar = text.find('$');
    result.append(text.substr(0, dollar));
    if (dollar == std::string_view::npos) return result;
    text.remove_prefix(dollar);
    if (text.starts_with("$$")) {  // an escaped dollar: what follows is no macro
      result.append("$$");
      text.remove_prefix(2);
    } else if (const auto length = macro_length(text.substr(1))) {
      result.append(value);
      text.remove_prefix(1 + length);
    } else {
      result.append("$");
      text.remove_prefix(1);
    }
  }
}

}  // namespace

std::vector<std::string> worker_arguments(const Command& command, LocalRank local_rank) {
  const std::string value = std::to_string(local_rank.value);
  std::vector<std::string> argv = command.argv;
  for (std::size_t i = command.first_script_argument; i < argv.size(); ++i) {
    if (argv[i].find('$') != std::string::npos) argv[i] = substitute(argv[i], value);
  }
  return argv;
}

}  // namespace distrun::agent
