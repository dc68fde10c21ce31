// libFuzzer on the reader of flight records and on what is made of them.  Whatever the bytes are:
//   * decode() gives an error, or a record within its bounds whose texts are printable;
//   * reading the same bytes again gives the same;
//   * findings and their sentences can be made of it, alone and beside a sound record.
// A record is too large for a fuzzer to come upon.  So the input is a list of changes to a sound
// one, each: which of the two copies (bit 0, bit 1), how far from the last change (u16), how many
// bytes (u8), those bytes.  One that begins with 0xFF is a file as it is.
#include "runtime/base/check.h"
#include "runtime/recorder/analysis.h"
#include "runtime/recorder/flight_file.h"
#include "runtime/recorder/op_recorder.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace distrun::recorder {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::uint32_t kRing = 16;

Bytes make_sound() {
  const std::string path = "/tmp/distrun-flight-file-fuzz-" + std::to_string(::getpid());
  OpRecorder recorder;
  OpRecorder::Options options;
  options.path = path;
  options.ops = kRing;
  options.rank = 2;
  options.world_size = 8;
  DISTRUN_CHECK(static_cast<bool>(recorder.open(options)));
  constexpr std::array<std::string_view, 2> kOps{"all_reduce", "recv"};
  constexpr std::array<std::string_view, 1> kReduces{"sum"};
  constexpr std::array<std::string_view, 1> kDTypes{"float32"};
  recorder.name_codes({kOps, kReduces, kDTypes});
  constexpr std::array<int, 4> kRanks{0, 2, 4, 6};
  constexpr std::array<int, 3> kUneven{1, 2, 7};
  const GroupRef all = recorder.add_group({"1", "dp", "gloo", 1, 4, kRanks});
  const GroupRef few = recorder.add_group({"2", "", "gloo", 1, 3, kUneven});
  for (std::uint64_t i = 0; i < kRing + 3; ++i) {
    OpInfo info;
    info.group = i % 3 == 0 ? few : all;
    info.sequence = i;
    info.op = i % 4 == 0 ? 1 : 0;
    info.flags = i % 4 == 0 ? kPointToPoint | kReceive : kCountsAgree;
    info.peer = i % 4 == 0 ? 0 : -1;
    info.reduce = info.dtype = 0;
    const OpHandle op = recorder.scheduled(info);
    if (i % 5 != 0) recorder.started(op);
    if (i % 5 > 1) recorder.completed(op, i % 5 != 3);
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  ::unlink(path.c_str());
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

const Bytes& sound() {
  static const Bytes bytes = make_sound();
  return bytes;
}

struct Copies {
  Bytes first;
  Bytes second;
};

Copies copies_of(std::span<const std::uint8_t> input) {
  if (!input.empty() && input.front() == 0xFF) {
    const auto rest = std::as_bytes(input.subspan(1));
    return {Bytes(rest.begin(), rest.end()), Bytes(rest.begin(), rest.end())};
  }
  Copies copies{sound(), sound()};
  std::size_t at = 0;
  while (input.size() > 4) {
    const std::uint8_t which = input[0];
    at = (at + input[1] + (std::size_t{input[2]} << 8)) % copies.first.size();
    const std::size_t count =
        std::min({std::size_t{input[3]}, input.size() - 4, copies.first.size() - at});
    if ((which & 1) == 0) std::memcpy(copies.first.data() + at, input.data() + 4, count);
    if ((which & 2) == 0) std::memcpy(copies.second.data() + at, input.data() + 4, count);
    input = input.subspan(4 + count);
  }
  return copies;
}

bool printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c <= 0x7E; });
}

void check_record(const RankRecord& record) {
  DISTRUN_CHECK(record.rank >= 0 && record.rank < record.world_size);
  DISTRUN_CHECK(printable(record.program));
  DISTRUN_CHECK(record.groups.size() <= kMaxGroups);
  for (const GroupRecord& group : record.groups) {
    DISTRUN_CHECK(printable(group.name + group.description + group.backend));
    DISTRUN_CHECK(group.rank >= 0 && group.rank < group.size);
    DISTRUN_CHECK(group.ranks.empty() ||
                  group.ranks.size() == static_cast<std::size_t>(group.size));
  }
  DISTRUN_CHECK(record.ops.size() + record.left_out <= kMaxOps);
  for (const OpRecord& op : record.ops) {
    DISTRUN_CHECK(printable(op.op + op.reduce + op.dtype));
    DISTRUN_CHECK(op.state >= OpState::scheduled && op.state <= OpState::failed);
    DISTRUN_CHECK(op.peer >= -1);
  }
  DISTRUN_CHECK(std::ranges::is_sorted(record.ops, {}, &OpRecord::number));
}

}  // namespace
}  // namespace distrun::recorder

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distrun::recorder;
  const Copies copies = copies_of({data, size});
  const auto record = decode(copies.first, copies.second);
  if (!record) {
    DISTRUN_CHECK(!record.error().detail.empty());
    return 0;
  }
  check_record(*record);
  const auto again = decode(copies.first, copies.second);
  DISTRUN_CHECK(again && again->ops.size() == record->ops.size() &&
                again->left_out == record->left_out);
  static const RankRecord other = *decode(sound(), sound());
  std::vector<RankRecord> both{other, *record};
  for (const auto ranks : {std::span(both).subspan(1), std::span(both)}) {
    AnalysisOptions options;
    options.now = last_moment(ranks);
    for (const std::string& line : lines_of(analyse(ranks, options)))
      DISTRUN_CHECK(printable(line));
  }
  for (const OpRecord& op : record->ops) DISTRUN_CHECK(printable(describe(op)));
  return 0;
}
