// One NCCL communicator: makes the calls that core/life.h allows, and polls to a deadline.
//
// Its steps are for one thread at a time; look() and abort() may come from any other meanwhile.  It
// is never aborted while a call into NCCL is under way, unless that call does not come back for ten
// seconds.  Whatever happens, ncclCommAbort or ncclCommDestroy is called, and once.
#pragma once

#include "runtime/nccl/api.h"
#include "runtime/nccl/core/life.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

namespace distrun::nccl {

class Communicator {
 public:
  struct Outcome {
    bool ok = false;
    bool failed_now = false;  // here, and not before or elsewhere: the caller has it aborted
    bool timed_out = false;
    std::string why;
  };
  using Calls = std::function<NcclResult(Comm comm)>;

  explicit Communicator(const Api& api) : api_(api) {}
  // Aborts what is neither closed nor aborted.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // `init` makes it and stores it in `place`, which is this object's own.
  Outcome join(const std::function<NcclResult(Comm* place)>& init, TimePoint deadline);
  // One that split or shrink made: waits until it is connected.
  Outcome adopt(Comm comm, TimePoint deadline);
  Outcome enqueue(const Calls& calls, TimePoint deadline);
  // Makes another one from this one, and stores it in `place`, which is this object's own: NCCL may
  // do so long after the call.  child(): the result; null if this rank is not part of it.
  Outcome derive(const std::function<NcclResult(Comm comm, Comm* place)>& call, TimePoint deadline);
  Comm child() const { return child_; }
  Outcome close(TimePoint deadline);
  // A call that concerns this process only, and is done when it returns.  Refused unless ready.
  Outcome local(const Calls& call);

  // The error it has run into by itself, in NCCL's words.
  std::optional<std::string> look();
  // Returns when ncclCommAbort has.  Nothing happens if it is closed or aborted, or never was.
  void abort(const std::string& why);

  Phase phase() const;

 private:
  Outcome run(Step step, TimePoint deadline, const std::function<NcclResult()>& first);
  // Nothing: it has failed meanwhile, and no call was made.
  std::optional<NcclResult> guarded(const std::function<NcclResult()>& call);
  NcclResult poll();
  std::string words_for(NcclResult result);

  const Api& api_;
  mutable std::mutex mutex_;
  std::condition_variable returned_;
  Life life_;             // guarded by mutex_
  int calls_ = 0;         // into NCCL, under way; guarded by mutex_
  Comm comm_ = nullptr;   // set in join or adopt
  Comm child_ = nullptr;  // set in derive
};

}  // namespace distrun::nccl
