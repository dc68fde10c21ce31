#include "runtime/recorder/analysis.h"

#include "runtime/base/time.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace distrun::recorder {
namespace {

constexpr std::size_t kNamedMissing = 4;    // whose whereabouts are told
constexpr std::size_t kSignatures = 4;      // of calls that differ
constexpr std::size_t kPlacesOfAGroup = 4;  // operations in which ranks of one group wait
constexpr std::size_t kPeersOfARank = 4;    // sends and receives

constexpr std::int64_t kMoment = 1'000'000;  // ns: less is not worth a word

std::string duration(std::int64_t ns) {
  return duration_text(std::chrono::nanoseconds(ns));
}

// ", completed 12.3 s ago"; `now` may be a little before `then`.
std::string ago(const char* what, std::int64_t now, std::int64_t then) {
  const std::string text = std::string(", ") + what;
  return now - then < kMoment ? text + " just then" : text + " " + duration(now - then) + " ago";
}

bool pending(const OpRecord& op) {
  return op.state == OpState::scheduled || op.state == OpState::started;
}

// One rank's place in one group.
struct Member {
  const RankRecord* rank = nullptr;
  const GroupRecord* group = nullptr;
  std::map<std::uint64_t, const OpRecord*> ops;  // collectives, by sequence

  // The operation that it is in; nullopt: in none.
  std::optional<std::uint64_t> place() const {
    const Progress& done = group->collectives;
    if (done.completed >= done.scheduled) return std::nullopt;
    return done.completed;
  }
  const OpRecord* op(std::uint64_t sequence) const {
    const auto found = ops.find(sequence);
    return found == ops.end() ? nullptr : found->second;
  }
};

struct Group {
  std::string name;
  int size = 1;
  std::vector<int> ranks;  // global ones; empty: not known
  std::vector<Member> members;
};

using GroupKey = std::tuple<std::string, std::uint64_t, int>;

std::vector<Group> groups_of(std::span<const RankRecord> ranks) {
  std::map<GroupKey, Group> groups;
  for (const RankRecord& rank : ranks) {
    // A name may come again when a group was closed: the younger one counts.
    std::map<GroupKey, const GroupRecord*> own;
    for (const GroupRecord& group : rank.groups) {
      const GroupRecord*& place = own[{group.name, group.ranks_hash, group.size}];
      if (place == nullptr || place->id < group.id) place = &group;
    }
    for (const auto& [key, record] : own) {
      Group& group = groups[key];
      if (group.members.empty()) {
        group.name = name_of(*record);
        group.size = record->size;
        group.ranks = record->ranks;
      }
      Member member{&rank, record, {}};
      for (const OpRecord& op : rank.ops) {
        if (op.group == record->id && !op.point_to_point) member.ops[op.sequence] = &op;
      }
      group.members.push_back(std::move(member));
    }
  }
  std::vector<Group> all;
  all.reserve(groups.size());
  for (auto& [key, group] : groups) all.push_back(std::move(group));
  return all;
}

// What ranks have to agree on.
using Signature =
    std::tuple<std::string_view, std::string_view, std::string_view, int, std::uint64_t>;

Signature signature(const OpRecord& op) {
  return {op.op, op.reduce, op.dtype, op.peer, op.counts_agree ? op.count_in : 0};
}

class Analysis {
 public:
  Analysis(std::span<const RankRecord> ranks, const AnalysisOptions& options)
      : ranks_(ranks), options_(options) {
    for (const RankRecord& rank : ranks) by_rank_[rank.rank] = &rank;
  }

