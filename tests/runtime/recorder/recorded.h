// A small job's groups and calls, for tests of what is written and of what is read.
#pragma once

#include "runtime/recorder/flight_file.h"
#include "runtime/recorder/op_recorder.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>

namespace distrun::recorder {

inline constexpr std::array<std::string_view, 4> kOps{"broadcast", "all_reduce", "barrier", "recv"};
inline constexpr std::array<std::string_view, 2> kReduces{"sum", "avg"};
inline constexpr std::array<std::string_view, 2> kDTypes{"float32", "int64"};
inline constexpr std::array<int, 4> kRanks{0, 2, 4, 6};

inline OpRecorder::Options options_of(std::string path, std::uint32_t ops) {
  OpRecorder::Options options;
  options.path = std::move(path);
  options.ops = ops;
  options.rank = 2;
  options.world_size = 8;
  return options;
}

// Rank 2 of 8, second in a group of every other one.
inline GroupRef begin(OpRecorder& recorder) {
  recorder.name_codes({kOps, kReduces, kDTypes});
  GroupInfo group;
  group.name = "1";
  group.description = "dp";
  group.backend = "gloo";
  group.rank = 1;
  group.size = 4;
  group.ranks = kRanks;
  return recorder.add_group(group);
}

inline OpInfo all_reduce(GroupRef group, std::uint64_t sequence, std::uint64_t count = 1000) {
  OpInfo info;
  info.group = group;
  info.sequence = sequence;
  info.op = 1;
  info.reduce = 0;
  info.dtype = 0;
  info.flags = kCountsAgree;
  info.count_in = info.count_out = count;
  info.timeout_ms = 1'800'000;
  return info;
}

inline RankRecord read(const std::string& path) {
  auto record = read_flight_file(path);
  if (record) return *record;
  ADD_FAILURE() << record.error().detail;
  return {};
}

}  // namespace distrun::recorder
