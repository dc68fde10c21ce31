// The schedules over a transport of threads: every operation, type and size of group, with counts
// on both sides of what travels inline and that no number of ranks divides.
#include "runtime/worker/collectives.h"

#include "tests/runtime/worker/post_transport.h"
#include "tests/runtime/worker/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <thread>

namespace distrun {
namespace {

using test::Post;
using test::PostTransport;

TimePoint soon() {
  return Clock::now() + std::chrono::seconds(20);
}

// Runs `body` as each rank, each in a thread.
template <class Body>
void on_all_ranks(int size, Body body, std::size_t small = 0) {
  Post post;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&post, rank, size, &body, small] {
      PostTransport transport(post, rank, size);
      Collectives collectives(
          transport, [](const Call&, const std::vector<int>&) {}, small);
      body(rank, collectives);
    });
  for (auto& rank : ranks) rank.join();
}

template <class T>
Call in_place(OpType op, std::vector<T>& data, ReduceOp reduce = ReduceOp::sum, int root = 0) {
  Call call;
  call.op = op;
  call.reduce = reduce;
  call.dtype = kDTypeOf<T>;
  call.count = data.size();
  call.root = root;
  call.out = reinterpret_cast<std::byte*>(data.data());
  call.in = call.out;
  return call;
}

class EveryOperation : public ::testing::TestWithParam<OpType> {};
INSTANTIATE_TEST_SUITE_P(Collectives, EveryOperation, ::testing::ValuesIn(test::kAllOps),
                         [](const auto& of) { return std::string(to_string(of.param)); });

TEST_P(EveryOperation, GivesItsResultForEveryTypeAndReductionAndGroup) {
  for (const int size : {2, 3, 5})
    for (const std::size_t small : {0, 64}) {  // with the agreement, and after it
      const auto trials = test::trials_of(GetParam(), size, {0, 1, 83});
      on_all_ranks(
          size,
          [&](int rank, Collectives& collectives) {
            std::uint64_t sequence = 0;
            for (const test::Trial& trial : trials) {
              test::Side side;
              test::set_up(side, trial, rank);
              side.call.sequence = sequence++;
              collectives.run(side.call, soon());
              test::check(side, trial, rank);
            }
          },
          small);
    }
}

TEST_P(EveryOperation, OfOneRankIsACopy) {
  for (const test::Trial& trial : test::trials_of(GetParam(), 1, {0, 1, 1000})) {
    test::Side side;
    test::set_up(side, trial, 0);
    run_alone(side.call);
    test::check(side, trial, 0);
  }
}

