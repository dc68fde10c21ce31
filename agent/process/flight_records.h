// FlightRecords: where this node's workers leave their flight records (runtime/recorder), and what
// those say when a round has ended.
//
//   /dev/shm/distrun_flight_<run id>_<16 random>/round_<n>/rank_<R>.fr
//
// In memory, so that no disk holds up a worker.  The first worker that records makes the folders;
// for those that do not, there is nothing to make, to read or to remove.  After a round the files
// are copied to where its logs are; without logs they are kept in TMPDIR if a failure was reported,
// as error files are.  DISTRUN_FLIGHT_RECORDER_DIR in the launcher's own environment: that folder
// in place of /dev/shm, and nothing in it is removed.  DISTRUN_FLIGHT_RECORDER_SIZE=0: off.
#pragma once

#include "agent/core/events.h"
#include "agent/core/spec.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <string>
#include <utility>
#include <vector>

namespace distrun::agent {

// A job's folder of records: known before anything is started, so that whoever outlives the agent
// can remove it.
struct FlightPlace {
  std::string folder;     // empty: nothing is recorded
  std::string kept_stem;  // TMPDIR's, for what a failure leaves; empty: it stays where it is
  bool removed = true;    // at the job's end
};
FlightPlace flight_place(const Spec& spec);
void remove_records(const FlightPlace& place);

// What a round's records say.
struct FlightSummary {
  std::vector<std::string> lines;  // empty: nothing was recorded, or nobody waited
  std::vector<std::string> problems;
  std::string kept;  // the folder in which the records will be found; empty: nowhere
};

class FlightRecords {
 public:
  explicit FlightRecords(FlightPlace place) : place_(std::move(place)) {}

  // The folder for a new round's workers; empty: they are not to record.  Removes what an older
  // round left here.
  std::string open_round(const Assignment& assignment, int nproc);

  // REQUIRES: none of the round's workers is alive.  `logs`: the round's folder of logs; empty:
  // there is none.
  FlightSummary close_round(const GroupVerdict& verdict, const std::string& logs);

  // The job's end.
  void finish(bool failure_reported);

 private:
  FlightPlace place_;
  int round_ = 0;
  Assignment assignment_;
  int nproc_ = 0;
  std::vector<std::string> files_;  // of the round that was closed
  bool copied_ = false;
};

}  // namespace distrun::agent
