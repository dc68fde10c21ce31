// A worker that writes flight records as the worker library does, and then hangs or fails:
//
//   recording_worker FOLDER MISSING exit|hang
//
// All ranks complete three operations; then all but rank MISSING begin a fourth and wait for ever.
// That one waits until they are in it, then exits with 13, or waits for ever, too.  Each makes
// FOLDER/<rank> when it is where it stays.
#include "runtime/recorder/op_recorder.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <numeric>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <vector>

namespace {

using namespace distrun::recorder;

int number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? -1 : std::atoi(text);
}

void pause_ms(long ms) {
  const timespec pause{ms / 1000, (ms % 1000) * 1'000'000};
  ::nanosleep(&pause, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 91;
  const std::string folder = argv[1];
  const int missing = std::atoi(argv[2]);
  const int rank = number("RANK");
  const int world = number("WORLD_SIZE");
  OpRecorder* const record = recorder();
  if (!record->records()) {
    std::fprintf(stderr, "recording_worker: nothing is recorded\n");
    return 92;
  }
  static constexpr std::array<std::string_view, 1> kOps{"all_reduce"};
  static constexpr std::array<std::string_view, 1> kReduces{"sum"};
  static constexpr std::array<std::string_view, 1> kDTypes{"float32"};
  record->name_codes({kOps, kReduces, kDTypes});
  std::vector<int> ranks(static_cast<std::size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  GroupInfo group;
  group.name = "dp";
  group.rank = rank;
  group.size = world;
  group.ranks = ranks;
  OpInfo op;
  op.group = record->add_group(group);
  op.reduce = op.dtype = 0;
  op.flags = kCountsAgree;
  op.count_in = op.count_out = 1000;
  for (op.sequence = 0; op.sequence < 3; ++op.sequence) record->completed(record->began(op), true);
  if (rank != missing) record->began(op);
  for (int other = 0; rank == missing && other < world; ++other) {
    struct stat info {};
    const std::string there = folder + "/" + std::to_string(other);
    while (other != missing && ::stat(there.c_str(), &info) != 0) pause_ms(5);
  }
  if (rank == missing && std::string_view(argv[3]) == "exit") return 13;
  ::close(::open((folder + "/" + std::to_string(rank)).c_str(), O_CREAT | O_WRONLY, 0644));
  for (;;) pause_ms(1000);
}