// The input may be this rank's part of the output, and the other way round.
TEST(Collectives, AllGatherAndReduceScatterMayWorkInPlace) {
  for (const std::size_t count : {3U, 20'000U})
    on_all_ranks(3, [&](int rank, Collectives& collectives) {
      std::vector<float> all(count * 3, -1);
      Call call;
      call.count = count;
      for (std::size_t i = 0; i < 3; ++i)
        call.outs.push_back({reinterpret_cast<std::byte*>(all.data() + i * count), count});
      const auto own = static_cast<std::size_t>(rank);
      std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(own * count), count,
                  static_cast<float>(rank));
      call.op = OpType::all_gather;
      call.in = call.outs[own].data;
      collectives.run(call, soon());
      for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(all[(i + 1) * count - 1], i);

      for (const Part& part : call.outs) call.ins.push_back({part.data, part.count});
      call.op = OpType::reduce_scatter;
      call.out = call.outs[own].data;
      call.outs.clear();
      collectives.run(call, soon());
      EXPECT_EQ(all[own * count], static_cast<float>(3 * rank));
      EXPECT_EQ(all[(own + 1) % 3 * count], static_cast<float>((rank + 1) % 3)) << "overwritten";
    });
}

// Memory that is input and output at once: nothing is sent that came in before.
TEST(Collectives, AllToAllGatherAndScatterMayWorkInPlace) {
  for (const std::size_t count : {3U, 20'000U})
    on_all_ranks(3, [&](int rank, Collectives& collectives) {
      std::vector<float> all(count * 3);
      const auto fill = [&] {
        for (std::size_t i = 0; i < 3; ++i)
          std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(i * count), count,
                      static_cast<float>(10 * rank) + static_cast<float>(i));
      };
      const auto part = [&](std::size_t i) {
        return Part{reinterpret_cast<std::byte*>(all.data() + i * count), count};
      };
      const auto last_of = [&](std::size_t i) { return all[(i + 1) * count - 1]; };
      Call call;
      call.op = OpType::all_to_all;
      for (std::size_t i = 0; i < 3; ++i) {
        call.outs.push_back(part(i));
        call.ins.push_back({part(i).data, count});
      }
      fill();
      collectives.run(call, soon());
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(last_of(i), static_cast<float>(i) * 10 + static_cast<float>(rank));

      // The root's own is the first part, which belongs to rank 0.
      const Call parts = call;
      const bool root = rank == 1;
      call = Call();
      call.op = OpType::scatter;
      call.root = 1;
      call.count = count;
      call.out = part(0).data;
      if (root) call.ins = parts.ins;
      fill();
      collectives.run(call, soon());
      EXPECT_EQ(last_of(0), static_cast<float>(10 + rank));

      call = Call();
      call.op = OpType::gather;
      call.root = 1;
      call.count = count;
      call.in = part(0).data;
      if (root) call.outs = parts.outs;
      fill();
      collectives.run(call, soon());
      for (std::size_t i = 0; root && i < 3; ++i) EXPECT_EQ(last_of(i), static_cast<float>(10 * i));
    });
}

TEST(Collectives, IntegersWrapAround) {
  on_all_ranks(2, [](int, Collectives& collectives) {
    std::vector<std::int32_t> data{std::numeric_limits<std::int32_t>::max()};
    collectives.run(in_place(OpType::all_reduce, data), soon());
    EXPECT_EQ(data[0], -2);
  });
}

// Rounding differs from order to order, so equal bits mean one order.
TEST(Collectives, EveryRankHasTheSameBits) {
  for (const std::size_t count : {100u, 30'000u}) {
    std::vector<std::vector<float>> results(4);
    on_all_ranks(4, [&](int rank, Collectives& collectives) {
      std::vector<float> data(count);
      for (std::size_t i = 0; i < count; ++i)
        data[i] = 1.0f / static_cast<float>(3 + i * 7 + static_cast<std::size_t>(rank) * 13);
      collectives.run(in_place(OpType::all_reduce, data), soon());
      results[static_cast<std::size_t>(rank)] = data;
    });
    for (const auto& result : results)
      EXPECT_EQ(0, std::memcmp(result.data(), results[0].data(), count * sizeof(float)));
  }
}

// Rank 2 of 3 calls `other` while the rest call `usual`; every rank must hear of ranks 0 and 2.
std::vector<std::string> refusals(Call usual, Call other) {
  std::vector<std::string> texts(3);
  on_all_ranks(3, [&](int rank, Collectives& collectives) {
    try {
      collectives.run(rank == 2 ? other : usual, soon());
    } catch (const CallsDiffer& differ) {
      texts[static_cast<std::size_t>(rank)] = differ.what();
      EXPECT_NE(differ.peer, rank);
    }
  });
  return texts;
}

TEST(Collectives, WhatDiffersBetweenTwoRanksIsToldToAllOfThem) {
  std::vector<float> floats(100'000);
  std::vector<std::int64_t> integers(50'000);
  std::vector<float> one_more(100'001);
  Call later = in_place(OpType::all_reduce, floats);
  later.sequence = 1;
  const struct {
    Call other;
    std::string text;
  } cases[] = {
      {in_place(OpType::broadcast, floats), "the operation"},
      {later, "its number"},
      {in_place(OpType::all_reduce, integers), "the element type, the count"},
      {in_place(OpType::all_reduce, one_more), "the count"},
      {in_place(OpType::all_reduce, floats, ReduceOp::max), "the reduce operation"},
      {in_place(OpType::all_reduce, floats, ReduceOp::sum, 1), "the root"},
  };
  for (const auto& [other, text] : cases) {
    const auto texts = refusals(in_place(OpType::all_reduce, floats), other);
    EXPECT_THAT(texts, ::testing::Each(::testing::EndsWith("they differ in " + text)));
    EXPECT_THAT(texts, ::testing::Each(::testing::StartsWith(
                           "rank 0 called all_reduce 0 (float32 x 100000, sum), rank 2 called ")));
  }
}

TEST(Collectives, PartsThatDoNotFitAreToldWithBothSizes) {
  std::vector<float> memory(100);
  auto* const at = reinterpret_cast<std::byte*>(memory.data());
  Call usual;
  usual.op = OpType::all_gather;
  usual.count = 4;
  usual.in = at;
  for (int i = 0; i < 3; ++i) usual.outs.push_back({at, 4});
  Call other = usual;
  other.count = 5;
  other.outs[2].count = 5;
  EXPECT_THAT(refusals(usual, other),
              ::testing::Each("rank 2 called all_gather 0 (float32 x 5) with 5 for rank 0, which "
                              "called all_gather 0 (float32 x 4) with room for 4: they differ in "
                              "the count"));

  Call pieces;
  pieces.op = OpType::all_to_all;
  for (int i = 0; i < 3; ++i) pieces.ins.push_back({at, 4});
  pieces.outs = usual.outs;
  Call more = pieces;
  more.outs[1].count = 9;
  EXPECT_THAT(refusals(pieces, more),
              ::testing::Each(::testing::HasSubstr("with room for 9: they differ in the count")));
}

TEST(Collectives, RankZeroNamesAllWhoDidNotComeAndTellsMeanwhile) {
  Post post;
  PostTransport transport(post, 0, 4);
  std::vector<std::vector<int>> told;
  Collectives collectives(
      transport, [&](const Call&, const std::vector<int>& ranks) { told.push_back(ranks); });
  // Rank 2 alone has called.
  std::thread two([&post] {
    PostTransport its(post, 2, 4);
    Collectives of_two(its, [](const Call&, const std::vector<int>&) {});
    EXPECT_THROW(of_two.run(Call(), Clock::now() + std::chrono::milliseconds(150)), PeersLate);
  });
  two.join();
  try {
    collectives.run(Call(), Clock::now() + std::chrono::milliseconds(150));
    ADD_FAILURE() << "did not notice";
  } catch (const PeersLate& late) {
    EXPECT_THAT(late.peers, ::testing::ElementsAre(1, 3));
  }
  EXPECT_THAT(told, ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(told, ::testing::Each(::testing::ElementsAre(1, 3)));
}

}  // namespace
}  // namespace distrun
