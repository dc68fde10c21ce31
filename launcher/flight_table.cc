#include "launcher/flight_table.h"

#include "runtime/base/time.h"
#include "runtime/recorder/analysis.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <vector>

namespace distrun::launcher {
namespace {

using recorder::OpRecord;
using recorder::OpState;
using recorder::RankRecord;

using Row = std::vector<std::string>;

std::string time_of_day(const RankRecord& rank, std::int64_t monotonic) {
  const std::int64_t wall = monotonic + rank.wall_offset;
  const auto seconds = static_cast<std::time_t>(wall / 1'000'000'000);
  std::tm parts{};
  if (::localtime_r(&seconds, &parts) == nullptr) return "?";
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%H:%M:%S", &parts);
  std::array<char, 16> fraction{};
  std::snprintf(fraction.data(), fraction.size(), ".%03d",
                static_cast<int>(wall % 1'000'000'000 / 1'000'000));
  return std::string(text.data()) + fraction.data();
}

// "850 ns", "12 us", "1.3 ms", "12 s"
std::string span_text(std::int64_t ns) {
  if (ns < 0) return "?";
  if (ns < 1000) return std::to_string(ns) + " ns";
  if (ns < 1'000'000) return std::to_string(ns / 1000) + " us";
  if (ns < 100'000'000) {
    return std::to_string(ns / 1'000'000) + "." + std::to_string(ns % 1'000'000 / 100'000) + " ms";
  }
  return duration_text(std::chrono::nanoseconds(ns));
}

std::string_view state_text(OpState state) {
  switch (state) {
    case OpState::scheduled:
      return "scheduled";
    case OpState::started:
      return "started";
    case OpState::completed:
      return "completed";
    case OpState::failed:
      return "failed";
  }
  return "?";
}

Row row_of(const RankRecord& rank, const OpRecord& op, std::int64_t now) {
  const recorder::GroupRecord* group = rank.group(op.group);
  const std::int64_t queued = (op.started != 0 ? op.started : now) - op.created;
  std::string took;
  if (op.started != 0) {
    took = span_text((op.ended != 0 ? op.ended : now) - op.started);
    if (op.ended == 0) took += " so far";
  }
  return {std::to_string(op.number),
          group != nullptr ? recorder::name_of(*group) : "?",
          recorder::describe(op),
          std::string(state_text(op.state)),
          time_of_day(rank, op.created),
          span_text(queued),
          took,
          op.call_site != 0 ? call_site(rank, op.call_site) : ""};
}

std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += " " + row[i];
      line.append(widths[i] - row[i].size() + 1, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string rank_text(const RankRecord& rank, std::int64_t now, std::size_t last) {
  std::string text = "rank " + std::to_string(rank.rank) + "  pid " + std::to_string(rank.pid) +
                     "  " + rank.program + "  " + std::to_string(rank.recorded) +
                     (rank.recorded == 1 ? " operation" : " operations");
  if (rank.left_out != 0) text += ", " + std::to_string(rank.left_out) + " unreadable";
  text += "\n";
  if (rank.ops.empty() || last == 0) return text;
  std::vector<Row> rows{
      {"NUMBER", "GROUP", "OPERATION", "STATE", "AT", "QUEUED", "TOOK", "CALLED FROM"}};
  for (std::size_t i = rank.ops.size() - std::min(last, rank.ops.size()); i < rank.ops.size();
       ++i) {
    rows.push_back(row_of(rank, rank.ops[i], now));
  }
  return text + aligned(rows);
}

}  // namespace

std::string call_site(const RankRecord& rank, std::uint64_t address) {
  const bool inside = address >= rank.image && address < rank.image_end;
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "0x%llx",
                static_cast<unsigned long long>(inside ? address - rank.image : address));
  if (!inside) return number.data();
  return rank.program.substr(rank.program.rfind('/') + 1) + "+" + number.data();
}

std::string flight_table(std::span<const RankRecord> ranks, std::int64_t now, std::size_t last) {
  std::string text;
  for (const std::string& line : recorder::lines_of(recorder::analyse(ranks, {now, {}}), 64)) {
    text += line + "\n";
  }
  if (text.empty()) text = "no rank waits in an operation\n";
  for (const RankRecord& rank : ranks) text += "\n" + rank_text(rank, now, last);
  return text;
}

}  // namespace distrun::launcher
