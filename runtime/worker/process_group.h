// What is behind a ProcessGroup: the engine, which moves memory of the CPU and through which the
// ranks agree and tell of failures, and for each other kind of memory a backend.
#pragma once

#include "runtime/worker/arguments.h"
#include "runtime/worker/device_group.h"
#include "runtime/worker/group_engine.h"
#include "runtime/worker/joining.h"
#include <distrun/process_group.h>

#include <array>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace distrun {

// What a group was asked to use.
struct Backends {
  std::string text;                                                   // as it was asked for
  std::vector<std::pair<DeviceType, const BackendLibrary*>> devices;  // beside the engine
  std::optional<Device> device_id;
  std::vector<std::pair<std::string, std::string>> settings;  // "nccl.max_ctas"

  // Throws DistError: no such backend, none that runs here, or nothing that `options` can mean.
  static Backends resolve(std::string_view text, const GroupOptions& options);
};

struct ProcessGroup::Impl {
  // Joins the group.  `parent`: whose communicators are split, where a backend can do it.
  Impl(Backends of_backends, const GroupEngine::Identity& identity, MeetingPlace meeting_place,
       std::vector<int> ranks, Impl* parent = nullptr);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // With the other ranks of this group: that all make the same one out of it.
  void agree_on_group(const std::vector<int>& members);

  // Whose memory that is; null: the engine's.  Throws DistUnsupportedError if it is nobody's.
  DeviceGroup* device_group(Device device, OpType op);
  // That one's communicator can be split: all ranks have one.
  static bool splits(const DeviceGroup& device);

  const Backends backends;
  const MeetingPlace place;
  const std::vector<int> global_ranks;
  const Arguments arguments;
  GroupEngine engine;
  std::vector<std::unique_ptr<DeviceGroup>> devices;
  const int exceptions_at_birth = std::uncaught_exceptions();
  int next_group = 0;
  std::map<std::string, int> local_groups;  // how many of these ranks there were
};

}  // namespace distrun
