// FlightLog: what the engine of one group writes into this process's flight record
// (runtime/recorder): each operation when it is called, begun and over.  Without a record it costs
// a branch.
#pragma once

#include "runtime/base/time.h"
#include "runtime/recorder/op_recorder.h"
#include "runtime/worker/call.h"
#include "runtime/worker/point_to_point.h"
#include <distrun/store.h>

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

namespace distrun {

class FlightLog {
 public:
  using Entry = recorder::OpHandle;

  // `ranks`: global ones, in the order of the group; empty: not known.
  FlightLog(std::string_view name, std::string_view description, std::string_view backend, int rank,
            int size, const std::vector<int>& ranks);
  ~FlightLog() { recorder_->close_group(group_); }
  FlightLog(const FlightLog&) = delete;
  FlightLog& operator=(const FlightLog&) = delete;

  // REQUIRES: the call is numbered.
  Entry scheduled(const Call& call, Timeout timeout);
  Entry began(const Call& call, Timeout timeout);
  Entry scheduled(const P2PCall& call, Timeout timeout);

  void started(const Entry& entry) { recorder_->started(entry); }
  void ended(const Entry& entry, bool ok) { recorder_->completed(entry, ok); }

 private:
  recorder::OpInfo info_of(const Call& call, Timeout timeout) const;

  recorder::OpRecorder* const recorder_ = recorder::recorder();
  recorder::GroupRef group_;
  std::atomic<std::uint64_t> next_p2p_ = 0;
};

}  // namespace distrun