  std::vector<Finding> run() {
    for (const Group& group : groups_of(ranks_)) {
      const auto differs = find_disagreement(group);
      find_places(group, differs);
    }
    find_peers();
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const Finding& a, const Finding& b) { return order(a) < order(b); });
    return std::move(findings_);
  }

 private:
  static int order(const Finding& finding) {
    switch (finding.kind) {
      case FindingKind::disagree:
        return 0;
      case FindingKind::missing:
        return finding.root ? 1 : 3;
      case FindingKind::peer:
        return finding.root ? 2 : 4;
      case FindingKind::elsewhere:
        return 5;
      case FindingKind::together:
        return 6;
    }
    return 7;
  }

  // The first number under which two ranks called different things.
  std::optional<std::uint64_t> find_disagreement(const Group& group) {
    std::map<std::uint64_t, std::map<Signature, std::vector<const Member*>>> calls;
    for (const Member& member : group.members) {
      for (const auto& [sequence, op] : member.ops) {
        calls[sequence][signature(*op)].push_back(&member);
      }
    }
    for (const auto& [sequence, by_signature] : calls) {
      if (by_signature.size() < 2) continue;
      Finding finding;
      finding.kind = FindingKind::disagree;
      finding.group = group.name;
      finding.sequence = sequence;
      finding.root = true;
      finding.text = "ranks disagree at #" + std::to_string(sequence) + " of group " + group.name;
      std::size_t shown = 0;
      for (const auto& [what, members] : by_signature) {
        if (++shown > kSignatures) {
          finding.text += "; ...";
          break;
        }
        std::vector<int> who;
        for (const Member* member : members) who.push_back(member->rank->rank);
        finding.text += (shown == 1 ? ": " : "; ") + ranks_text(who) + " called " +
                        describe(*members.front()->op(sequence));
      }
      findings_.push_back(std::move(finding));
      return sequence;
    }
    return std::nullopt;
  }

  void find_places(const Group& group, std::optional<std::uint64_t> differs) {
    std::set<std::uint64_t> places;
    for (const Member& member : group.members) {
      if (const auto place = member.place()) places.insert(*place);
    }
    std::size_t told = 0;
    for (const std::uint64_t place : places) {
      if (++told > kPlacesOfAGroup) return;
      find_place(group, place, differs == place);
    }
  }

  struct Crowd {
    std::vector<int> waiting, queued, failed, done, missing, unheard;
    std::size_t elsewhere = 0;
    const OpRecord* op = nullptr;
    std::int64_t since = 0;  // when the first one began to wait
  };

  Crowd crowd_at(const Group& group, std::uint64_t place) const {
    Crowd crowd;
    std::set<int> heard;
    for (const Member& member : group.members) {
      const int rank = member.rank->rank;
      heard.insert(rank);
      const Progress& progress = member.group->collectives;
      const OpRecord* op = member.op(place);
      if (crowd.op == nullptr) crowd.op = op;
      if (progress.scheduled <= place) {
        crowd.missing.push_back(rank);
      } else if (progress.completed > place) {
        crowd.done.push_back(rank);
      } else if (op != nullptr && op->state == OpState::failed) {
        crowd.failed.push_back(rank);
      } else if (progress.started <= place) {
        crowd.queued.push_back(rank);
      } else {
        crowd.waiting.push_back(rank);
        if (op != nullptr && (crowd.since == 0 || op->started < crowd.since)) {
          crowd.since = op->started;
        }
      }
    }
    for (const int rank : group.ranks) {
      if (heard.contains(rank)) continue;
      if (is_local(rank)) {
        crowd.unheard.push_back(rank);
      } else {
        ++crowd.elsewhere;
      }
    }
    if (group.ranks.empty()) {
      crowd.elsewhere = static_cast<std::size_t>(group.size) -
                        std::min(static_cast<std::size_t>(group.size), heard.size());
    }
    return crowd;
  }

  bool is_local(int rank) const {
    return by_rank_.contains(rank) ||
           std::find(options_.local_ranks.begin(), options_.local_ranks.end(), rank) !=
               options_.local_ranks.end();
  }

  void find_place(const Group& group, std::uint64_t place, bool differs) {
    const Crowd crowd = crowd_at(group, place);
    Finding finding;
    finding.group = group.name;
    finding.sequence = place;
    finding.waiting = crowd.waiting;
    finding.waiting.insert(finding.waiting.end(), crowd.queued.begin(), crowd.queued.end());
    if (crowd.since != 0) finding.waited = std::max<std::int64_t>(options_.now - crowd.since, 0);
    finding.missing = crowd.missing;
    finding.missing.insert(finding.missing.end(), crowd.unheard.begin(), crowd.unheard.end());
    std::sort(finding.missing.begin(), finding.missing.end());
    const std::string op =
        (crowd.op != nullptr ? describe(*crowd.op) : "operation #" + std::to_string(place)) +
        " of group " + group.name;
    if (!finding.missing.empty()) {
      finding.kind = FindingKind::missing;
      finding.text = ranks_text(finding.missing) + " never entered " + op + states(crowd, "; ");
      whereabouts(finding);
    } else {
      if (differs && crowd.elsewhere == 0) return;  // that is the reason
      finding.kind = crowd.elsewhere != 0 ? FindingKind::elsewhere : FindingKind::together;
      finding.text = op + states(crowd, ": ");
      if (crowd.elsewhere == 0 && !finding.waiting.empty()) finding.text += "; no rank is missing";
    }
    if (crowd.elsewhere != 0) {
      finding.text += "; " + std::to_string(crowd.elsewhere) + " of its " +
                      std::to_string(group.size) + " ranks left no record here";
    }
    findings_.push_back(std::move(finding));
  }

  // "ranks 0-4 wait in it (for 12.3 s); rank 6 has it in its queue; rank 7 failed in it"
  std::string states(const Crowd& crowd, std::string_view first) const {
    std::string text;
    const auto add = [&](const std::vector<int>& who, const char* one, const char* many) {
      if (who.empty()) return;
      text += std::string(text.empty() ? first : "; ") + ranks_text(who) + " " +
              (who.size() == 1 ? one : many);
    };
    add(crowd.waiting, "waits in it", "wait in it");
    if (crowd.since != 0 && options_.now - crowd.since >= kMoment) {
      text += " (for " + duration(options_.now - crowd.since) + ")";
    }
    add(crowd.queued, "called it, and is still in one before",
        "called it, and are still in one before");
    add(crowd.failed, "failed in it", "failed in it");
    add(crowd.done, "has completed it", "have completed it");
    return text;
  }

  void whereabouts(Finding& finding) {
    std::size_t told = 0;
    for (const int rank : finding.missing) {
      const auto found = by_rank_.find(rank);
      const OpRecord* last = found == by_rank_.end() ? nullptr : current(*found->second);
      const bool waits = last != nullptr && pending(*last);
      if (!waits) finding.root = true;
      if (++told > kNamedMissing) continue;
      const std::string name = "rank " + std::to_string(rank);
      if (found == by_rank_.end()) {
        finding.more.push_back(name + " left no record");
      } else if (last == nullptr) {
        finding.more.push_back(name + " called nothing yet");
      } else {
        finding.more.push_back(name + (waits ? " is in " : ": its last was ") +
                               text_of(*found->second, *last));
      }
    }
  }

  // The oldest operation that the rank carries out, else the oldest in its queue, else its last.
  static const OpRecord* current(const RankRecord& rank) {
    const OpRecord* best = nullptr;
    const auto worth = [](const OpRecord& op) {
      return op.state == OpState::started ? 2 : op.state == OpState::scheduled ? 1 : 0;
    };
    for (const OpRecord& op : rank.ops) {
      if (best == nullptr || worth(op) > worth(*best) || (worth(op) == 0 && worth(*best) == 0)) {
        best = &op;
      }
    }
    return best;
  }

  std::string text_of(const RankRecord& rank, const OpRecord& op) const {
    const GroupRecord* group = rank.group(op.group);
    std::string text = describe(op) + " of group " + (group ? name_of(*group) : "?");
    switch (op.state) {
      case OpState::scheduled:
        return text + ago("called", options_.now, op.created);
      case OpState::started:
        return text + ago("begun", options_.now, op.started);
      case OpState::completed:
        return text + ago("completed", options_.now, op.ended);
      case OpState::failed:
        return text + ago("failed", options_.now, op.ended);
    }
    return text;
  }

  void find_peers() {
    for (const RankRecord& rank : ranks_) {
      std::size_t told = 0;
      for (const OpRecord& op : rank.ops) {
        if (!op.point_to_point || op.state != OpState::started) continue;
        if (++told > kPeersOfARank) break;
        const GroupRecord* group = rank.group(op.group);
        Finding finding;
        finding.kind = FindingKind::peer;
        finding.group = group != nullptr ? name_of(*group) : "?";
        finding.sequence = op.sequence;
        finding.waiting = {rank.rank};
        finding.waited = std::max<std::int64_t>(options_.now - op.started, 0);
        finding.text = "rank " + std::to_string(rank.rank) + " waits in " + text_of(rank, op);
        tell_of_peer(finding, group, op);
        findings_.push_back(std::move(finding));
      }
    }
  }

  void tell_of_peer(Finding& finding, const GroupRecord* group, const OpRecord& op) {
    if (group == nullptr || op.peer < 0 ||
        static_cast<std::size_t>(op.peer) >= group->ranks.size()) {
      return;
    }
    const int peer = group->ranks[static_cast<std::size_t>(op.peer)];
    const auto found = by_rank_.find(peer);
    if (found == by_rank_.end()) {
      if (is_local(peer))
        finding.more.push_back("rank " + std::to_string(peer) + " left no record");
      return;
    }
    const OpRecord* last = current(*found->second);
    finding.root = last == nullptr || !pending(*last);
    finding.more.push_back("rank " + std::to_string(peer) +
                           (last == nullptr ? " called nothing yet"
                                            : (pending(*last) ? " is in " : ": its last was ") +
                                                  text_of(*found->second, *last)));
  }

  std::span<const RankRecord> ranks_;
  const AnalysisOptions& options_;
  std::map<int, const RankRecord*> by_rank_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> analyse(std::span<const RankRecord> ranks, const AnalysisOptions& options) {
  return Analysis(ranks, options).run();
}

