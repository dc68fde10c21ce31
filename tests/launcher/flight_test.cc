// distrun flight: its options, its table, its trace.
#include "launcher/flight.h"

#include "launcher/flight_table.h"
#include "launcher/flight_trace.h"
#include "tests/launcher/support.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <ctime>

namespace distrun::launcher {
namespace {

using recorder::OpRecord;
using recorder::OpState;
using recorder::RankRecord;

constexpr std::int64_t kSecond = 1'000'000'000;

OpRecord op_of(std::uint64_t sequence, OpState state, std::int64_t at) {
  OpRecord op;
  op.number = sequence;
  op.group = 1;
  op.sequence = sequence;
  op.op = "all_reduce";
  op.reduce = "sum";
  op.dtype = "float32";
  op.count_in = op.count_out = 1000;
  op.state = state;
  op.created = at;
  if (state != OpState::scheduled) op.started = at + 12'345;
  if (state >= OpState::completed) op.ended = at + 1'312'345;
  return op;
}

// Rank 0 waits in #2, rank 1 never came.
std::vector<RankRecord> stuck() {
  std::vector<RankRecord> ranks(2);
  for (int i = 0; i < 2; ++i) {
    RankRecord& rank = ranks[static_cast<std::size_t>(i)];
    rank.rank = i;
    rank.world_size = 2;
    rank.pid = 4711 + i;
    rank.program = "/opt/train";
    rank.image = 0x1000;
    rank.image_end = 0x2000;
    rank.wall_offset = 1'767'323'045 * kSecond;  // 2026-01-02 03:04:05
    recorder::GroupRecord group;
    group.id = 1;
    group.name = "0";
    group.description = "dp";
    group.rank = i;
    group.size = 2;
    group.ranks = {0, 1};
    const auto done = i == 0 ? 3U : 2U;
    group.collectives = {done, done, 2};
    rank.groups.push_back(group);
    rank.ops = {op_of(0, OpState::completed, kSecond), op_of(1, OpState::completed, 2 * kSecond)};
    rank.recorded = done;
  }
  ranks[0].ops.push_back(op_of(2, OpState::started, 3 * kSecond));
  ranks[0].ops.back().call_site = 0x1a2b;
  return ranks;
}

TEST(FlightTable, ShowsTheVerdictAndEachRanksLastOperations) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  EXPECT_EQ(
      flight_table(stuck(), 15 * kSecond + 12'345, 2),
      "rank 1 never entered all_reduce #2 (float32 x 1000, sum) of group dp; rank 0 waits in it "
      "(for 12 s)\n"
      "  rank 1: its last was all_reduce #1 (float32 x 1000, sum) of group dp, completed 12.9 s "
      "ago\n"
      "\n"
      "rank 0  pid 4711  /opt/train  3 operations\n"
      "  NUMBER  GROUP  OPERATION                            STATE      AT            QUEUED  TOOK"
      "         CALLED FROM\n"
      "  1       dp     all_reduce #1 (float32 x 1000, sum)  completed  03:04:07.000  12 us   1.3 "
      "ms\n"
      "  2       dp     all_reduce #2 (float32 x 1000, sum)  started    03:04:08.000  12 us   12 s "
      "so far  train+0xa2b\n"
      "\n"
      "rank 1  pid 4712  /opt/train  2 operations\n"
      "  NUMBER  GROUP  OPERATION                            STATE      AT            QUEUED  TOOK"
      "    CALLED FROM\n"
      "  0       dp     all_reduce #0 (float32 x 1000, sum)  completed  03:04:06.000  12 us   1.3 "
      "ms\n"
      "  1       dp     all_reduce #1 (float32 x 1000, sum)  completed  03:04:07.000  12 us   1.3 "
      "ms\n");
}

TEST(FlightTable, SaysSoWhenNobodyWaits) {
  std::vector<RankRecord> ranks = stuck();
  ranks.erase(ranks.begin());
  ranks[0].ops.clear();
  ranks[0].recorded = 0;
  ranks[0].left_out = 1;
  EXPECT_EQ(flight_table(ranks, 0, 5),
            "no rank waits in an operation\n\n"
            "rank 1  pid 4712  /opt/train  0 operations, 1 unreadable\n");
}

TEST(FlightTable, AnAddressOutsideTheProgramStaysOne) {
  const std::vector<RankRecord> ranks = stuck();
  EXPECT_EQ(call_site(ranks[0], 0x1010), "train+0x10");
  EXPECT_EQ(call_site(ranks[0], 0x7fff0000), "0x7fff0000");
}

TEST(FlightTrace, HasASliceForEachOperationOnATrackOfItsGroup) {
  std::vector<RankRecord> ranks = stuck();
  ranks[0].ops[0].op = "say \"hi\" \\";
  ranks[1].wall_offset += 500'000;  // another machine
  const auto trace = nlohmann::json::parse(flight_trace(ranks, 15 * kSecond));
  std::vector<nlohmann::json> slices;
  std::vector<std::string> names;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") slices.push_back(event);
    if (event["ph"] == "M" && event["args"].contains("name")) {
      names.push_back(event["args"]["name"]);
    }
  }
  ASSERT_EQ(slices.size(), 5U);
  EXPECT_EQ(slices[0]["name"], "say \"hi\" \\ #0");
  EXPECT_EQ(slices[1]["name"], "all_reduce #1");
  EXPECT_EQ(slices[1]["cat"], "dp");
  EXPECT_EQ(slices[1]["pid"], 0);
  EXPECT_EQ(slices[1]["dur"], 1300.0);
  EXPECT_EQ(slices[1]["args"]["queued_us"], 12.345);
  EXPECT_EQ(slices[2]["args"]["state"], "under way");
  EXPECT_EQ(slices[2]["dur"], 11'999'987.655);
  EXPECT_EQ(slices[2]["args"]["called_from"], "train+0xa2b");
  EXPECT_EQ(slices[3]["pid"], 1);
  EXPECT_EQ(slices[3]["ts"], 500.0 + 12.345);  // the first call of all is at 0
  EXPECT_EQ(names, (std::vector<std::string>{"rank 0 (pid 4711)", "group dp", "rank 1 (pid 4712)",
                                             "group dp"}));
}

TEST(FlightTrace, OfNothingIsOneToo) {
  EXPECT_TRUE(nlohmann::json::parse(flight_trace({}, 0))["traceEvents"].empty());
}

// ---- options -----------------------------------------------------------------------------------

std::string complaint(std::vector<std::string_view> arguments) {
  const auto options = parse_flight_options(arguments);
  return options ? "taken" : options.error().detail;
}

TEST(FlightOptions, TakePathsAndValuesInBothForms) {
  const std::vector<std::string_view> arguments{"a", "--last=3", "b", "--trace", "out.json"};
  const auto options = parse_flight_options(arguments);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->paths, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options->last, 3U);
  EXPECT_EQ(options->trace, "out.json");
  EXPECT_EQ(parse_flight_options({})->last, 10U);
}

