// Collectives of tensors that are read where they lie: the same results as of any other, whoever
// lends and whoever does not.
#include "runtime/worker/shm/heap.h"
#include "runtime/worker/shm/host.h"
#include "runtime/worker/shm/join.h"
#include "runtime/worker/shm/runner.h"
#include "runtime/worker/shm/shared_memory.h"
#include "tests/runtime/worker/reference.h"
#include "tests/runtime/worker/shm/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstring>

namespace distrun::shm::test {
namespace {

using distrun::test::Side;
using distrun::test::Trial;
using Strings = std::vector<std::string>;

// So that little data meets every limit.
constexpr Tuning kSmall{
    .flat_bytes = 64, .chunk_bytes = 1024, .lend_bytes = 128, .lent_chunk_bytes = 640};
constexpr std::size_t kRoom = std::size_t{1} << 20;

std::unique_ptr<Runner> connect_small(Store& store, int rank, int size) {
  Joined joined = join(store, rank, size, this_host(), soon());
  if (!joined.membership) throw std::runtime_error("no shared memory: " + joined.why_not);
  if (joined.membership->heaps.empty()) throw std::runtime_error("nothing can be lent");
  return std::make_unique<Runner>(std::move(*joined.membership), kSmall);
}

enum class Lenders { all, none, one, all_but_one, only_outputs };
constexpr Lenders kLenders[]{Lenders::all, Lenders::all, Lenders::one, Lenders::all_but_one,
                             Lenders::only_outputs};

bool lends(Lenders lenders, int rank, std::size_t turn, int size) {
  const bool is_one = rank == static_cast<int>(turn) % size;
  switch (lenders) {
    case Lenders::all:
      return true;
    case Lenders::none:
    case Lenders::only_outputs:
      return false;
    case Lenders::one:
      return is_one;
    case Lenders::all_but_one:
      return !is_one;
  }
  return false;
}

// A call whose data lies in a Buffer instead, and that may be in place where the reference is not,
// and the other way round.
class Moved {
 public:
  Moved(Side& side, const Buffer& room, bool moves_in, bool moves_out, bool other_way, int rank)
      : side_(side), result_(side.out.data()), bytes_(side.out.size()) {
    Call& call = side.call;
    const std::size_t width = size_of(call.dtype);
    std::byte* at = room.data() + 64;
    if (moves_in) at = move(side.in, at);
    if (moves_out) result_ = at, at = move(side.out, at);
    const auto me = static_cast<std::size_t>(rank);
    if (!other_way) return;
    if (call.op == OpType::all_reduce || call.op == OpType::reduce) {
      if (bytes_ > 0) std::memcpy(at, result_, bytes_);
      call.in = at;
    } else if (call.op == OpType::all_gather) {
      if (call.count > 0) std::memcpy(call.outs[me].data, call.in, call.count * width);
      call.in = call.outs[me].data;
    } else if (call.op == OpType::reduce_scatter) {
      result_ = const_cast<std::byte*>(call.ins[me].data);
      bytes_ = call.count * width;
      call.out = result_;
    }
  }

  // What the call has left, where check() looks for it.
  void bring_back() const {
    if (bytes_ > 0) std::memmove(side_.out.data(), result_, bytes_);
  }

 private:
  std::byte* move(const std::vector<std::byte>& memory, std::byte* to) {
    if (!memory.empty()) std::memcpy(to, memory.data(), memory.size());
    const auto rebase = [&](auto*& pointer) {
      if (pointer >= memory.data() && pointer <= memory.data() + memory.size())
        pointer = to + (pointer - memory.data());
    };
    Call& call = side_.call;
    rebase(call.in);
    rebase(call.out);
    for (ConstPart& part : call.ins) rebase(part.data);
    for (Part& part : call.outs) rebase(part.data);
    return to + (memory.size() + 63) / 64 * 64;
  }

