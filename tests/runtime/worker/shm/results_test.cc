// Every collective, over every kind of size, compared with what each rank reckons by itself.
#include "runtime/worker/reduction.h"
#include "runtime/worker/shm/host.h"
#include "runtime/worker/shm/join.h"
#include "runtime/worker/shm/layout.h"
#include "runtime/worker/shm/runner.h"
#include "tests/runtime/worker/shm/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <sstream>

namespace distrun::shm::test {
namespace {

using Bytes = std::vector<std::byte>;
using Counts = std::vector<std::uint64_t>;

// What `rank` has at `index` for rank `to`: small whole numbers, so that nothing overflows.
std::uint8_t number_at(int rank, int to, std::uint64_t index) {
  return static_cast<std::uint8_t>((static_cast<std::uint64_t>(rank * 5 + to * 3) + index * 7) % 4 +
                                   1);
}

template <class T>
void write_number(std::byte* at, std::uint8_t number) {
  const T value = static_cast<T>(static_cast<float>(number));
  std::memcpy(at, &value, sizeof value);
}

void write_number(DType dtype, std::byte* at, std::uint8_t number) {
  switch (dtype) {
    case DType::float16:
      return write_number<float16>(at, number);
    case DType::bfloat16:
      return write_number<bfloat16>(at, number);
    case DType::float32:
      return write_number<float>(at, number);
    case DType::float64:
      return write_number<double>(at, number);
    case DType::complex64:
      return write_number<std::complex<float>>(at, number);
    case DType::complex128:
      return write_number<std::complex<double>>(at, number);
    case DType::boolean:
      *at = static_cast<std::byte>(number % 2);
      return;
    case DType::int8:
    case DType::int16:
    case DType::int32:
    case DType::int64:
    case DType::uint8:
    case DType::uint16:
    case DType::uint32:
    case DType::uint64:
      std::memset(at, 0, size_of(dtype));
      *at = static_cast<std::byte>(number);  // little endian
      return;
  }
}

Bytes data_of(DType dtype, int rank, int to, std::uint64_t count) {
  Bytes data(count * size_of(dtype));
  for (std::uint64_t i = 0; i < count; ++i)
    write_number(dtype, data.data() + i * size_of(dtype), number_at(rank, to, i));
  return data;
}

Bytes reduced(const Call& call, int size, int to, std::uint64_t count) {
  std::vector<Bytes> inputs;
  std::vector<const void*> pointers;
  for (int rank = 0; rank < size; ++rank) {
    inputs.push_back(data_of(call.dtype, rank, to, count));
    // Each rank has a factor of its own.
    prepare(call.dtype, call.reduce, rank + 2, inputs.back().data(), inputs.back().data(), count);
    pointers.push_back(inputs.back().data());
  }
  Bytes result(count * size_of(call.dtype));
  combine_all(call.dtype, call.reduce, result.data(), pointers, count);
  finish(call.dtype, call.reduce, result.data(), count, size);
  return result;
}

const Bytes kUntouched = [] { return Bytes(64, std::byte{0xEE}); }();

// So that little data meets every limit; the last test has the real ones.
constexpr Tuning kSmall{.flat_bytes = 256, .chunk_bytes = 1024};

std::unique_ptr<CallRunner> connect_small(Store& store, int rank, int size) {
  Joined joined = join(store, rank, size, this_host(), soon());
  if (!joined.membership) throw std::runtime_error("no shared memory: " + joined.why_not);
  return std::make_unique<Runner>(std::move(*joined.membership), kSmall);
}

// One rank: makes calls, and keeps the first that gives something wrong.
class Checker {
 public:
  Checker(Store& store, int rank, int size)
      : runner_(connect_small(store, rank, size)), rank_(rank), size_(size) {}

  const std::string& problem() const { return problem_; }

  void broadcast(DType dtype, int root, std::uint64_t count) {
    Call call = make(OpType::broadcast, dtype, root, count);
    const Bytes expected = data_of(dtype, root, 0, count);
    Bytes data = rank_ == root ? expected : Bytes(expected.size());
    call.in = call.out = data.data();
    run(call, data, expected);
  }

  void reduce(OpType op, DType dtype, ReduceOp reduction, int root, std::uint64_t count,
              bool in_place) {
    if (!why_no_reduction(dtype, reduction).empty()) return;
    Call call = make(op, dtype, root, count);
    call.reduce = reduction;
    call.factor = rank_ + 2;
    Bytes in = data_of(dtype, rank_, 0, count);
    Bytes out(in.size(), std::byte{0xEE});
    const bool has_result = op == OpType::all_reduce || rank_ == root;
    const Bytes expected = has_result ? reduced(call, size_, 0, count) : in_place ? in : out;
    call.in = in.data();
    call.out = in_place ? in.data() : out.data();
    run(call, in_place ? in : out, expected);
  }