std::vector<std::string> lines_of(const std::vector<Finding>& findings, std::size_t limit) {
  std::vector<std::string> lines;
  std::set<std::string> told;  // one rank may be missing in several places
  for (const Finding& finding : findings) {
    lines.push_back(finding.text);
    for (const std::string& more : finding.more) {
      if (told.insert(more).second) lines.push_back("  " + more);
    }
  }
  if (lines.size() > limit) {
    const std::size_t left = lines.size() - limit;
    lines.resize(limit);
    lines.push_back("(" + std::to_string(left) + " lines more)");
  }
  return lines;
}

std::string describe(const OpRecord& op) {
  std::string text = op.op + " #" + std::to_string(op.sequence);
  std::vector<std::string> parts;
  if (!op.dtype.empty()) {
    parts.push_back(op.dtype + " x " +
                    std::to_string(op.count_in != 0 ? op.count_in : op.count_out));
  }
  if (!op.reduce.empty()) parts.push_back(op.reduce);
  if (op.peer >= 0) {
    const char* word = !op.point_to_point ? "root " : op.receive ? "from " : "to ";
    parts.push_back(word + std::to_string(op.peer));
  }
  if (op.tag != 0) parts.push_back("tag " + std::to_string(op.tag));
  if (parts.empty()) return text;
  text += " (";
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i > 0 ? ", " : "") + parts[i];
  return text + ")";
}

std::string name_of(const GroupRecord& group) {
  return group.description.empty() ? group.name : group.description;
}

std::string ranks_text(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last == i + 1) last = i;  // two are told one by one
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::int64_t last_moment(std::span<const RankRecord> ranks) {
  std::int64_t last = 0;
  for (const RankRecord& rank : ranks) {
    last = std::max(last, rank.ended);
    for (const OpRecord& op : rank.ops) last = std::max({last, op.created, op.started, op.ended});
  }
  return last;
}

}  // namespace distrun::recorder
