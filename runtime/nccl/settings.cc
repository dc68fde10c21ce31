#include "runtime/nccl/settings.h"

#include "runtime/nccl/failed.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <optional>
#include <string_view>

namespace distrun::nccl {
namespace {

// Where a value comes from, for errors, and the value.
struct Given {
  std::string name;
  std::string value;
};

[[noreturn]] void refuse(const Given& given, const std::string& wanted) {
  throw Failed(DRB_ARGUMENT, given.name + ": not " + wanted + ": " + given.value);
}

int number(const Given& given, int least, int most) {
  int value = 0;
  const char* end = given.value.data() + given.value.size();
  const auto [stop, code] = std::from_chars(given.value.data(), end, value);
  if (code != std::errc() || stop != end || value < least || value > most) {
    refuse(given, "a number in " + std::to_string(least) + ".." + std::to_string(most));
  }
  return value;
}

bool truth(const Given& given) {
  if (given.value == "1" || given.value == "true") return true;
  if (given.value == "0" || given.value == "false") return false;
  refuse(given, "0 or 1");
}

constexpr int kDay = 24 * 3600 * 1000;

struct Key {
  const char* name;
  std::function<void(Settings&, const Given&)> set;
};

const std::vector<Key>& keys() {
  static const std::vector<Key> table{
      {"high_priority", [](Settings& s, const Given& g) { s.high_priority = truth(g); }},
      {"blocking_wait", [](Settings& s, const Given& g) { s.blocking_wait = truth(g); }},
      {"ranks_per_root",
       [](Settings& s, const Given& g) { s.ranks_per_root = number(g, 1, 1 << 20); }},
      {"watchdog_ms",
       [](Settings& s, const Given& g) {
         s.watchdog = Settings::Milliseconds(number(g, 1, kDay));
       }},
      {"store_poll_ms",
       [](Settings& s, const Given& g) {
         s.store_poll = Settings::Milliseconds(number(g, 0, kDay));
       }},
      {"diagnosis_ms",
       [](Settings& s, const Given& g) {
         s.diagnosis = Settings::Milliseconds(number(g, 0, kDay));
       }},
      {"abort_patience_ms",
       [](Settings& s, const Given& g) {
         s.abort_patience = Settings::Milliseconds(number(g, 0, kDay));
       }},
      {"cga_cluster_size",
       [](Settings& s, const Given& g) { s.comm.cga_cluster_size = number(g, 0, 8); }},
      {"min_ctas", [](Settings& s, const Given& g) { s.comm.min_ctas = number(g, 1, 1024); }},
      {"max_ctas", [](Settings& s, const Given& g) { s.comm.max_ctas = number(g, 1, 1024); }},
      {"split_share", [](Settings& s, const Given& g) { s.comm.split_share = truth(g) ? 1 : 0; }},
      {"traffic_class",
       [](Settings& s, const Given& g) { s.comm.traffic_class = number(g, 0, 255); }},
      {"net_name", [](Settings& s, const Given& g) { s.comm.net_name = g.value; }},
  };
  return table;
}

Failed unknown(const std::string& name) {
  std::string all;
  for (const Key& key : keys()) all.append(all.empty() ? "" : ", ").append(key.name);
  return {DRB_ARGUMENT, "nccl has no option " + name + "; it has " + all};
}

std::string variable_of(std::string_view key) {
  std::string name = "DISTRUN_NCCL_";
  for (const char c : key) {
    name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

}  // namespace

Settings Settings::from(const Pairs& options, const char* (*environment)(const char* name)) {
  for (const auto& option : options) {
    const std::string& name = option.first;
    const bool known =
        std::any_of(keys().begin(), keys().end(), [&](const Key& key) { return name == key.name; });
    if (!known) throw unknown(name);
  }
  Settings settings;
  for (const Key& key : keys()) {
    std::optional<Given> given;
    const std::string variable = variable_of(key.name);
    if (const char* value = environment(variable.c_str()); value && *value) {
      given = Given{variable, value};
    }
    for (const auto& [name, value] : options) {
      if (name == key.name) given = Given{"option " + name, value};
    }
    if (given) key.set(settings, *given);
  }
  if (settings.comm.min_ctas != CommConfig::kUnset &&
      settings.comm.max_ctas != CommConfig::kUnset &&
      settings.comm.min_ctas > settings.comm.max_ctas) {
    throw Failed(DRB_ARGUMENT, "min_ctas is " + std::to_string(settings.comm.min_ctas) +
                                   ", which is more than max_ctas, " +
                                   std::to_string(settings.comm.max_ctas));
  }
  return settings;
}

}  // namespace distrun::nccl
