#include "agent/process/flight_records.h"

#include "agent/process/log_files.h"
#include "runtime/recorder/analysis.h"
#include "runtime/recorder/flight_file.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <sys/random.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace distrun::agent {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolderVariable = "DISTRUN_FLIGHT_RECORDER_DIR";
constexpr const char* kSizeVariable = "DISTRUN_FLIGHT_RECORDER_SIZE";
constexpr const char* kMemory = "/dev/shm";
constexpr std::size_t kLongestRunId = 64;

// Of a round that was stopped, only waits as long as this are worth a line: whoever stops a healthy
// job finds some rank a moment behind, too.
constexpr Duration kLongWait = std::chrono::seconds(1);

std::string lookup(const Spec& spec, std::string_view name) {
  std::string value;  // the last of several counts
  for (const auto& [key, text] : spec.environment) {
    if (key == name) value = text;
  }
  return value;
}

// A name that nobody can guess: the folder is made later, by a worker.
std::string random_name() {
  static constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz012345";
  unsigned char bytes[16] = {};
  (void)!::getentropy(bytes, sizeof bytes);
  std::string name;
  for (const unsigned char byte : bytes) name += kLetters[byte % kLetters.size()];
  return name;
}

std::vector<int> ranks_of(const Assignment& assignment, int nproc) {
  std::vector<int> ranks(static_cast<std::size_t>(nproc));
  std::iota(ranks.begin(), ranks.end(), assignment.base_rank.value);
  return ranks;
}

// When the first of them ended: what they were in then is what counts.
std::int64_t moment_of(const GroupVerdict& verdict) {
  TimePoint first = Clock::now();
  for (const Ending& ending : verdict.ends) first = std::min(first, ending.at);
  return std::chrono::nanoseconds(first.time_since_epoch()).count();
}

// Whether all were copied.
bool copy_files(const std::vector<std::string>& files, const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0) return false;
  std::error_code ec;
  for (const std::string& file : files) {
    fs::copy_file(file, fs::path(folder) / fs::path(file).filename(), ec);
    if (ec) return false;
  }
  return true;
}

}  // namespace

FlightPlace flight_place(const Spec& spec) {
  FlightPlace place;
  if (lookup(spec, kSizeVariable) == "0") return place;
  const std::string temporary = lookup(spec, "TMPDIR").empty() ? "/tmp" : lookup(spec, "TMPDIR");
  const std::string name =
      "distrun_flight_" + run_folder_name(spec.run_id.substr(0, kLongestRunId), random_name());
  std::error_code ec;
  const std::string asked = lookup(spec, kFolderVariable);
  if (!asked.empty()) {
    place.folder = (fs::absolute(asked, ec) / name).string();
    place.removed = false;
    return place;
  }
  const bool memory = ::access(kMemory, W_OK | X_OK) == 0;
  const std::string kept = (fs::absolute(temporary, ec) / name).string();
  place.folder = memory ? std::string(kMemory) + "/" + name : kept;
  place.kept_stem = kept;
  return place;
}

void remove_records(const FlightPlace& place) {
  if (place.folder.empty() || !place.removed) return;
  std::error_code ec;
  fs::remove_all(place.folder, ec);
}

std::string FlightRecords::open_round(const Assignment& assignment, int nproc) {
  remove_records(place_);
  files_.clear();
  copied_ = false;
  assignment_ = assignment;
  nproc_ = nproc;
  ++round_;
  if (place_.folder.empty()) return {};
  return place_.folder + "/round_" + std::to_string(round_);
}

FlightSummary FlightRecords::close_round(const GroupVerdict& verdict, const std::string& logs) {
  FlightSummary summary;
  if (place_.folder.empty()) return summary;
  const std::string folder = place_.folder + "/round_" + std::to_string(round_);
  auto found = recorder::read_flight_folder(folder);
  if (!found) {
    if (found.error().code != Errc::not_found) summary.problems.push_back(found.error().detail);
    return summary;
  }
  summary.problems = std::move(found->problems);
  const std::int64_t moment = moment_of(verdict);
  for (const auto& rank : found->ranks) {
    files_.push_back(rank.path);
    recorder::mark_ended(rank.path, moment);
  }
  if (files_.empty()) return summary;
  if (!logs.empty()) {
    summary.kept = logs + "/flight";
    copied_ = copy_files(files_, summary.kept);
    if (!copied_) summary.problems.push_back("cannot be copied to " + summary.kept);
  } else {
    summary.kept = place_.removed ? place_.kept_stem + "_" + std::to_string(round_) : folder;
  }
  if (verdict.result == GroupResult::succeeded) return summary;
  auto findings = recorder::analyse(found->ranks, {moment, ranks_of(assignment_, nproc_)});
  if (verdict.result == GroupResult::stopped) {
    std::erase_if(findings, [](const recorder::Finding& finding) {
      return finding.kind != recorder::FindingKind::disagree &&
             std::chrono::nanoseconds(finding.waited) < kLongWait;
    });
  }
  summary.lines = recorder::lines_of(findings);
  if (!summary.lines.empty() && assignment_.node_count > 1) {
    const auto ranks = recorder::ranks_text(ranks_of(assignment_, nproc_));
    summary.lines.insert(summary.lines.begin(), "of this node's " + ranks + " of " +
                                                    std::to_string(assignment_.world_size) + ":");
  }
  return summary;
}

void FlightRecords::finish(bool failure_reported) {
  if (failure_reported && !copied_ && place_.removed && !files_.empty()) {
    copy_files(files_, place_.kept_stem + "_" + std::to_string(round_));
  }
  files_.clear();
  remove_records(place_);
}

}  // namespace distrun::agent
