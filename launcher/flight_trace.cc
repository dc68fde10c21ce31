#include "launcher/flight_trace.h"

#include "launcher/flight_table.h"
#include "runtime/recorder/analysis.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <set>
#include <string_view>

namespace distrun::launcher {
namespace {

using recorder::OpRecord;
using recorder::OpState;
using recorder::RankRecord;

// What the reader of records passes is printable ASCII.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// Nanoseconds as the format's microseconds.
std::string micros(std::int64_t ns) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%lld.%03d", static_cast<long long>(ns / 1000),
                static_cast<int>(ns % 1000));
  return text.data();
}

std::uint64_t track_of(const OpRecord& op) {
  return std::uint64_t{op.group} * 2 + (op.point_to_point ? 1 : 0);
}

class Trace {
 public:
  explicit Trace(std::int64_t now) : now_(now) {}

  std::string run(std::span<const RankRecord> ranks) {
    begin_ = std::numeric_limits<std::int64_t>::max();
    for (const RankRecord& rank : ranks) {
      for (const OpRecord& op : rank.ops) begin_ = std::min(begin_, op.created + rank.wall_offset);
    }
    for (const RankRecord& rank : ranks) add(rank);
    return "{\"traceEvents\":[" + events_ + "\n],\"displayTimeUnit\":\"ns\"}\n";
  }

 private:
  void event(const std::string& fields) {
    events_ += (events_.empty() ? "\n{" : ",\n{") + fields + "}";
  }
  void name(const char* what, const std::string& who, const std::string& text) {
    event("\"name\":\"" + std::string(what) + "\",\"ph\":\"M\"," + who +
          ",\"args\":{\"name\":" + quoted(text) + "}");
  }

  void add(const RankRecord& rank) {
    const std::string process = "\"pid\":" + std::to_string(rank.rank);
    name("process_name", process,
         "rank " + std::to_string(rank.rank) + " (pid " + std::to_string(rank.pid) + ")");
    event("\"name\":\"process_sort_index\",\"ph\":\"M\"," + process +
          ",\"args\":{\"sort_index\":" + std::to_string(rank.rank) + "}");
    std::set<std::uint64_t> tracks;
    for (const OpRecord& op : rank.ops) {
      const std::string track = process + ",\"tid\":" + std::to_string(track_of(op));
      const recorder::GroupRecord* group = rank.group(op.group);
      const std::string group_name = group != nullptr ? recorder::name_of(*group) : "?";
      if (tracks.insert(track_of(op)).second) {
        name("thread_name", track,
             "group " + group_name + (op.point_to_point ? ", point to point" : ""));
      }
      add(rank, op, track, group_name);
    }
  }

  void add(const RankRecord& rank, const OpRecord& op, const std::string& track,
           const std::string& group) {
    const std::int64_t start = op.started != 0 ? op.started : op.created;
    const std::int64_t end = op.ended != 0 ? op.ended : std::max(now_, start);
    std::string fields = "\"name\":" + quoted(op.op + " #" + std::to_string(op.sequence)) +
                         ",\"cat\":" + quoted(group) + ",\"ph\":\"X\"," + track +
                         ",\"ts\":" + micros(start + rank.wall_offset - begin_) +
                         ",\"dur\":" + micros(std::max<std::int64_t>(end - start, 0));
    if (op.state == OpState::failed) fields += ",\"cname\":\"terrible\"";
    fields += ",\"args\":{\"operation\":" + quoted(recorder::describe(op)) +
              ",\"state\":" + quoted(state(op)) +
              ",\"queued_us\":" + micros(std::max<std::int64_t>(start - op.created, 0)) +
              ",\"thread\":" + std::to_string(op.thread);
    if (op.call_site != 0) fields += ",\"called_from\":" + quoted(call_site(rank, op.call_site));
    event(fields + "}");
  }

  static std::string_view state(const OpRecord& op) {
    switch (op.state) {
      case OpState::scheduled:
        return "waits in the queue";
      case OpState::started:
        return "under way";
      case OpState::completed:
        return "completed";
      case OpState::failed:
        return "failed";
    }
    return "?";
  }

  std::int64_t now_;
  std::int64_t begin_ = 0;
  std::string events_;
};

}  // namespace

std::string flight_trace(std::span<const RankRecord> ranks, std::int64_t now) {
  return Trace(now).run(ranks);
}

}  // namespace distrun::launcher
