// JSON of what a coordinator keeps and shows: a job's record, for the journal, and the state of its
// jobs, for the status page.
#pragma once

#include "rendezvous/core/rendezvous.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <string>
#include <string_view>
#include <vector>

namespace distrun::rendezvous {

// One line, without a line feed at its end.
std::string record_to_json(const Record& record);
// Never throws.  The error says which field is missing or cannot be.
Result<Record> record_from_json(std::string_view text);

// All jobs as one object: {"jobs":[{"job":"train","phase":"sealed",…,"members":[…]}]}.  Tokens and
// commands are not shown.
std::string status_json(const std::vector<RendezvousState>& jobs, TimePoint now);

}  // namespace distrun::rendezvous
