#include "launcher/machine.h"

#include "agent/process/cgroup.h"
#include "launcher/machine_files.h"
#include "launcher/text.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

namespace distrun::launcher {
namespace {

std::vector<int> allowed_cpus() {
  // The kernel refuses a mask that is too small for the machine; it can have at most 8192 CPUs.
  constexpr int kCpusMax = 8192;
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(kCpusMax),
                                                       [](cpu_set_t* p) { CPU_FREE(p); });
  const std::size_t size = CPU_ALLOC_SIZE(kCpusMax);
  std::vector<int> cpus;
  if (!set || ::sched_getaffinity(0, size, set.get()) != 0) return cpus;
  for (int cpu = 0; cpu < kCpusMax; ++cpu) {
    if (CPU_ISSET_S(static_cast<std::size_t>(cpu), size, set.get())) cpus.push_back(cpu);
  }
  return cpus;
}

std::string random_uuid() {
  unsigned char b[16] = {};
  if (::getrandom(b, sizeof b, 0) != static_cast<ssize_t>(sizeof b)) {
    // Only a kernel older than 3.17 gets here.  The pid keeps jobs of one host apart.
    const auto pid = static_cast<unsigned>(::getpid());
    for (int i = 0; i < 4; ++i) b[i] = static_cast<unsigned char>(pid >> (8 * i));
  }
  b[6] = static_cast<unsigned char>((b[6] & 0x0f) | 0x40);  // version 4, variant 1 (RFC 4122)
  b[8] = static_cast<unsigned char>((b[8] & 0x3f) | 0x80);
  char text[37];
  std::snprintf(text, sizeof text,
                "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
                b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
                b[15]);
  return text;
}

std::optional<double> quota_of(const std::string& folder, bool v2) {
  std::string quota_text;
  std::string period_text;
  if (v2) {
    const std::string both = read_file(folder + "/cpu.max");  // "max 100000" or "250000 100000"
    const auto words = split(trim(both), ' ');
    if (words.size() != 2) return std::nullopt;
    quota_text = words[0];
    period_text = words[1];
  } else {
    quota_text = read_file(folder + "/cpu.cfs_quota_us");  // -1: none
    period_text = read_file(folder + "/cpu.cfs_period_us");
  }
  const auto quota = parse_int(quota_text, 1, INT64_MAX);
  const auto period = parse_int(period_text, 1, INT64_MAX);
  if (!quota || !period) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

}  // namespace

std::optional<double> read_cpu_quota(const std::string& root) {
  std::optional<double> tightest;
  const std::string memberships = read_file(root + "proc/self/cgroup");
  const std::string mounts = read_file(root + "proc/self/mountinfo");
  for (const agent::Cgroup& cgroup : agent::find_cgroups("cpu", memberships, mounts)) {
    // Every level above us limits us too.  One that is not there reads empty.
    for (const std::string& folder : cgroup.folders()) {
      const auto quota = quota_of(root + folder, cgroup.v2);
      if (quota && (!tightest || *quota < *tightest)) tightest = quota;
    }
  }
  return tightest;
}

int usable_cpus(const Machine& machine) {
  int count = static_cast<int>(machine.cpus.size());
  if (machine.cpu_quota && *machine.cpu_quota < count) {
    count = static_cast<int>(std::ceil(*machine.cpu_quota));
  }
  return count < 1 ? 1 : count;
}

std::vector<int> parse_cpu_list(std::string_view text) {
  constexpr int kIdMax = 65535;
  std::vector<int> cpus;
  for (const std::string_view piece : split(trim(text), ',')) {
    const std::size_t dash = piece.find('-');
    const auto first = parse_int(piece.substr(0, dash), 0, kIdMax);
    const auto last = dash == piece.npos ? first : parse_int(piece.substr(dash + 1), 0, kIdMax);
    if (!first || !last) continue;
    for (auto cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

Topology read_topology(const std::vector<int>& cpus, const std::vector<int>& device_nodes,
                       const std::string& root) {
  std::map<int, int> node_of;
  for (const auto& [node, path] : numbered(root + "sys/devices/system/node", "node")) {
    for (const int cpu : parse_cpu_list(read_file(path + "/cpulist"))) node_of[cpu] = node;
  }
  Topology topology;
  topology.device_nodes = device_nodes;
  for (const int id : cpus) {
    const std::string folder = root + "sys/devices/system/cpu/cpu" + std::to_string(id);
    Topology::Cpu cpu;
    cpu.id = id;
    if (const auto it = node_of.find(id); it != node_of.end()) cpu.node = it->second;
    const auto package =
        parse_int(read_file(folder + "/topology/physical_package_id"), 0, INT32_MAX);
    cpu.package = static_cast<int>(package.value_or(0));
    const auto siblings = parse_cpu_list(read_file(folder + "/topology/thread_siblings_list"));
    cpu.core = siblings.empty() ? id : siblings.front();
    std::int64_t highest = 0;
    for (const auto& [index, cache] : numbered(folder + "/cache", "index")) {
      const std::string contents = read_file(cache + "/type");
      const std::string_view type = trim(contents);
      const auto level = parse_int(read_file(cache + "/level"), 1, 16);
      const auto shared = parse_cpu_list(read_file(cache + "/shared_cpu_list"));
      if ((type == "Unified" || type == "Data") && level && *level > highest && !shared.empty()) {
        highest = *level;
        cpu.cache = shared.front();
      }
    }
    topology.cpus.push_back(cpu);
  }
  return topology;
}

Machine read_machine(const Wanted& wanted, const Environment& environment,
                     const std::string& root) {
  Machine machine;
  std::error_code ignored;  // a working folder that is gone: paths then stay relative
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  machine.host_name = name;
  machine.working_folder = std::filesystem::current_path(ignored).string();
  machine.fresh_id = random_uuid();
  machine.terminal = ::isatty(STDOUT_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0;
  if (wanted.cpus) {
    machine.cpus = allowed_cpus();
    machine.cpu_quota = read_cpu_quota(root);
  }
  if (wanted.gpus) machine.gpus = count_gpus(environment, root);
  if (wanted.topology) {
    machine.topology = read_topology(machine.cpus, machine.gpus.numa_nodes, root);
  }
  return machine;
}

}  // namespace distrun::launcher