  // all_gather, gather
  void gather(OpType op, DType dtype, int root, const Counts& counts, bool in_place) {
    const std::size_t width = size_of(dtype);
    Call call = make(op, dtype, root, counts[me()]);
    const bool takes = op == OpType::all_gather || rank_ == root;
    const Bytes in = data_of(dtype, rank_, 0, call.count);
    call.in = in.data();
    Bytes out, expected;
    if (takes) {
      for (int rank = 0; rank < size_; ++rank)
        append(expected, data_of(dtype, rank, 0, counts[static_cast<std::size_t>(rank)]));
      out.resize(expected.size());
      std::size_t at = 0;
      for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        call.outs.push_back({out.data() + at, counts[rank]});
        if (rank == me() && in_place) {
          std::copy(in.begin(), in.end(), out.begin() + static_cast<std::ptrdiff_t>(at));
          call.in = out.data() + at;
        }
        at += counts[rank] * width;
      }
    }
    run(call, out, expected);
  }

  void scatter(DType dtype, int root, const Counts& counts) {
    Call call = make(OpType::scatter, dtype, root, counts[me()]);
    std::vector<Bytes> ins;
    for (int to = 0; rank_ == root && to < size_; ++to)
      ins.push_back(data_of(dtype, root, to, counts[static_cast<std::size_t>(to)]));
    for (std::size_t to = 0; to < ins.size(); ++to)
      call.ins.push_back({ins[to].data(), counts[to]});
    const Bytes expected = data_of(dtype, root, rank_, call.count);
    Bytes out(expected.size());
    call.out = out.data();
    run(call, out, expected);
  }

  void reduce_scatter(DType dtype, ReduceOp reduction, const Counts& counts, bool in_place) {
    if (!why_no_reduction(dtype, reduction).empty()) return;
    Call call = make(OpType::reduce_scatter, dtype, 0, counts[me()]);
    call.reduce = reduction;
    call.factor = rank_ + 2;
    std::vector<Bytes> ins;
    ins.reserve(counts.size());
    for (int to = 0; to < size_; ++to)
      ins.push_back(data_of(dtype, rank_, to, counts[static_cast<std::size_t>(to)]));
    for (std::size_t to = 0; to < ins.size(); ++to)
      call.ins.push_back({ins[to].data(), counts[to]});
    const Bytes expected = reduced(call, size_, rank_, call.count);
    Bytes out(expected.size());
    Bytes& result = in_place ? ins[me()] : out;
    call.out = result.data();
    run(call, result, expected);
  }

  // Rank i has counts[i][j] for rank j.
  void all_to_all(DType dtype, const std::vector<Counts>& counts) {
    Call call = make(OpType::all_to_all, dtype, 0, 0);
    std::vector<Bytes> ins;
    Bytes expected;
    for (int peer = 0; peer < size_; ++peer) {
      const auto at = static_cast<std::size_t>(peer);
      ins.push_back(data_of(dtype, rank_, peer, counts[me()][at]));
      append(expected, data_of(dtype, peer, rank_, counts[at][me()]));
    }
    Bytes out(expected.size());
    std::size_t at = 0;
    for (std::size_t peer = 0; peer < ins.size(); ++peer) {
      call.ins.push_back({ins[peer].data(), counts[me()][peer]});
      call.outs.push_back({out.data() + at, counts[peer][me()]});
      at += counts[peer][me()] * size_of(dtype);
    }
    run(call, out, expected);
  }

  void barrier() {
    Bytes none;
    run(make(OpType::barrier, DType::float32, 0, 0), none, none);
  }

 private:
  std::size_t me() const { return static_cast<std::size_t>(rank_); }

  static void append(Bytes& to, const Bytes& more) {
    to.insert(to.end(), more.begin(), more.end());
  }

  Call make(OpType op, DType dtype, int root, std::uint64_t count) {
    Call call;
    call.op = op;
    call.dtype = dtype;
    call.root = root;
    call.count = count;
    call.sequence = sequence_++;
    return call;
  }

  void run(const Call& call, const Bytes& result, const Bytes& expected) {
    runner_->run(call, soon());
    if (result == expected || !problem_.empty()) return;
    const auto at = std::ranges::mismatch(result, expected).in1 - result.begin();
    problem_ = "rank " + std::to_string(rank_) + ": " + std::string(to_string(call.op)) + " of " +
               std::to_string(call.count) + " " + std::string(to_string(call.dtype)) + ", " +
               std::string(to_string(call.reduce)) + ", root " + std::to_string(call.root) +
               ": wrong from byte " + std::to_string(at);
  }

