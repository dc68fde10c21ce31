#include "launcher/gpus.h"

#include "launcher/machine_files.h"
#include "launcher/text.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

namespace distrun::launcher {
namespace {

struct Device {
  std::string pci;  // "0000:3b:00.0"; empty: not known
  std::string uuid;
};

// The value of "Name:   value" in a file of such lines.
std::string field(std::string_view contents, std::string_view name) {
  for (const std::string_view line : split(contents, '\n')) {
    if (!line.starts_with(name)) continue;
    return std::string(trim(line.substr(name.size())));
  }
  return {};
}

std::vector<Device> nvidia_devices(const std::string& root, std::string& found) {
  const auto nodes = numbered(root + "dev", "nvidia");
  const std::string folder = root + "proc/driver/nvidia/gpus/";
  const auto listed = entries(folder);
  found = std::to_string(listed.size()) + " in /proc/driver/nvidia/gpus, " +
          std::to_string(nodes.size()) + " of /dev/nvidia[0-9]";
  std::vector<Device> devices;
  for (const std::string& pci : listed) {
    std::string file = folder;
    file += pci;
    file += "/information";
    const std::string about = read_file(file);
    const auto minor = parse_int(field(about, "Device Minor:"), 0, 1'000'000);
    const bool usable =
        minor && std::any_of(nodes.begin(), nodes.end(),
                             [&minor](const auto& node) { return node.first == *minor; });
    if (!usable) continue;
    std::string uuid = field(about, "GPU UUID:");
    if (uuid.find('?') != std::string::npos) uuid.clear();  // the driver has not started it yet
    devices.push_back({pci, std::move(uuid)});
  }
  // No details to be had (a sandbox without /proc): the device nodes alone.
  if (devices.empty()) devices.resize(nodes.size());
  return devices;
}

std::vector<Device> amd_devices(const std::string& root, std::string& found) {
  std::vector<Device> devices;
  const bool driver = exists(root + "dev/kfd");
  if (driver) {
    for (const auto& [index, node] : numbered(root + "sys/class/kfd/kfd/topology/nodes", "")) {
      // CPUs are nodes too, without SIMD units; a GPU that a container may not use cannot be read.
      const std::string about = read_file(node + "/properties");
      if (!parse_int(field(about, "simd_count "), 1, INT32_MAX)) continue;
      std::string render_node = root + "dev/dri/renderD";
      render_node += field(about, "drm_render_minor ");
      if (!exists(render_node)) continue;
      const auto place = parse_int(field(about, "location_id "), 0, 0xffff).value_or(0);
      const auto domain = parse_int(field(about, "domain "), 0, INT32_MAX).value_or(0);
      char pci[32];
      std::snprintf(pci, sizeof pci, "%04x:%02x:%02x.%x", static_cast<unsigned>(domain),
                    static_cast<unsigned>(place >> 8), static_cast<unsigned>(place >> 3 & 0x1f),
                    static_cast<unsigned>(place & 7));
      devices.push_back({pci, {}});
    }
  }
  found = driver ? "/dev/kfd with " + std::to_string(devices.size()) + " GPUs" : "no /dev/kfd";
  return devices;
}

std::string describe(std::string_view name, std::optional<std::string_view> value) {
  if (!value) return std::string(name) + " is not set";
  return std::string(name) + " is " + quote(*value);
}

// Keeps of `devices` what a variable lets through.
int keep_visible(std::vector<Device>& devices, std::optional<std::string_view> variable) {
  std::vector<std::string> uuids;
  uuids.reserve(devices.size());
  for (const Device& device : devices) uuids.push_back(device.uuid);
  const Visible visible = visible_devices(variable, uuids);
  std::vector<Device> kept;
  kept.reserve(visible.devices.size());
  for (const std::size_t i : visible.devices) kept.push_back(devices[i]);
  devices = std::move(kept);
  return visible.mig_slices;
}

// The number that a text starts with, as strtoul reads it; nullopt: it starts with none.
std::optional<std::size_t> leading_number(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = parse_int(text.substr(0, digits), 0, 1'000'000);
  if (!number) return std::nullopt;
  return static_cast<std::size_t>(*number);
}

}  // namespace

Visible visible_devices(std::optional<std::string_view> variable,
                        const std::vector<std::string>& uuids) {
  Visible result;
  if (!variable) {
    for (std::size_t i = 0; i < uuids.size(); ++i) result.devices.push_back(i);
    return result;
  }
  std::vector<std::string_view> slices;
  for (const std::string_view piece : split(*variable, ',')) {
    const std::string_view entry = trim(piece);
    if (entry.starts_with("MIG-")) {
      if (std::find(slices.begin(), slices.end(), entry) != slices.end()) return {};
      slices.push_back(entry);
      continue;
    }
    if (!slices.empty()) break;  // the first entry says what kind the list is of
    std::optional<std::size_t> device;
    if (entry.starts_with("GPU-")) {
      std::size_t fitting = 0;
      for (std::size_t i = 0; i < uuids.size(); ++i) {
        const bool taken =
            std::find(result.devices.begin(), result.devices.end(), i) != result.devices.end();
        if (uuids[i].empty() ? !device && !taken : uuids[i].starts_with(entry)) {
          device = i;
          ++fitting;
        }
      }
      if (fitting != 1) device.reset();  // an abbreviation must fit one device only
    } else {
      device = leading_number(entry);
    }
    if (!device || *device >= uuids.size()) break;
    if (std::find(result.devices.begin(), result.devices.end(), *device) != result.devices.end()) {
      return {};
    }
    result.devices.push_back(*device);
  }
  result.mig_slices = static_cast<int>(slices.size());
  return result;
}

Gpus count_gpus(const Environment& environment, const std::string& root) {
  Gpus gpus;
  const auto cuda = lookup(environment, "CUDA_VISIBLE_DEVICES");
  std::string nvidia_found;
  std::vector<Device> devices = nvidia_devices(root, nvidia_found);
  const bool nvidia = !devices.empty();
  gpus.found = "NVIDIA: " + nvidia_found + ", " + describe("CUDA_VISIBLE_DEVICES", cuda);
  if (nvidia) {
    gpus.mig_slices = keep_visible(devices, cuda);
  } else {
    std::string amd_found;
    devices = amd_devices(root, amd_found);
    gpus.found += "; AMD: " + amd_found;
    // The runtime below HIP filters first; HIP numbers what is left, by its own variable or CUDA's.
    const auto rocr = lookup(environment, "ROCR_VISIBLE_DEVICES");
    const auto hip = lookup(environment, "HIP_VISIBLE_DEVICES");
    if (!devices.empty()) {
      gpus.found += ", " + describe("ROCR_VISIBLE_DEVICES", rocr) + ", " +
                    describe("HIP_VISIBLE_DEVICES", hip);
      keep_visible(devices, rocr);
      keep_visible(devices, hip ? hip : cuda);
    }
  }
  for (const Device& device : devices) {
    const std::string node = read_file(root + "sys/bus/pci/devices/" + device.pci + "/numa_node");
    gpus.numa_nodes.push_back(static_cast<int>(parse_int(node, 0, 65535).value_or(0)));
  }
  gpus.count = std::max(static_cast<int>(devices.size()), gpus.mig_slices > 0 ? 1 : 0);
  return gpus;
}

}  // namespace distrun::launcher
