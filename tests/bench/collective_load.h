// How the *_load programs of all_reduce measure: the same loop for every library.
//
// A sample is a batch of calls that takes some 20 us, so that reading the clock does not count;
// what is printed is the median, the fastest and the 90th percentile of the samples, in us for a
// call.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <sched.h>
#include <unistd.h>
#include <vector>

namespace load {

inline double now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

inline void pin(int rank) {
  cpu_set_t all;
  sched_getaffinity(0, sizeof all, &all);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &all)) cpus.push_back(cpu);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpus[static_cast<std::size_t>(rank) % cpus.size()], &one);
  sched_setaffinity(0, sizeof one, &one);
}

// `all_reduce` adds up `data`, which is zeros, over all ranks, in place.  Rank 0 prints.
template <class AllReduce>
void measure(int rank, float* data, std::size_t count, double seconds, AllReduce all_reduce) {
  std::fill_n(data, count, 0.0F);
  for (int i = 0; i < 3; ++i) all_reduce();
  double each = 1e12;
  for (int tries = 0; tries < 3; ++tries) {
    const double start = now_us();
    for (int i = 0; i < 4; ++i) all_reduce();
    each = std::min(each, (now_us() - start) / 4);
  }
  // Rank 0's, by the very call: the others put in nothing.
  const auto agreed = [&](double value) {
    data[0] = rank == 0 ? static_cast<float>(value) : 0.0F;
    all_reduce();
    const float result = data[0];
    data[0] = 0;
    return static_cast<int>(result);
  };
  const int batch = agreed(std::clamp(20.0 / each, 1.0, 1000.0));
  const int samples = agreed(std::clamp(seconds * 1e6 / (each * batch), 5.0, 100'000.0));
  std::vector<double> took;
  for (int sample = 0; sample < samples; ++sample) {
    const double start = now_us();
    for (int i = 0; i < batch; ++i) all_reduce();
    took.push_back((now_us() - start) / batch);
  }
  if (rank != 0) return;
  std::sort(took.begin(), took.end());
  std::printf("%.3f %.3f %.3f %d\n", took[took.size() / 2], took.front(),
              took[took.size() * 9 / 10], samples * batch);
  std::fflush(stdout);
}

}  // namespace load