  std::unique_ptr<CallRunner> runner_;
  const int rank_;
  const int size_;
  std::uint64_t sequence_ = 0;
  std::string problem_;
};

// Around every limit at which something else is done.
Counts counts_for(int size, DType dtype) {
  const std::size_t width = size_of(dtype);
  const std::size_t chunk = area_bytes(kSmall.chunk_bytes, size) * static_cast<std::size_t>(size);
  Counts counts{0, 1, 3};
  for (const std::size_t limit : {kInlineBytes, kLine, kSmall.flat_bytes, chunk, 2 * chunk})
    for (const std::size_t count : {limit / width - 1, limit / width, limit / width + 1})
      counts.push_back(count);
  counts.push_back(7 * chunk / width + 5);
  return counts;
}

// Uneven parts for each rank, some empty, up to `most`.
Counts uneven(int size, std::uint64_t most, int seed) {
  Counts counts;
  for (int rank = 0; rank < size; ++rank)
    counts.push_back(
        (rank + seed) % 3 == 1 ? 0 : most * static_cast<unsigned>((rank + seed) % 4 + 1) / 4);
  return counts;
}

std::vector<std::string> all_good(int ranks) {
  return std::vector<std::string>(static_cast<std::size_t>(ranks));
}

class SharedMemoryResults : public testing::TestWithParam<int> {};

TEST_P(SharedMemoryResults, ReductionsOfEveryTypeAndOperation) {
  const int size = GetParam();
  const Body body = [&](int rank, Store& store) {
    Checker checker(store, rank, size);
    for (int dtype = 0; dtype < kDTypes; ++dtype)
      for (int op = 0; op <= static_cast<int>(ReduceOp::premul_sum); ++op)
        for (const std::uint64_t count : {0U, 1U, 5U, 300U}) {
          const auto type = static_cast<DType>(dtype);
          const auto reduction = static_cast<ReduceOp>(op);
          checker.reduce(OpType::all_reduce, type, reduction, 0, count, count % 2 == 0);
          checker.reduce(OpType::reduce, type, reduction, size - 1, count, count % 2 == 1);
          checker.reduce_scatter(type, reduction, Counts(static_cast<std::size_t>(size), count),
                                 count % 2 == 0);
        }
    return checker.problem();
  };
  EXPECT_EQ(run_processes(size, body), all_good(size));
}

TEST_P(SharedMemoryResults, EveryOperationAtEverySize) {
  const int size = GetParam();
  const Body body = [&](int rank, Store& store) {
    Checker checker(store, rank, size);
    for (const DType dtype : {DType::float32, DType::int8, DType::complex128}) {
      int turn = 0;
      for (const std::uint64_t count : counts_for(size, dtype)) {
        const int root = turn++ % size;
        const bool in_place = turn % 2 == 0;
        checker.broadcast(dtype, root, count);
        checker.reduce(OpType::all_reduce, dtype, ReduceOp::sum, 0, count, in_place);
        checker.reduce(OpType::all_reduce, dtype, ReduceOp::premul_sum, 0, count, in_place);
        checker.reduce(OpType::reduce, dtype, ReduceOp::product, root, count, in_place);
        checker.barrier();
        for (const Counts& counts :
             {Counts(static_cast<std::size_t>(size), count), uneven(size, count, turn)}) {
          checker.gather(OpType::all_gather, dtype, 0, counts, in_place);
          checker.gather(OpType::gather, dtype, root, counts, in_place);
          checker.scatter(dtype, root, counts);
          checker.reduce_scatter(dtype, ReduceOp::sum, counts, in_place);
          std::vector<Counts> matrix;
          matrix.reserve(counts.size());
          for (int from = 0; from < size; ++from)
            matrix.push_back(counts.front() == counts.back() ? counts : uneven(size, count, from));
          checker.all_to_all(dtype, matrix);
        }
      }
    }
    return checker.problem();
  };
  EXPECT_EQ(run_processes(size, body), all_good(size));
}

INSTANTIATE_TEST_SUITE_P(Ranks, SharedMemoryResults, testing::Values(1, 2, 3, 5));

// Values whose sum depends on the order in which they are added.
TEST(SharedMemory, ResultsAreTheSameBitForBitOnAllRanks) {
  const int size = 4;
  const Body body = [&](int rank, Store& store) {
    const auto runner = connect(store, rank, size);
    std::uint64_t hash = 14695981039346656037U;
    std::uint64_t sequence = 0;
    for (const std::size_t count : {3U, 1'000U, 4'001U, 300'000U}) {
      std::vector<float> data(count);
      for (std::size_t i = 0; i < count; ++i)
        data[i] = std::ldexp(1.0F + static_cast<float>(i % 997) / 997.0F,
                             static_cast<int>((i + static_cast<std::size_t>(rank) * 31) % 40));
      runner->run(all_reduce_call(data, sequence++), soon());
      for (const float value : data)
        hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211U;
    }
    return std::to_string(hash);
  };
  const auto reports = run_processes(size, body);
  EXPECT_EQ(reports, std::vector<std::string>(reports.size(), reports.front()));
}

TEST(SharedMemory, ResultsOfThreadsAreThoseOfProcesses) {
  for (const int size : {2, 3}) {
    const Body body = [&](int rank, Store& store) {
      Checker checker(store, rank, size);
      for (const std::uint64_t count : {1U, 300U, 20'000U}) {
        checker.reduce(OpType::all_reduce, DType::float32, ReduceOp::sum, 0, count, true);
        checker.broadcast(DType::int16, size - 1, count);
        checker.gather(OpType::all_gather, DType::float64, 0, uneven(size, count, 1), false);
        checker.all_to_all(DType::int32, std::vector<Counts>(static_cast<std::size_t>(size),
                                                             uneven(size, count, 2)));
      }
      return checker.problem();
    };
    EXPECT_EQ(run_threads(size, body), all_good(size));
  }
}

}  // namespace
}  // namespace distrun::shm::test
