// What is behind a ProcessGroup.
#pragma once

#include "runtime/worker/arguments.h"
#include "runtime/worker/group_engine.h"
#include "runtime/worker/joining.h"
#include <distrun/process_group.h>

#include <array>
#include <exception>
#include <map>
#include <string>
#include <vector>

namespace distrun {

struct ProcessGroup::Impl {
  // Joins the group.
  Impl(std::string of_backend, const GroupEngine::Identity& identity, MeetingPlace meeting_place,
       std::vector<int> ranks);

  // With the other ranks of this group: that all make the same one out of it.
  void agree_on_group(const std::vector<int>& members);

  const std::string backend;
  const MeetingPlace place;
  const std::vector<int> global_ranks;
  const Arguments arguments;
  GroupEngine engine;
  const int exceptions_at_birth = std::uncaught_exceptions();
  int next_group = 0;
  std::map<std::string, int> local_groups;  // how many of these ranks there were
};

}  // namespace distrun
