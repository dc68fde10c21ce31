#include "runtime/nccl/core/watch.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <charconv>

namespace distrun::nccl {
namespace {

// More ranks than this in a sentence help nobody.
constexpr std::size_t kNamedRanks = 8;

// Takes the number before the next space off the front.
std::optional<std::int64_t> take_number(std::string_view& bytes) {
  const std::size_t space = bytes.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(bytes.data(), bytes.data() + space, value);
  if (code != std::errc() || end != bytes.data() + space) return std::nullopt;
  bytes.remove_prefix(space + 1);
  return value;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kNamedRanks); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kNamedRanks) {
    text += " and " + std::to_string(ranks.size() - kNamedRanks) + " more";
  }
  return text;
}

}  // namespace

std::string Label::text() const {
  std::string out = coalesced > 1 ? std::to_string(coalesced) + " coalesced: " : "";
  out += std::string(to_string(kind)) + " #" + std::to_string(sequence);
  if (peer >= 0 && coalesced == 1) {
    out += kind == OpKind::send   ? " to rank "
           : kind == OpKind::recv ? " from rank "
                                  : " with root ";
    out += std::to_string(peer);
  }
  if (kind == OpKind::barrier) return out;
  return out + " (" + to_string(dtype) + ", " + std::to_string(count) +
         (count == 1 ? " element)" : " elements)");
}

std::string Failure::encode() const {
  return std::to_string(static_cast<int>(kind)) + " " + std::to_string(culprit) + " " +
         std::to_string(ask_others ? 1 : 0) + " " + text;
}

Failure Failure::decode(const std::string& bytes) {
  std::string_view rest = bytes;
  const auto kind = take_number(rest);
  const auto culprit = take_number(rest);
  const auto ask_others = take_number(rest);
  if (!kind || !culprit || !ask_others || *culprit < -1 || *culprit > INT32_MAX) {
    return {.text = "another rank's report of a failure cannot be read: " + bytes.substr(0, 100)};
  }
  return {.kind = *kind == 0 ? FailureKind::timeout : FailureKind::backend,
          .culprit = static_cast<int>(*culprit),
          .text = std::string(rest),
          .ask_others = *ask_others != 0};
}

std::string Progress::encode() const {
  return std::to_string(submitted) + " " + std::to_string(completed) + " " + last;
}

std::optional<Progress> Progress::decode(const std::string& bytes) {
  std::string_view rest = bytes;
  const auto submitted = take_number(rest);
  const auto completed = take_number(rest);
  if (!submitted || !completed || *submitted < -1 || *completed < -1) return std::nullopt;
  return Progress{*submitted, *completed, std::string(rest)};
}

void Watch::add(const Watched& work) {
  DISTRUN_CHECK(works_.empty() || works_.back().id < work.id);
  works_.push_back(work);
}

std::optional<TimePoint> Watch::next_deadline() const {
  std::optional<TimePoint> first;
  for (const Watched& work : works_) {
    if (!first || work.deadline < *first) first = work.deadline;
  }
  return first;
}

Verdict Watch::look(const Sight& sight, TimePoint now) {
  DISTRUN_CHECK(sight.works.size() == works_.size());
  Verdict verdict;
  std::vector<Watched> left;
  std::vector<Seen> seen;
  for (std::size_t i = 0; i < works_.size(); ++i) {
    if (sight.works[i] == Seen::done) {
      verdict.done.push_back(works_[i].id);
    } else {
      left.push_back(works_[i]);
      seen.push_back(sight.works[i]);
    }
  }
  works_ = std::move(left);

  const auto broken = std::find(seen.begin(), seen.end(), Seen::broken);
  const std::string oldest = works_.empty() ? "" : works_.front().label.text() + ": ";
  if (sight.told_by_others) {
    verdict.failure = sight.told_by_others;
  } else if (broken != seen.end()) {
    const Watched& work = works_[static_cast<std::size_t>(broken - seen.begin())];
    verdict.failure = {.text = work.label.text() + ": the device reports: " + sight.device_error};
  } else if (sight.comm_error) {
    verdict.failure = {.text = oldest + "NCCL reports: " + *sight.comm_error, .ask_others = true};
  } else {
    for (std::size_t i = 0; i < works_.size(); ++i) {
      const Watched& work = works_[i];
      if (now < work.deadline) continue;
      std::string text =
          work.label.text() + ": not done within " + duration_text(work.deadline - work.submitted);
      if (seen[i] == Seen::waiting) {
        text += "; the device has not begun it: what was enqueued before it has not finished";
      }
      verdict.failure = {.kind = FailureKind::timeout, .text = std::move(text), .ask_others = true};
      break;
    }
  }
  return verdict;
}

Failure explain(Failure failure, const std::vector<std::optional<Progress>>& positions) {
  std::int64_t newest = -1;
  std::string newest_text;
  for (const auto& position : positions) {
    if (!position || position->submitted <= newest) continue;
    newest = position->submitted;
    newest_text = position->last;
  }
  std::vector<int> silent;
  std::vector<int> behind;
  for (std::size_t rank = 0; rank < positions.size(); ++rank) {
    if (!positions[rank]) {
      silent.push_back(static_cast<int>(rank));
    } else if (positions[rank]->submitted < newest) {
      behind.push_back(static_cast<int>(rank));
    }
  }
  if (!behind.empty()) {
    const Progress& first = *positions[static_cast<std::size_t>(behind.front())];
    failure.text +=
        "; " + ranks_text(behind) + (behind.size() == 1 ? " has" : " have") + " not entered " +
        newest_text + ": the last collective there" +
        (behind.size() == 1 ? "" : ", of rank " + std::to_string(behind.front()) + ",") + " is " +
        (first.submitted < 0 ? "none" : first.last);
  }
  if (!silent.empty()) {
    failure.text += "; " + ranks_text(silent) +
                    (silent.size() == 1 ? " does not answer" : " do not answer") +
                    " (dead, stopped, or not there yet)";
  }
  if (failure.culprit < 0 && silent.size() + behind.size() == 1) {
    failure.culprit = silent.empty() ? behind.front() : silent.front();
  }
  return failure;
}

Roots plan_roots(int world_size, int ranks_per_root) {
  DISTRUN_CHECK(world_size > 0 && ranks_per_root > 0);
  return {(world_size + ranks_per_root - 1) / ranks_per_root};
}

int Roots::starter(int root, int world_size) const {
  // The first runs are one rank longer, if the ranks cannot be divided.
  return root * (world_size / count) + std::min(root, world_size % count);
}

std::optional<int> Roots::started_by(int rank, int world_size) const {
  for (int root = 0; root < count; ++root) {
    if (starter(root, world_size) == rank) return root;
  }
  return std::nullopt;
}

}  // namespace distrun::nccl
