#include "rendezvous/core/coordinator.h"

#include "rendezvous/core/terms.h"
#include "rendezvous/core/words.h"
#include "runtime/base/check.h"

#include <algorithm>
#include <iterator>

namespace distrun::rendezvous {
namespace {

// Whether a job can begin anew under this one's name, by a node that had no place in it.  With
// distrund: whoever is still here has been told of its end; or nobody is here, and no round ever
// began, so that its terms bind nobody (somebody mistyped --nnodes, and tries again).
bool makes_room(const Rendezvous& job) {
  if (job.phase() == RoundPhase::over || job.abandoned()) return true;
  return job.empty() && job.record().last.generation.value < 0;
}

}  // namespace

Coordinator::Coordinator(CoordinatorLimits limits, Authority authority)
    : limits_(std::move(limits)), authority_(std::move(authority)) {}

void Coordinator::restore(Record record, TimePoint now) {
  const std::string name = record.job;
  const auto [job, is_new] = jobs_.try_emplace(name);
  DISTRUN_CHECK(is_new);
  job->second.rendezvous = std::make_unique<Rendezvous>(std::move(record), authority_, now);
  rearm(job, now + limits_.keep);
}

Effects Coordinator::handle(const Event& event, TimePoint now) {
  DISTRUN_CHECK(now >= now_);
  now_ = now;
  out_.clear();
  if (const auto* received = std::get_if<Received>(&event)) {
    const auto known = job_of_.find(received->session.value);
    if (known != job_of_.end()) {
      tell(jobs_.find(known->second), event);
    } else if (const auto* join = std::get_if<Join>(&received->message)) {
      std::optional<Refused> refused;
      const auto job = job_for(*join, refused);
      if (refused) {
        Happening happening;
        happening.kind = HappeningKind::refuse;
        happening.job = join->job;
        happening.node = join->node;
        happening.host = join->host;
        happening.text = join->host + " is refused: " + refused->why;
        out_.emplace_back(Note{std::move(happening)});
        out_.emplace_back(Send{received->session, *refused});
        out_.emplace_back(Drop{received->session});
      } else {
        job_of_[received->session.value] = join->job;
        tell(job, event);
      }
    }
  } else if (const auto* closed = std::get_if<Closed>(&event)) {
    const auto known = job_of_.find(closed->session.value);
    if (known != job_of_.end()) {
      const auto job = jobs_.find(known->second);
      job_of_.erase(known);
      tell(job, event);
    }
  } else if (std::holds_alternative<ReachedAt>(event)) {
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job) tell(job, event);
  }
  // Deadlines, also those that came before this event.
  while (!wakeups_.empty() && wakeups_.begin()->first <= now_) {
    const auto job = jobs_.find(wakeups_.begin()->second);
    if (job->second.rendezvous->empty()) {
      out_.emplace_back(Forget{job->first});
      rearm(job, std::nullopt);
      jobs_.erase(job);
    } else {
      tell(job, Tick{});
      // A deadline that its Tick does not move would stop all other jobs: an error of ours.
      if (job->second.wakes && *job->second.wakes <= now_) {
        rearm(job, now_ + std::chrono::milliseconds(1));
      }
    }
  }
  return std::move(out_);
}

std::optional<TimePoint> Coordinator::next_deadline() const {
  if (wakeups_.empty()) return std::nullopt;
  return wakeups_.begin()->first;
}

std::vector<RendezvousState> Coordinator::jobs() const {
  std::vector<RendezvousState> states;
  for (const auto& [name, job] : jobs_) states.push_back(job.rendezvous->state());
  return states;
}

const Rendezvous* Coordinator::find(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : found->second.rendezvous.get();
}

std::vector<Record> Coordinator::records() const {
  std::vector<Record> records;
  for (const auto& [name, job] : jobs_) records.push_back(job.rendezvous->record());
  return records;
}

void Coordinator::tell(Jobs::iterator job, const Event& event) {
  Rendezvous& rendezvous = *job->second.rendezvous;
  Effects effects = rendezvous.handle(event, now_);
  for (const Effect& effect : effects) {
    if (const auto* drop = std::get_if<Drop>(&effect)) job_of_.erase(drop->session.value);
  }
  if (out_.empty()) {
    out_ = std::move(effects);
  } else {
    out_.insert(out_.end(), std::make_move_iterator(effects.begin()),
                std::make_move_iterator(effects.end()));
  }
  rearm(job, rendezvous.empty() ? now_ + limits_.keep : rendezvous.next_deadline());
}

void Coordinator::rearm(Jobs::iterator job, std::optional<TimePoint> at) {
  std::optional<TimePoint>& wakes = job->second.wakes;
  if (wakes == at) return;
  if (wakes) wakeups_.erase({*wakes, job->first});
  wakes = at;
  if (wakes) wakeups_.emplace(*wakes, job->first);
}

Coordinator::Jobs::iterator Coordinator::job_for(const Join& join,
                                                 std::optional<Refused>& refused) {
  // The launcher that runs this coordinator is about to end.  Then its port is free for the next
  // job, whatever its name.
  const auto own = jobs_.find(limits_.only_job);
  if (authority_.host && own != jobs_.end() && !join.held &&
      own->second.rendezvous->phase() == RoundPhase::over) {
    refused =
        refuse(RefusalCode::not_yet,
               "job " + limits_.only_job + " is over, and its launcher about to end; come again");
    return jobs_.end();
  }
  if (!limits_.only_job.empty() && join.job != limits_.only_job) {
    refused = refuse(RefusalCode::limit, "this coordinator runs in the launcher of job " +
                                             limits_.only_job + " and serves no other, such as " +
                                             join.job + "; use another port, or distrund");
    return jobs_.end();
  }
  auto job = jobs_.find(join.job);
  // Who could not begin a job does not make another one's end forgotten.
  const bool may_begin = join.version == kProtocolVersion && !terms_problem(join.terms);
  if (job != jobs_.end() && !authority_.host && !join.held && may_begin &&
      makes_room(*job->second.rendezvous)) {
    for (const MemberState& member : job->second.rendezvous->state().members) {
      job_of_.erase(member.session.value);
      out_.emplace_back(Drop{member.session});
    }
    // Else a coordinator that is killed before the new one's first round would restore the old one.
    out_.emplace_back(Forget{job->first});
    rearm(job, std::nullopt);
    jobs_.erase(job);
    job = jobs_.end();
  }
  if (job != jobs_.end()) return job;
  if (join.version != kProtocolVersion) {
    refused =
        refuse(RefusalCode::version, "it speaks protocol version " + std::to_string(join.version) +
                                         ", the coordinator " + std::to_string(kProtocolVersion) +
                                         "; use one version of distrun on all nodes");
  } else if (const auto problem = terms_problem(join.terms)) {
    refused = refuse(RefusalCode::terms, *problem);
  } else if (static_cast<int>(jobs_.size()) >= limits_.max_jobs) {
    refused = refuse(RefusalCode::limit, "the coordinator has " + std::to_string(limits_.max_jobs) +
                                             " jobs, and cannot have more");
  }
  if (refused) return job;
  job = jobs_.try_emplace(join.job).first;
  job->second.rendezvous = std::make_unique<Rendezvous>(join, authority_);
  return job;
}

}  // namespace distrun::rendezvous
