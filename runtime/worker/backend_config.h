// What a backend's name asks for: "gloo", "nccl", "cpu:gloo,cuda:nccl".
#pragma once

#include <distrun/tensor.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun {

// Gloo's memory is the CPU's; it is this library's own.
inline constexpr std::string_view kGloo = "gloo";

struct BackendChoice {
  std::optional<DeviceType> device;  // not said: the backend's own
  std::string name;
  bool operator==(const BackendChoice&) const = default;
};

// Throws DistArgumentError: an unknown device, a device twice, a list with a name that has none,
// "gloo" for another device than the CPU.
std::vector<BackendChoice> parse_backends(std::string_view text);

// Letters, digits, '_', '-'.
bool is_backend_name(std::string_view name);

}  // namespace distrun
