// Reductions in the order of ranks, over whatever moves the data.
#include "runtime/worker/rank_order.h"

#include "runtime/worker/collectives.h"
#include "runtime/worker/two_level.h"
#include "tests/runtime/worker/post_transport.h"
#include "tests/runtime/worker/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>

namespace distrun {
namespace {

using test::Post;
using test::PostTransport;

constexpr int kRanks = 6;

TimePoint soon() {
  return Clock::now() + std::chrono::seconds(20);
}

// How data moves: the size up to which it goes with the agreement, and the hosts.
struct Way {
  std::size_t small;
  std::vector<int> host_of;
};
const Way kSmall{16384, {0, 1, 2, 3, 4, 5}};
const Way kRing{64, {0, 1, 2, 3, 4, 5}};
const Way kHosts{64, {0, 0, 1, 2, 2, 2}};
const Way kEvenHosts{64, {0, 1, 0, 2, 1, 2}};

// Through one post office for each host.
class InHost final : public CallRunner {
 public:
  InHost(Post& post, int rank, int size)
      : transport_(post, rank, size),
        collectives_(
            transport_, [](const Call&, const std::vector<int>&) {}, 64) {}
  void run(const Call& call, TimePoint deadline) override { collectives_.run(call, deadline); }
  void close() override { transport_.close(); }

 private:
  PostTransport transport_;
  Collectives collectives_;
};

void on_ranks(const Way& way, bool in_order,
              const std::function<void(int rank, CallRunner& runner)>& body) {
  Post network;
  std::vector<Post> memories(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      const auto own = way.host_of.begin() + rank;
      const auto place = std::count(way.host_of.begin(), own, *own);
      const auto here = std::count(way.host_of.begin(), way.host_of.end(), *own);
      PostTransport transport(network, rank, kRanks);
      Collectives flat(
          transport, [](const Call&, const std::vector<int>&) {}, way.small);
      std::unique_ptr<CallRunner> host;
      if (here > 1)
        host = std::make_unique<InHost>(memories[static_cast<std::size_t>(*own)],
                                        static_cast<int>(place), static_cast<int>(here));
      std::unique_ptr<CallRunner> runner =
          std::make_unique<TwoLevel>(flat, transport, way.host_of, std::move(host));
      if (in_order) runner = std::make_unique<RankOrder>(std::move(runner), rank, kRanks);
      body(rank, *runner);
    });
  for (auto& rank : ranks) rank.join();
}

class EveryOperationInOrder : public ::testing::TestWithParam<OpType> {};
INSTANTIATE_TEST_SUITE_P(RankOrder, EveryOperationInOrder, ::testing::ValuesIn(test::kAllOps),
                         [](const auto& of) { return std::string(to_string(of.param)); });

TEST_P(EveryOperationInOrder, GivesTheSameAsWithout) {
  for (const Way& way : {kSmall, kRing, kEvenHosts}) {
    on_ranks(way, true, [&](int rank, CallRunner& runner) {
      std::uint64_t sequence = 0;
      for (const test::Trial& trial : test::trials_of(GetParam(), kRanks, {0, 1, 83})) {
        test::Side side;
        test::set_up(side, trial, rank);
        side.call.sequence = sequence++;
        runner.run(side.call, soon());
        test::check(side, trial, rank);
      }
    });
  }
}

// Sums that are sensitive to their order: magnitudes from 1e-3 to 1e3.
std::vector<float> sum(const Way& way, bool in_order) {
  constexpr std::size_t kCount = 1000;
  std::vector<float> first(kCount);
  on_ranks(way, in_order, [&](int rank, CallRunner& runner) {
    std::vector<float> data(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      data[i] =
          std::pow(10.0F,
                   static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 5) % 13) / 2 - 3) /
          3;
    Call call;
    call.op = OpType::all_reduce;
    call.count = kCount;
    call.out = reinterpret_cast<std::byte*>(data.data());
    call.in = call.out;
    runner.run(call, soon());
    if (rank == 0) first = data;
  });
  return first;
}

TEST(RankOrder, HasTheSameBitsWhicheverWayDataGoes) {
  const auto expected = sum(kSmall, true);
  EXPECT_EQ(sum(kRing, true), expected);
  EXPECT_EQ(sum(kHosts, true), expected);
  EXPECT_EQ(sum(kEvenHosts, true), expected);
  // Without it they differ, or this would prove nothing.
  EXPECT_NE(sum(kHosts, false), sum(kRing, false));
}

TEST(RankOrder, RanksThatReduceByAnotherOperationAreToldSo) {
  on_ranks(kRing, true, [](int rank, CallRunner& runner) {
    std::vector<float> data(1000);
    Call call;
    call.op = OpType::all_reduce;
    call.reduce = rank == 3 ? ReduceOp::max : ReduceOp::sum;
    call.count = data.size();
    call.out = reinterpret_cast<std::byte*>(data.data());
    call.in = call.out;
    try {
      runner.run(call, soon());
      ADD_FAILURE() << "agreed";
    } catch (const CallsDiffer& differ) {
      EXPECT_THAT(differ.what(), ::testing::HasSubstr("they differ in the reduce operation"));
    }
  });
}

}  // namespace
}  // namespace distrun
