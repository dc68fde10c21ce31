// GPUs, counted without a vendor's library: what the drivers show in /proc, /sys and /dev, and what
// the *_VISIBLE_DEVICES variables leave of it.
//
// NVIDIA: /dev/nvidia<N> decides, since /proc/driver/nvidia/gpus shows a container the host's GPUs
// too; /proc gives PCI address and UUID.  AMD: /dev/kfd and the KFD topology in /sys/class/kfd.
// Limits: GPUs that a device cgroup forbids while their nodes are visible are counted (SLURM also
// sets CUDA_VISIBLE_DEVICES, which is respected); the order is that of the PCI bus, which is CUDA's
// unless the machine mixes models.
#pragma once

#include "launcher/environment.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

struct Gpus {
  int count = 0;                // devices that a worker would see
  std::vector<int> numa_nodes;  // of each, in that order; 0 if unknown
  // Entries of CUDA_VISIBLE_DEVICES that name MIG slices.  A process can use only one of them, so
  // they count as one device, unless each worker gets its own (--virtual-local-rank).
  int mig_slices = 0;
  std::string found;  // where was looked and what was seen, for a person
};

Gpus count_gpus(const Environment& environment, const std::string& root);

// What CUDA makes of CUDA_VISIBLE_DEVICES.  Entries are indices or (abbreviated) UUIDs; the first
// one that means nothing ends the list, a repeated one empties it.
struct Visible {
  std::vector<std::size_t> devices;  // indices into `uuids`
  int mig_slices = 0;
};
// `uuids`: of the devices that are there; an empty one is not known and fits any.
Visible visible_devices(std::optional<std::string_view> variable,
                        const std::vector<std::string>& uuids);

}  // namespace distrun::launcher
