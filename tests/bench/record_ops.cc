// record_ops ROUNDS FILE: what recording one operation costs, in ns, the median of ROUNDS rounds of
// 200,000 in turn; one line each:
//
//   scheduled_started_completed 36.2      an asynchronous operation
//   began_completed 25.4                  a synchronous one
//   not_recording 1.1                     the same calls without a record
//   clock 11.6                            one reading of the clock, for comparison
//
// FILE is made, and removed at the end; in /dev/shm, as for real.
#include "runtime/recorder/op_recorder.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <unistd.h>
#include <vector>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace {

using namespace distrun::recorder;

constexpr std::uint64_t kOps = 200'000;
constexpr std::size_t kRoundsMax = 1000;

template <class Body>
double ns_each(Body body) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < kOps; ++i) body(i);
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kOps;
}

OpInfo info_of(GroupRef group, std::uint64_t sequence) {
  OpInfo info;
  info.group = group;
  info.sequence = sequence;
  info.op = 1;
  info.reduce = 0;
  info.dtype = 0;
  info.count_in = info.count_out = 1000;
  info.call_site = __builtin_return_address(0);
  return info;
}

void in_three(OpRecorder& recorder, GroupRef group, std::uint64_t i) {
  const OpHandle op = recorder.scheduled(info_of(group, i));
  recorder.started(op);
  recorder.completed(op, true);
}

void print_median(const char* name, std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  std::printf("%s %.1f\n", name, values[values.size() / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t rounds = 0;
  if (argc == 3) std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), rounds);
  if (rounds < 1 || rounds > kRoundsMax) {
    std::fprintf(stderr, "usage: record_ops ROUNDS FILE\n");
    return 2;
  }
  OpRecorder recorder;
  OpRecorder::Options options;
  options.path = argv[2];
  if (const auto opened = recorder.open(options); !opened) {
    std::fprintf(stderr, "record_ops: %s\n", opened.error().detail.c_str());
    return 1;
  }
  GroupInfo group_info;
  group_info.name = "bench";
  const GroupRef group = recorder.add_group(group_info);
  OpRecorder off;
  std::vector<double> three, two, none, clock;
  std::uint64_t sum = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    three.push_back(ns_each([&](std::uint64_t i) { in_three(recorder, group, i); }));
    two.push_back(ns_each(
        [&](std::uint64_t i) { recorder.completed(recorder.began(info_of(group, i)), true); }));
    none.push_back(ns_each([&](std::uint64_t i) { in_three(off, group, i); }));
#if defined(__x86_64__)
    clock.push_back(ns_each([&](std::uint64_t) { sum += __rdtsc(); }));
#else
    clock.push_back(ns_each([&](std::uint64_t) {
      sum +=
          static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    }));
#endif
  }
  ::unlink(argv[2]);
  print_median("scheduled_started_completed", three);
  print_median("began_completed", two);
  print_median("not_recording", none);
  print_median("clock", clock);
  return sum == 0 ? 1 : 0;
}
