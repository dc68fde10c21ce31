#include "launcher/numa.h"

#include <algorithm>
#include <string>

namespace distrun::launcher {
namespace {

using CpuList = std::vector<int>;
using Cpu = Topology::Cpu;

// The device's place among those of its node, and how many there are.
struct Share {
  std::size_t index = 0;
  std::size_t of = 0;
};

Share share_of(std::size_t device, const std::vector<int>& device_nodes) {
  Share share;
  for (std::size_t i = 0; i < device_nodes.size(); ++i) {
    if (device_nodes[i] != device_nodes[device]) continue;
    if (i < device) ++share.index;
    ++share.of;
  }
  return share;
}

template <class Keep>
CpuList cpus_where(const Topology& topology, Keep keep) {
  CpuList result;
  for (const Cpu& cpu : topology.cpus) {
    if (keep(cpu)) result.push_back(cpu.id);
  }
  return result;
}

// The node's CPUs in groups that agree in `key`, by lowest CPU.
std::vector<CpuList> groups_of(const Topology& topology, int node, int Cpu::*key) {
  std::map<int, CpuList> groups;
  for (const Cpu& cpu : topology.cpus) {
    if (cpu.node == node) groups[cpu.*key].push_back(cpu.id);
  }
  std::vector<CpuList> result;
  result.reserve(groups.size());
  for (auto& [lowest, cpus] : groups) result.push_back(std::move(cpus));
  // The key names the lowest CPU of the machine, which may be one that we are not allowed to use.
  std::sort(result.begin(), result.end());
  return result;
}

CpuList of_socket(const Topology& topology, int node) {
  // A node belongs to the package of its first CPU.
  std::map<int, int> package;
  for (const Cpu& cpu : topology.cpus) package.try_emplace(cpu.node, cpu.package);
  return cpus_where(topology,
                    [&](const Cpu& cpu) { return package.at(cpu.node) == package.at(node); });
}

Result<CpuList> exclusive(const Topology& topology, int node, Share share) {
  const std::vector<CpuList> cores = groups_of(topology, node, &Cpu::core);
  if (cores.size() < share.of) {
    return Error{Errc::invalid_argument, "exclusive: NUMA node " + std::to_string(node) + " has " +
                                             std::to_string(cores.size()) + " usable cores for " +
                                             std::to_string(share.of) +
                                             " devices or workers; use node or socket"};
  }
  const std::size_t each = cores.size() / share.of;
  const std::size_t more = cores.size() % share.of;
  const std::size_t first = share.index * each + std::min(share.index, more);
  const std::size_t count = each + (share.index < more ? 1 : 0);
  CpuList result;
  for (std::size_t i = first; i < first + count; ++i) {
    result.insert(result.end(), cores[i].begin(), cores[i].end());
  }
  std::sort(result.begin(), result.end());
  return result;
}

CpuList core_complex(const Topology& topology, int node, Share share) {
  std::vector<CpuList> groups = groups_of(topology, node, &Cpu::cache);
  std::stable_sort(groups.begin(), groups.end(),
                   [](const CpuList& a, const CpuList& b) { return a.size() > b.size(); });
  return groups[share.index % groups.size()];
}

// Workers as their own devices: blocks of equal size, one per NUMA node.
std::vector<int> spread_over_nodes(int nproc, const Topology& topology) {
  std::vector<int> nodes;
  for (const Cpu& cpu : topology.cpus) nodes.push_back(cpu.node);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  std::vector<int> result;
  const auto workers = static_cast<std::size_t>(nproc);
  for (std::size_t i = 0; i < workers && !nodes.empty(); ++i) {
    result.push_back(nodes[i * nodes.size() / workers]);
  }
  return result;
}

}  // namespace

std::string_view to_string(NumaBinding binding) {
  switch (binding) {
    case NumaBinding::node:
      return "node";
    case NumaBinding::socket:
      return "socket";
    case NumaBinding::exclusive:
      return "exclusive";
    case NumaBinding::core_complex:
      return "core-complex";
  }
  return "?";
}

Result<std::vector<std::vector<int>>> bind_workers(NumaBinding binding, int nproc,
                                                   const Topology& topology) {
  if (topology.cpus.empty()) {
    return Error{Errc::unsupported, "the machine's CPUs are not described under /sys"};
  }
  const bool on_gpus = !topology.device_nodes.empty();
  const std::vector<int> devices =
      on_gpus ? topology.device_nodes : spread_over_nodes(nproc, topology);
  if (devices.size() < static_cast<std::size_t>(nproc)) {
    return Error{Errc::invalid_argument, std::to_string(nproc) + " workers, but only " +
                                             std::to_string(devices.size()) +
                                             " GPUs to bind them to"};
  }
  std::vector<CpuList> result;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(nproc); ++rank) {
    const int node = devices[rank];
    CpuList of_node = cpus_where(topology, [node](const Cpu& cpu) { return cpu.node == node; });
    if (of_node.empty()) {
      return Error{Errc::invalid_argument, "GPU " + std::to_string(rank) + " hangs on NUMA node " +
                                               std::to_string(node) +
                                               ", of which this process may use no CPU"};
    }
    switch (binding) {
      case NumaBinding::node:
        result.push_back(std::move(of_node));
        break;
      case NumaBinding::socket:
        result.push_back(of_socket(topology, node));
        break;
      case NumaBinding::exclusive: {
        auto cpus = exclusive(topology, node, share_of(rank, devices));
        if (!cpus) return cpus.error();
        result.push_back(std::move(*cpus));
        break;
      }
      case NumaBinding::core_complex:
        result.push_back(core_complex(topology, node, share_of(rank, devices)));
        break;
    }
  }
  return result;
}

}  // namespace distrun::launcher