TEST(FlightOptions, WrongOnesAreRefusedInWords) {
  EXPECT_EQ(complaint({"--last"}), "flight: --last: needs a value");
  EXPECT_EQ(complaint({"--last", "all"}),
            "flight: --last: not a whole number from 0 to 65536: 'all'");
  EXPECT_EQ(complaint({"--trace="}), "flight: --trace: needs the name of a file");
  EXPECT_EQ(complaint({"--help=yes"}), "flight: --help: takes no value");
  EXPECT_EQ(complaint({"--all"}),
            "flight: '--all': not an option of it; distrun flight --help lists them (a script "
            "whose name is flight is run as ./flight)");
}

TEST(FlightOptions, TheDocumentsNameThem) {
  for (const char* name : {"last", "trace"}) {
    const std::string option = std::string("--") + name;
    const std::string page = contents(source_path("docs/man/distrun-flight.1"));
    EXPECT_NE(page.find(std::string("\n.BR \\-\\-") + name), std::string::npos) << name;
    const std::string bash = contents(source_path("configs/completions/distrun.bash"));
    EXPECT_NE(bash.find(option + " "), std::string::npos) << name;
    const std::string zsh = contents(source_path("configs/completions/_distrun"));
    EXPECT_NE(zsh.find("'" + option + "=["), std::string::npos) << name;
    const std::string fish = contents(source_path("configs/completions/distrun.fish"));
    EXPECT_NE(fish.find(std::string("flight' -l ") + name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace distrun::launcher
