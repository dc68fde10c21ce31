#include "rendezvous/protocol/record_json.h"

#include "rendezvous/protocol/fields.h"

#include <chrono>

namespace distrun::rendezvous {
namespace {

std::int64_t milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

// In one word, what the member does.
std::string_view doing(const MemberState& member, const RendezvousState& job) {
  if (job.phase == RoundPhase::over) return "done";
  if (member.waiting || !member.rank) return "waiting";
  if (!member.outcome) return job.phase == RoundPhase::ended ? "stopping" : "working";
  return kRoundResults[static_cast<std::size_t>(member.outcome->result)];
}

// A member and a job as the status page shows them: written, never read.
struct ShownMember {
  const MemberState& member;
  const RendezvousState& job;
  TimePoint now;
};
struct ShownJob {
  const RendezvousState& job;
  TimePoint now;
};
struct ShownOver {
  const Over& over;
};

void fields(FieldWriter& w, const ShownMember& shown) {
  const MemberState& member = shown.member;
  if (member.rank) w.number("rank", member.rank->value);
  w.text("host", member.host, kMaxName, Text::name);
  w.text("node", member.node, kMaxName, Text::name);
  w.text("address", member.address, kMaxName, Text::name);
  w.text("state", doing(member, shown.job), kMaxName, Text::name);
  w.number("nproc", member.nproc);
  w.text("role", member.role, kMaxName, Text::name);
  w.number("heard_ms_ago", milliseconds(shown.now - member.heard));
  w.number("losses", member.losses);
  w.flag("hosts_coordinator", member.hosts);
}

void fields(FieldWriter& w, const ShownOver& shown) {
  w.choice("result", shown.over.result, kOverResults);
  w.number("exit_code", shown.over.exit_code);
  w.text("why", shown.over.why, kMaxWhy, Text::free);
}

void fields(FieldWriter& w, const ShownJob& shown) {
  const RendezvousState& job = shown.job;
  const std::string_view phase = to_string(job.phase);
  w.text("job", job.job, kMaxName, Text::name);
  w.text("phase", phase, phase.size(), Text::name);
  w.object("round", job.last);
  w.number("nodes", job.node_count);
  w.number("min_nodes", job.terms.min_nodes);
  w.number("max_nodes", job.terms.max_nodes);
  w.number("restarts", job.restarts);
  w.number("max_restarts", job.terms.max_restarts);
  w.flag("has_quorum", job.has_quorum);
  std::vector<ShownMember> members;
  members.reserve(job.members.size());
  for (const MemberState& member : job.members) members.push_back({member, job, shown.now});
  w.list("members", members, members.size());
  maybe_failure(w, job.last_failure);
  if (job.over) w.object("over", ShownOver{*job.over});
}

}  // namespace

std::string record_to_json(const Record& record) {
  FieldWriter writer;
  fields(writer, record);
  return writer.finish();
}

Result<Record> record_from_json(std::string_view text) {
  FieldReader reader(text);
  Record record;
  fields(reader, record);
  if (reader.error()) return Error{reader.error()->code, "record: " + reader.error()->detail};
  return record;
}

std::string status_json(const std::vector<RendezvousState>& jobs, TimePoint now) {
  FieldWriter writer;
  std::vector<ShownJob> shown;
  shown.reserve(jobs.size());
  for (const RendezvousState& job : jobs) shown.push_back({job, now});
  writer.list("jobs", shown, shown.size());
  return writer.finish() + "\n";
}

}  // namespace distrun::rendezvous
