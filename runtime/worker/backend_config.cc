#include "runtime/worker/backend_config.h"

#include <distrun/error.h>

#include <algorithm>
#include <array>

namespace distrun {
namespace {

constexpr std::array kDevices = {DeviceType::cpu, DeviceType::cuda, DeviceType::rocm};

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw DistArgumentError("backend \"" + std::string(text) + "\": " + why +
                          "; as in \"gloo\", \"nccl\" or \"cpu:gloo,cuda:nccl\"");
}

DeviceType device_of(std::string_view name, std::string_view text) {
  std::string known;
  for (const DeviceType device : kDevices) {
    if (name == to_string(device)) return device;
    known += (known.empty() ? "" : ", ") + std::string(to_string(device));
  }
  refuse(text, "no device is called \"" + std::string(name) + "\" (there are: " + known + ")");
}

}  // namespace

bool is_backend_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

std::vector<BackendChoice> parse_backends(std::string_view text) {
  std::vector<BackendChoice> choices;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const std::size_t colon = part.find(':');
    BackendChoice choice;
    if (colon != std::string_view::npos) choice.device = device_of(part.substr(0, colon), text);
    choice.name = part.substr(colon == std::string_view::npos ? 0 : colon + 1);
    if (!is_backend_name(choice.name)) refuse(text, "no name of a backend");
    if (choice.name == kGloo) {
      if (choice.device.value_or(DeviceType::cpu) != DeviceType::cpu)
        refuse(text, "gloo takes memory of the CPU only");
      choice.device = DeviceType::cpu;
    }
    for (const BackendChoice& other : choices)
      if (other.device == choice.device)
        refuse(text, choice.device ? "two backends for " + std::string(to_string(*choice.device))
                                   : "of several backends each needs a device");
    choices.push_back(std::move(choice));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  const bool several = choices.size() > 1;
  for (const BackendChoice& choice : choices)
    if (several && !choice.device) refuse(text, "of several backends each needs a device");
  return choices;
}

}  // namespace distrun
