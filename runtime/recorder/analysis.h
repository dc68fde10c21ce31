// What the records of several ranks say together: who is where, and who keeps whom waiting.
//
//   rank 5 never entered all_reduce #1204 (float32 x 1000, sum) of group dp; ranks 0-4, 6, 7 wait
//   in
//     it (for 12.3 s)
//   rank 5: its last is all_reduce #1203 (float32 x 1000, sum) of group dp, completed 12.3 s ago
//
// Pure: records in, findings out.  It knows the ranks whose records it is given and says so of the
// others: those of other machines may be anywhere.
#pragma once

#include "runtime/recorder/flight_file.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace distrun::recorder {

enum class FindingKind {
  disagree,   // ranks called different things under one number
  missing,    // some wait in an operation that others never entered
  elsewhere,  // all ranks that are known here are in it; there are more, on other machines
  together,   // all ranks of the group are in it
  peer,       // a send or receive waits for its other side
};

struct Finding {
  FindingKind kind = FindingKind::missing;
  std::string group;
  std::uint64_t sequence = 0;
  std::vector<int> missing;       // global ranks that never entered it
  std::vector<int> waiting;       // those in it: carrying it out, or with it in their queue
  std::int64_t waited = 0;        // how long the first of them has been carrying it out, in ns
  bool root = false;              // one of `missing` waits for nobody itself
  std::string text;               // the sentence
  std::vector<std::string> more;  // what else is known of the missing ranks, a sentence each
};

struct AnalysisOptions {
  std::int64_t now = 0;  // CLOCK_MONOTONIC of that machine: when the ranks were last alive
  std::vector<int> local_ranks = {};  // that could have left a record; empty: those that did
};

// The causes first.
std::vector<Finding> analyse(std::span<const RankRecord> ranks, const AnalysisOptions& options);

// The findings as lines for a report: at most `limit`, and one that says how many were left out.
std::vector<std::string> lines_of(const std::vector<Finding>& findings, std::size_t limit = 16);

// "all_reduce #1204 (float32 x 1000, sum)", "recv #5 (float32 x 8, from 2, tag 7)"
std::string describe(const OpRecord& op);

// "dp", or "0" if it was not described.
std::string name_of(const GroupRecord& group);

// "rank 5", "ranks 0-4, 6, 7"
std::string ranks_text(std::vector<int> ranks);

// The last moment that any of the records tells of.
std::int64_t last_moment(std::span<const RankRecord> ranks);

}  // namespace distrun::recorder
