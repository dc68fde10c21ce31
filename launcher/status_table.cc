#include "launcher/status_table.h"

#include "launcher/text.h"
#include "rendezvous/protocol/fields.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace distrun::rendezvous {
namespace {

// What record_json.cc writes, as far as it is shown here.
struct StatusMember {
  std::optional<int> rank;
  std::string host;
  std::string address;
  std::string state;
  int nproc = 0;
  std::int64_t heard_ms_ago = 0;
  int losses = 0;
  bool hosts_coordinator = false;
};
struct StatusOver {
  std::string result;
  int exit_code = 0;
  std::string why;
};
struct StatusJob {
  std::string job;
  std::string phase;
  Fence round;
  int nodes = 0;
  int min_nodes = 0;
  int max_nodes = 0;
  int restarts = 0;
  int max_restarts = 0;
  bool has_quorum = true;
  std::vector<StatusMember> members;
  std::optional<Failure> failure;
  std::optional<StatusOver> over;
};

void fields(FieldReader& r, StatusMember& member) {
  r.maybe("rank", member.rank, [&](int& rank) { r.integer("rank", rank, 0, kMaxInt); });
  r.text("host", member.host, kMaxName, Text::name);
  r.text("address", member.address, kMaxName, Text::name);
  r.text("state", member.state, kMaxName, Text::name);
  r.integer("nproc", member.nproc, 0, kMaxInt);
  r.integer("heard_ms_ago", member.heard_ms_ago, 0, kMaxNumber);
  r.integer("losses", member.losses, 0, kMaxInt);
  r.flag("hosts_coordinator", member.hosts_coordinator);
}

void fields(FieldReader& r, StatusOver& over) {
  r.text("result", over.result, kMaxName, Text::name);
  r.integer("exit_code", over.exit_code, 0, 255);
  r.text("why", over.why, kMaxWhy, Text::free);
}

void fields(FieldReader& r, StatusJob& job) {
  r.text("job", job.job, kMaxName, Text::name);
  r.text("phase", job.phase, kMaxName, Text::name);
  r.object("round", job.round);
  r.integer("nodes", job.nodes, 0, kMaxNodes);
  r.integer("min_nodes", job.min_nodes, 0, kMaxNodes);
  r.integer("max_nodes", job.max_nodes, 0, kMaxNodes);
  r.integer("restarts", job.restarts, 0, kMaxInt);
  r.integer("max_restarts", job.max_restarts, 0, kMaxInt);
  r.flag("has_quorum", job.has_quorum);
  r.list("members", job.members, kMaxNodes);
  maybe_failure(r, job.failure);
  r.maybe("over", job.over, [&](StatusOver& over) { r.object("over", over); });
}

}  // namespace
}  // namespace distrun::rendezvous

namespace distrun::launcher {
namespace {

using rendezvous::StatusJob;
using rendezvous::StatusMember;

constexpr std::size_t kMaxJobs = 65'536;
constexpr std::size_t kColumns = 6;
using Row = std::array<std::string, kColumns + 1>;  // the last is a remark, without a heading

// To the tenth: a beat's age is watched change.
std::string ago(std::int64_t ms) {
  if (ms >= 100'000) return duration_text(std::chrono::seconds(ms / 1000)) + " ago";
  return std::to_string(ms / 1000) + "." + std::to_string(ms / 100 % 10) + " s ago";
}

std::string count(int n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

std::string heading(const StatusJob& job) {
  std::string text = job.job + "  " + job.phase + "  ";
  if (job.round.generation.value < 0) {
    text += "no round yet";
  } else {
    const std::string epoch = job.round.epoch == 0 ? "" : std::to_string(job.round.epoch) + ".";
    text += "round " + epoch + std::to_string(job.round.generation.value) + "  " +
            count(job.nodes, "node");
  }
  text += " of " + std::to_string(job.min_nodes);
  if (job.max_nodes != job.min_nodes) text += ":" + std::to_string(job.max_nodes);
  text += "  restarts " + std::to_string(job.restarts) + " of " + std::to_string(job.max_restarts);
  if (!job.has_quorum) text += "  NO QUORUM: it waits for members that are elsewhere";
  return text + "\n";
}

std::string notes(const StatusJob& job) {
  std::string text;
  if (job.over) {
    text += "  over (" + job.over->result + ", exit status " + std::to_string(job.over->exit_code) +
            "): " + printable(job.over->why) + "\n";
  }
  if (job.failure) {
    const auto& failure = *job.failure;
    text += "  last failure: rank " + std::to_string(failure.rank.value) + " (local rank " +
            std::to_string(failure.local_rank.value) + ", pid " + std::to_string(failure.pid) +
            ") on " + failure.host + ": " + printable(failure.status) + "\n";
  }
  return text;
}

Row row_of(const StatusMember& member) {
  std::string remark = member.hosts_coordinator ? "hosts the coordinator" : "";
  if (member.losses > 0) {
    remark += (remark.empty() ? "" : ", ") + std::string("lost ") + count(member.losses, "time");
  }
  return {member.rank ? std::to_string(*member.rank) : "-",
          member.host,
          member.address,
          member.state,
          std::to_string(member.nproc),
          ago(member.heard_ms_ago),
          remark};
}

std::string members_table(std::vector<StatusMember> members) {
  if (members.empty()) return "  no members\n";
  // By rank, those without one last.
  std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
    return a.rank.has_value() != b.rank.has_value() ? a.rank.has_value() : a.rank < b.rank;
  });
  std::vector<Row> rows{{"RANK", "HOST", "ADDRESS", "STATE", "WORKERS", "LAST BEAT", ""}};
  for (const auto& member : members) rows.push_back(row_of(member));
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < kColumns; ++i) {
      line += "  " + row[i] + std::string(widths[i] - row[i].size(), ' ');
    }
    line += "  " + row.back();
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

Result<std::vector<StatusJob>> read_jobs(std::string_view json, std::string_view job) {
  rendezvous::FieldReader reader(json);
  std::vector<StatusJob> jobs;
  reader.list("jobs", jobs, kMaxJobs);
  if (reader.error()) {
    return Error{Errc::protocol, "the coordinator's answer is not understood (" +
                                     reader.error()->detail +
                                     "); is it of the same version of distrun?"};
  }
  if (job.empty()) return jobs;
  std::vector<std::string_view> names;
  for (const StatusJob& one : jobs) {
    if (one.job == job) return std::vector<StatusJob>{one};
    names.push_back(one.job);
  }
  return Error{Errc::not_found,
               "no job " + quote(job) + " there; " +
                   (names.empty() ? "it has none" : "it has " + printable(join(names, ", ")))};
}

}  // namespace

Result<std::string> status_table(std::string_view json, std::string_view job) {
  const auto jobs = read_jobs(json, job);
  if (!jobs) return jobs.error();
  std::string text;
  for (const StatusJob& one : *jobs) {
    if (!text.empty()) text += "\n";
    text += heading(one) + notes(one) + members_table(one.members);
  }
  return text.empty() ? "no jobs\n" : text;
}

Result<std::string> status_json_of(std::string_view json, std::string_view job) {
  if (const auto jobs = read_jobs(json, job); !jobs) return jobs.error();
  auto page = nlohmann::ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!job.empty()) {
    auto kept = nlohmann::ordered_json::array();
    for (const auto& one : page["jobs"]) {
      if (one["job"] == job) kept.push_back(one);
    }
    page["jobs"] = std::move(kept);
  }
  return page.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace distrun::launcher