  Side& side_;
  std::byte* result_;
  std::size_t bytes_;
};

std::string run_trials(int rank, Store& store, int size, OpType op) {
  const auto runner = connect_small(store, rank, size);
  const Buffer room = allocate_buffer(kRoom);
  if (!room.is_registered()) return "no memory to be lent";
  std::size_t turn = 0;
  for (const Trial& trial : distrun::test::trials_of(op, size, {0, 83, 700})) {
    const Lenders lenders = kLenders[turn % std::size(kLenders)];
    const bool mine = lends(lenders, rank, turn, size);
    Side side;
    distrun::test::set_up(side, trial, rank);
    side.call.sequence = turn;
    const Moved moved(side, room, mine, mine || lenders == Lenders::only_outputs, turn % 3 == 2,
                      rank);
    ++turn;
    runner->run(side.call, soon());
    moved.bring_back();
    distrun::test::check(side, trial, rank);
    if (testing::Test::HasFailure())
      return "wrong: " + trial.name() + ", turn " + std::to_string(turn - 1);
  }
  return "";
}

class ShmLending : public testing::TestWithParam<OpType> {};

TEST_P(ShmLending, GivesWhatEveryRunnerHasToGive) {
  for (const int size : {1, 2, 4})
    EXPECT_EQ(run_processes(size,
                            [&](int rank, Store& store) {
                              return run_trials(rank, store, size, GetParam());
                            }),
              Strings(static_cast<std::size_t>(size)));
}

// All of one heap.
TEST_P(ShmLending, OfThreadsToo) {
  EXPECT_EQ(run_threads(
                3, [&](int rank, Store& store) { return run_trials(rank, store, 3, GetParam()); }),
            Strings(3));
}

INSTANTIATE_TEST_SUITE_P(Operations, ShmLending, testing::ValuesIn(distrun::test::kAllOps),
                         [](const auto& of) { return std::string(to_string(of.param)); });

Call all_reduce_of(std::span<float> data, std::uint64_t sequence = 0) {
  Call call;
  call.op = OpType::all_reduce;
  call.count = data.size();
  call.sequence = sequence;
  call.in = reinterpret_cast<const std::byte*>(data.data());
  call.out = reinterpret_cast<std::byte*>(data.data());
  return call;
}

// Values whose sum depends on the order in which they are added; with the real sizes.
TEST(ShmLendingResults, AreBitForBitThoseOfOtherMemory) {
  const int size = 3;
  const Strings reports = run_processes(size, [&](int rank, Store& store) -> std::string {
    const auto runner = connect(store, rank, size);
    std::uint64_t sequence = 0;
    for (const std::size_t count : {20'000U, 300'001U, 1'500'000U}) {
      std::vector<float> other(count);
      for (std::size_t i = 0; i < count; ++i)
        other[i] = std::ldexp(1.0F + static_cast<float>(i % 997) / 997.0F,
                              static_cast<int>((i + static_cast<std::size_t>(rank) * 31) % 40));
      const Buffer buffer = allocate_buffer(count * sizeof(float));
      const auto data = buffer.as<float>();
      std::ranges::copy(other, data.begin());
      runner->run(all_reduce_of(data, sequence++), soon());
      runner->run(all_reduce_of(other, sequence++), soon());
      if (!std::ranges::equal(data, other)) return "not the same: " + std::to_string(count);
    }
    return "";
  });
  EXPECT_EQ(reports, Strings(size));
}

TEST(ShmLendingResults, ABufferOfOneGroupServesAnother) {
  const Strings reports = run_processes(2, [](int rank, Store& store) -> std::string {
    PrefixStore first("first", store.clone()), second("second", store.clone());
    auto runner = connect(first, rank, 2);
    const Buffer buffer = allocate_buffer(kRoom);
    runner.reset();
    runner = connect(second, rank, 2);
    std::ranges::fill(buffer.as<float>(), 1.0F);
    runner->run(all_reduce_of(buffer.as<float>()), soon());
    return std::ranges::all_of(buffer.as<float>(), [](float x) { return x == 2.0F; }) ? "" : "no";
  });
  EXPECT_EQ(reports, Strings(2));
}

// ---- a rank that does not keep to the rules ----------------------------------------------------

// Rank 1 tells that its data lies at `lent`, and does nothing else; what rank 0 gets.
std::string told_of(const std::function<Lent(const Buffer& its)>& lent) {
  constexpr std::size_t kCount = kRoom / sizeof(float);
  return run_processes(2, [&](int rank, Store& store) -> std::string {
    if (rank == 0) {
      const auto runner = connect(store, rank, 2);
      const Buffer buffer = allocate_buffer(kRoom);
      std::ranges::fill(buffer.as<float>(), 1.0F);
      const std::string outcome =
          outcome_of([&] { runner->run(all_reduce_of(buffer.as<float>()), soon()); });
      const auto data = buffer.as<float>();
      const std::string name = data.front() == data.back() ? "" : "partly ";
      return outcome + " " + name + std::to_string(static_cast<int>(data.front()));
    }
    Joined joined = join(store, rank, 2, this_host(), soon());
    Lockstep steps(std::move(*joined.membership));
    Buffer buffer = allocate_buffer(kRoom);
    std::ranges::fill(buffer.as<float>(), 4.0F);
    steps.call() = fingerprint_of(all_reduce_of(buffer.as<float>()));
    steps.lend(lent(buffer));
    const std::size_t chunk = joined.tuning.lent_chunk_bytes;
    const std::size_t rounds = (kCount * sizeof(float) + chunk - 1) / chunk + 2;
    try {
      for (std::size_t round = 0; round < rounds; ++round) {
        steps.publish();
        steps.await_all(soon());
      }
    } catch (const PeerLost&) {
    }
    return "";
  })[0];
}

Lent at(std::uint64_t where) {
  return {where, where};
}

TEST(ShmLendingFault, WhatIsLentIsReadWhereItLies) {
  EXPECT_EQ(told_of([](const Buffer& its) {
              return at(Heap::own()->offset_of(its.data(), its.bytes()).value());
            }),
            " partly 5");  // the second half it would have had to add up itself
}

TEST(ShmLendingFault, MemoryOutsideOfAHeapIsNobodys) {
  const std::string expected = "lost 1: it has told of memory that it does not have 1";
  EXPECT_EQ(told_of([](const Buffer&) { return at(~std::uint64_t{15}); }), expected);
  EXPECT_EQ(told_of([](const Buffer&) { return at(Heap::own()->bytes() - 64); }), expected);
  EXPECT_EQ(told_of([](const Buffer&) { return at(4097); }), expected) << "not aligned";
}

TEST(ShmLendingFault, MemoryThatWasGivenBackIsZeros) {
  EXPECT_EQ(told_of([](const Buffer&) { return at(4096); }), " partly 1");
}

// It may have used its memory again before it was read.
TEST(ShmLendingFault, WhoLendsAndGivesUpEndsTheCallOfASlowReader) {
  const auto broadcast_of = [](std::span<float> data) {
    Call call = all_reduce_of(data);
    call.op = OpType::broadcast;
    call.root = 1;
    return call;
  };
  const Strings reports = run_processes(2, [&](int rank, Store& store) -> std::string {
    if (rank == 0) {
      const auto runner = connect(store, rank, 2);
      const Buffer buffer = allocate_buffer(kRoom);
      store.wait({"gave up"});
      const std::string outcome =
          outcome_of([&] { runner->run(broadcast_of(buffer.as<float>()), soon()); });
      store.set("done", "1");
      return outcome;
    }
    Joined joined = join(store, rank, 2, this_host(), soon());
    Lockstep steps(std::move(*joined.membership));
    Buffer buffer = allocate_buffer(kRoom);
    steps.call() = fingerprint_of(broadcast_of(buffer.as<float>()));
    steps.lend(at(Heap::own()->offset_of(buffer.data(), buffer.bytes()).value()));
    steps.publish();
    steps.publish();  // "has read" all there was
    steps.leave(Leave::closed);
    store.set("gave up", "1");
    store.wait({"done"}, 20s);
    return "";
  });
  EXPECT_EQ(reports[0].substr(0, 6), "lost 1") << reports[0];
}

TEST(ShmLendingFault, DifferencesAreToldBeforeDataIsTouched) {
  const Strings reports = run_processes(3, [](int rank, Store& store) -> std::string {
    const auto runner = connect(store, rank, 3);
    const Buffer buffer = allocate_buffer(kRoom);
    std::ranges::fill(buffer.as<float>(), 1.0F);
    Call call = all_reduce_of(buffer.as<float>());
    if (rank == 2) call.count -= 1;
    const std::string outcome = outcome_of([&] { runner->run(call, soon()); });
    for (const float value : buffer.as<float>())
      if (value != 1.0F) return "data was touched after: " + outcome;
    return outcome.substr(outcome.find(": they"));
  });
  EXPECT_EQ(reports, Strings(3, ": they differ in the count"));
}

TEST(ShmLendingFault, ARankThatIsKilledIsNamed) {
  Processes ranks(3, [&](int rank, Store& store) {
    const auto runner = connect(store, rank, 3);
    const Buffer buffer = allocate_buffer(8 * kRoom);
    std::string outcome;
    for (std::uint64_t n = 0; outcome.empty(); ++n) {
      if (n == 3) say("begun;");
      outcome = outcome_of([&] { runner->run(all_reduce_of(buffer.as<float>(), n), soon()); });
    }
    return outcome;
  });
  for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(ranks.has_said(rank, "begun;"));
  ranks.signal(1, SIGKILL);
  const Strings reports = ranks.reports();
  for (const std::size_t rank : {0U, 2U})
    EXPECT_TRUE(reports[rank].starts_with("begun;lost 1: its process ended")) << reports[rank];
}

}  // namespace
}  // namespace distrun::shm::test
