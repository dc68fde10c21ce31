// The reader on files that are not what they should be.
#include "runtime/recorder/flight_file.h"

#include "tests/runtime/recorder/recorded.h"
#include "tests/support/run_program.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace distrun::recorder {
namespace {

using test::TempFolder;
using Bytes = std::vector<std::byte>;

// Eight operations in a ring of eight, the last one under way.
Bytes sound_file() {
  TempFolder folder;
  OpRecorder recorder;
  EXPECT_TRUE(recorder.open(options_of(folder / "rank_2.fr", 8)));
  const GroupRef group = begin(recorder);
  for (std::uint64_t i = 0; i < 7; ++i)
    recorder.completed(recorder.began(all_reduce(group, i)), true);
  recorder.began(all_reduce(group, 7));
  const std::string text = test::read_file(folder / "rank_2.fr");
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// The file with one field of its header, or of one operation, replaced.
template <class Part, class Field, class Value>
Bytes with(Bytes bytes, std::size_t at, Field Part::*field, Value value) {
  Part part;
  std::memcpy(&part, bytes.data() + at, sizeof part);
  part.*field = static_cast<Field>(value);
  std::memcpy(bytes.data() + at, &part, sizeof part);
  return bytes;
}
template <class Field, class Value>
Bytes with(Bytes bytes, Field FileHeader::*field, Value value) {
  return with<FileHeader>(std::move(bytes), 0, field, value);
}
constexpr std::size_t group_at(std::size_t i) {
  return sizeof(FileHeader) + i * sizeof(GroupEntry);
}
constexpr std::size_t op_at(std::size_t i) {
  return group_at(kMaxGroups) + i * sizeof(OpEntry);
}

std::string refusal(const Bytes& bytes) {
  const auto record = decode(bytes, bytes);
  return record ? "taken" : record.error().detail;
}

TEST(FlightFile, ASoundOneIsTakenWhole) {
  const Bytes bytes = sound_file();
  const auto record = decode(bytes, bytes);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->ops.size(), 8U);
  EXPECT_EQ(record->left_out, 0U);
  EXPECT_EQ(record->groups.size(), 1U);
}

TEST(FlightFile, AHeaderThatMakesNoSenseIsRefusedInWords) {
  const Bytes sound = sound_file();
  EXPECT_EQ(refusal({}), "not a flight record: 0 bytes are too few");
  EXPECT_EQ(refusal(with(sound, &FileHeader::magic, 0)),
            "not a flight record: its first bytes are those of something else");
  EXPECT_EQ(refusal(with(sound, &FileHeader::version, 2)),
            "a flight record of version 2; this program reads version 1");
  EXPECT_EQ(refusal(with(sound, &FileHeader::op_bytes, 64)),
            "not a flight record: its parts have other sizes than this version's");
  EXPECT_EQ(refusal(with(sound, &FileHeader::ring_ops, 16)),
            "not a flight record: a ring of 16 operations in 74752 bytes");
  EXPECT_EQ(refusal(with(sound, &FileHeader::ring_ops, 7)),
            "not a flight record: a ring of 7 operations in 74752 bytes");
  EXPECT_EQ(refusal(with(sound, &FileHeader::rank, 8)), "not a flight record: rank 8 of 8");
  EXPECT_EQ(refusal(with(sound, &FileHeader::rank, -1)), "not a flight record: rank -1 of 8");
  EXPECT_EQ(refusal(with(sound, &FileHeader::clock, 2)),
            "not a flight record: a clock that is not known");
  EXPECT_EQ(refusal(with(sound, &FileHeader::wall_ns, ~std::uint64_t{0})),
            "not a flight record: its times make no sense");
  Bytes cut = sound;
  cut.resize(cut.size() - 1);
  EXPECT_EQ(refusal(cut), "not a flight record: a ring of 8 operations in 74751 bytes");
}

// What is wrong with one operation costs that one only.
TEST(FlightFile, ATornOrSenselessOperationIsLeftOut) {
  const Bytes sound = sound_file();
  const Bytes cases[] = {
      with(sound, op_at(3), &OpEntry::stamp_begin, 12),            // torn: begun and not ended
      with(sound, op_at(3), &OpEntry::stamp_end, 0),               // torn, in a fresh place
      with(sound, op_at(3), &OpEntry::state, 5),                   // no state
      with(sound, op_at(3), &OpEntry::state, 0),                   // no state
      with(sound, op_at(3), &OpEntry::what, pack_what({1, 200})),  // no name
      with(sound, op_at(3), &OpEntry::whom, two_of(~1U, 0)),       // no rank: -2
      with(sound, op_at(3), &OpEntry::created, 1ULL << 63),        // no time
      with(with(sound, op_at(3), &OpEntry::stamp_begin, 5), op_at(3), &OpEntry::stamp_end, 5),
  };
  for (const Bytes& bytes : cases) {
    const auto record = decode(bytes, bytes);
    ASSERT_TRUE(record);
    EXPECT_EQ(record->left_out, 1U);
    EXPECT_EQ(record->ops.size(), 7U);
  }
}

TEST(FlightFile, AnOperationThatChangedBetweenTheCopiesIsLeftOut) {
  const Bytes first = sound_file();
  const Bytes second = with(first, op_at(7), &OpEntry::count_in, 1);
  EXPECT_EQ(decode(first, second)->left_out, 1U);
  // Its going on is no change.
  const Bytes done = with(first, op_at(7), &OpEntry::state, OpState::completed);
  EXPECT_EQ(decode(first, done)->ops.back().state, OpState::completed);
}

TEST(FlightFile, AGroupThatMakesNoSenseIsLeftOut) {
  const Bytes sound = sound_file();
  EXPECT_TRUE(decode(sound, with(sound, group_at(0), &GroupEntry::stamp_end, 9))->groups.empty());
  EXPECT_TRUE(decode(sound, with(sound, group_at(0), &GroupEntry::rank, 4))->groups.empty());
  EXPECT_TRUE(decode(sound, with(sound, group_at(0), &GroupEntry::size, 1 << 30))->groups.empty());
  const auto far = decode(sound, with(sound, group_at(0), &GroupEntry::stride, 1 << 30));
  EXPECT_TRUE(far->groups.at(0).ranks.empty());
}

TEST(FlightFile, TextsHoldPrintableCharactersOnly) {
  Bytes bytes = sound_file();
  std::memset(bytes.data() + group_at(0) + offsetof(GroupEntry, description), 0x1B, 64);
  std::memset(bytes.data() + offsetof(FileHeader, op_names), 0xFF, sizeof(FileHeader::op_names));
  const auto record = decode(bytes, bytes);
  EXPECT_EQ(record->groups.at(0).description, std::string(64, '?'));
  EXPECT_EQ(record->ops.at(0).op, std::string(24, '?'));
}

TEST(FlightFile, NoBytesAtAllMakeItCrash) {
  const Bytes sound = sound_file();
  std::mt19937_64 random(7);
  for (int i = 0; i < 3000; ++i) {
    Bytes bytes = sound;
    const auto changes = 1 + random() % 64;
    for (std::uint64_t k = 0; k < changes; ++k) {
      // Where something is: the header, the group, the operations.
      const std::size_t places[] = {random() % 3000, group_at(0) + random() % sizeof(GroupEntry),
                                    op_at(0) + random() % (8 * sizeof(OpEntry))};
      bytes[places[random() % 3]] = static_cast<std::byte>(random());
    }
    const auto record = decode(sound, bytes);
    if (!record) continue;
    EXPECT_LE(record->ops.size() + record->left_out, 8U);
    for (const OpRecord& op : record->ops) EXPECT_FALSE(op.op.empty());
  }
}

TEST(FlightFile, WhatIsNoRegularFileIsRefused) {
  TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "rank_0.fr").c_str(), 0600), 0);
  EXPECT_EQ(read_flight_file(folder / "rank_0.fr").error().detail,
            folder / "rank_0.fr" + ": not a flight record: no regular file");
  ASSERT_EQ(::symlink("/etc/passwd", (folder / "rank_1.fr").c_str()), 0);
  EXPECT_FALSE(read_flight_file(folder / "rank_1.fr"));
  EXPECT_EQ(read_flight_file(folder / "rank_2.fr").error().detail,
            folder / "rank_2.fr" + ": No such file or directory");
}

TEST(FlightFile, AFolderIsReadInTheOrderOfRanks) {
  TempFolder folder;
  for (const int rank : {10, 2, 0}) {
    OpRecorder recorder;
    auto options = options_of(file_of_rank(folder.path(), rank), 2);
    options.rank = rank;
    options.world_size = 11;
    ASSERT_TRUE(recorder.open(options));
  }
  std::ofstream(folder / "rank_7.fr") << "nonsense";
  std::ofstream(folder / "notes.txt") << "nonsense";
  const auto found = read_flight_folder(folder.path());
  ASSERT_TRUE(found);
  ASSERT_EQ(found->ranks.size(), 3U);
  EXPECT_EQ(found->ranks[0].rank, 0);
  EXPECT_EQ(found->ranks[1].rank, 2);
  EXPECT_EQ(found->ranks[2].rank, 10);
  ASSERT_EQ(found->problems.size(), 1U);
  EXPECT_EQ(found->problems[0],
            folder / "rank_7.fr" + ": not a flight record: 8 bytes are too few");
}

}  // namespace
}  // namespace distrun::recorder
