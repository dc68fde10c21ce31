// How a process becomes a rank of a group: meets the others in the store, and connects to them.
#pragma once

#include "runtime/base/time.h"
#include "runtime/worker/group_engine.h"
#include <distrun/process_group.h>

#include <memory>
#include <string>

namespace distrun {

// Where a group's keys are: each group's under a prefix of its own.
struct MeetingPlace {
  std::shared_ptr<Store> store;  // null: this rank is alone
  std::string path;              // of the group that init_process_group made
  std::string local_address;
};

// Of the group `me`, below `place`.  Throws DistError that names who is missing.
GroupEngine::Links join(const MeetingPlace& place, const GroupEngine::Identity& me);

}  // namespace distrun
