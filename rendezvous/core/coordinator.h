// Coordinator: many jobs at once, each a Rendezvous of its own that knows nothing of the others.
// It finds the job of a session, begins jobs and forgets ended ones.
//
// Pure, as Rendezvous is.
#pragma once

#include "rendezvous/core/rendezvous.h"
#include "runtime/base/time.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace distrun::rendezvous {

struct CoordinatorLimits {
  int max_jobs = 4096;
  // An ended job is kept for so long after its last member went, so that members that come back
  // hear how it ended; a job without members that never ended is kept for as long.
  Duration keep = std::chrono::minutes(10);
  std::string only_job;  // agent-hosted: all others are refused; empty: any
};

class Coordinator {
 public:
  Coordinator(CoordinatorLimits limits, Authority authority);

  // A job out of the journal, or of a takeover.
  void restore(Record record, TimePoint now);
  // REQUIRES: `now` never goes backwards.
  Effects handle(const Event& event, TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  std::vector<RendezvousState> jobs() const;  // in order of id
  const Rendezvous* find(const std::string& job) const;
  // Records of all jobs, for a snapshot of the journal.
  std::vector<Record> records() const;

 private:
  struct Job {
    std::unique_ptr<Rendezvous> rendezvous;
    std::optional<TimePoint> wakes;  // its place in wakeups_
  };
  using Jobs = std::map<std::string, Job>;

  void tell(Jobs::iterator job, const Event& event);
  void rearm(Jobs::iterator job, std::optional<TimePoint> at);
  Jobs::iterator job_for(const Join& join, std::optional<Refused>& refused);

  CoordinatorLimits limits_;
  Authority authority_;
  Jobs jobs_;
  std::unordered_map<int, std::string> job_of_;  // by session
  std::set<std::pair<TimePoint, std::string>> wakeups_;
  TimePoint now_{};  // of the event in hand
  Effects out_;
};

}  // namespace distrun::rendezvous
