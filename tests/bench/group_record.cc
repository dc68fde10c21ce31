// group_record SLICES FILE: what the flight record costs an all_reduce of 8 bytes between two ranks
// of one host, pinned to a CPU each, through the public interface.  Slices of some 500 us, in turn
// with and without a record, so that both see the same machine; ns for a call:
//
//   without 351.2 330.8       the median of the slices, and the tenth percentile
//   with 360.1 338.0
//   ratio 1.024           of each slice with one to the slice after it, the median
//
// FILE and FILE.1 are made, and removed at the end; in /dev/shm, as for real.
#include "runtime/recorder/op_recorder.h"
#include "tests/bench/collective_load.h"
#include "tests/bench/forked_ranks.h"
#include <distrun/process_group.h>

#include <charconv>
#include <cstring>
#include <stdexcept>
#include <string>

namespace {

constexpr int kOps = 1500;
constexpr std::size_t kSlicesMax = 10'000;

void switch_record(bool on, const std::string& path, int rank) {
  distrun::recorder::OpRecorder& recorder = *distrun::recorder::recorder();
  recorder.forget();
  if (!on) return;
  distrun::recorder::OpRecorder::Options options;
  options.path = path;
  options.rank = rank;
  options.world_size = 2;
  if (const auto opened = recorder.open(options); !opened)
    throw std::runtime_error(opened.error().detail);
}

void print(const char* name, std::vector<double>& ns) {
  std::sort(ns.begin(), ns.end());
  std::printf("%s %.1f %.1f\n", name, ns[ns.size() / 2], ns[ns.size() / 10]);
}

void run(int rank, std::size_t slices, const std::string& file) {
  load::pin(rank);
  const std::string path = file + (rank == 0 ? "" : ".1");
  switch_record(true, path, rank);  // so that the group has its place in it
  distrun::GroupOptions options;
  options.store = std::make_shared<distrun::FileStore>(file + ".store", 2);
  options.rank = rank;
  options.world_size = 2;
  const auto group = distrun::init_process_group("gloo", options);
  std::vector<double> with, without;
  float data[2] = {};
  for (std::size_t slice = 0; slice < 2 * slices; ++slice) {
    const bool on = slice % 2 == 0;
    switch_record(on, path, rank);
    for (int i = 0; i < kOps / 10; ++i) group->all_reduce(data);
    const double start = load::now_us();
    for (int i = 0; i < kOps; ++i) group->all_reduce(data);
    (on ? with : without).push_back((load::now_us() - start) * 1000 / kOps);
  }
  group->close();
  unlink(path.c_str());
  if (rank != 0) return;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < with.size(); ++i) ratios.push_back(with[i] / without[i]);
  std::sort(ratios.begin(), ratios.end());
  print("without", without);
  print("with", with);
  std::printf("ratio %.3f\n", ratios[ratios.size() / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t slices = 0;
  if (argc == 3) std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), slices);
  if (slices < 1 || slices > kSlicesMax)
    return std::fprintf(stderr, "usage: group_record SLICES FILE\n"), 2;
  const std::string file = argv[2];
  const int status = load::run_ranks(2, [&](int rank) { run(rank, slices, file); });
  unlink((file + ".store").c_str());
  return status;
}
