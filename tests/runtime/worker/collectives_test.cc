// The schedules over a transport of threads: every operation, type and size of group, with counts
// on both sides of what travels inline and that no number of ranks divides.
#include "runtime/worker/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

namespace distrun {
namespace {

// Mailboxes of one process: a message is copied when it is sent.
struct Post {
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> boxes;  // from, to
};

class SentLetter final : public Transfer {
 public:
  bool wait(TimePoint) override { return true; }
};

class AwaitedLetter final : public Transfer {
 public:
  AwaitedLetter(Post& post, std::pair<int, int> box, std::span<std::byte> room)
      : post_(post), box_(box), room_(room) {}
  bool wait(TimePoint deadline) override {
    std::unique_lock lock(post_.mutex);
    auto& letters = post_.boxes[box_];
    if (!post_.arrived.wait_until(lock, deadline, [&] { return !letters.empty(); })) return false;
    EXPECT_LE(letters.front().size(), room_.size());
    std::memcpy(room_.data(), letters.front().data(), letters.front().size());
    letters.pop_front();
    return true;
  }

 private:
  Post& post_;
  std::pair<int, int> box_;
  std::span<std::byte> room_;
};

class PostTransport final : public Transport {
 public:
  PostTransport(Post& post, int rank, int size) : post_(post), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Transfer> send(int peer, std::span<const std::byte> message) override {
    const std::lock_guard lock(post_.mutex);
    post_.boxes[{rank_, peer}].emplace_back(message.begin(), message.end());
    post_.arrived.notify_all();
    return std::make_unique<SentLetter>();
  }
  std::unique_ptr<Transfer> receive(int peer, std::span<std::byte> room) override {
    return std::make_unique<AwaitedLetter>(post_, std::pair(peer, rank_), room);
  }
  void close() override {}

 private:
  Post& post_;
  int rank_;
  int size_;
};

TimePoint soon() {
  return Clock::now() + std::chrono::seconds(20);
}

// Runs `body` as each rank, each in a thread.
template <class Body>
void on_all_ranks(int size, Body body) {
  Post post;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&post, rank, size, &body] {
      PostTransport transport(post, rank, size);
      Collectives collectives(transport, [](const Call&, const std::vector<int>&) {});
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
  call.in = data.data();
  call.out = data.data();
  return call;
}

// Element i of rank r, small enough that every product and sum is exact.
template <class T>
std::vector<T> data_of(int rank, std::size_t count) {
  std::vector<T> data(count);
  for (std::size_t i = 0; i < count; ++i)
    data[i] = static_cast<T>((i % 7) + static_cast<std::size_t>(rank) + 1);
  return data;
}

template <class T>
std::vector<T> reduced(ReduceOp op, int size, std::size_t count) {
  std::vector<T> result = data_of<T>(0, count);
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<T> more = data_of<T>(rank, count);
    for (std::size_t i = 0; i < count; ++i) switch (op) {
        case ReduceOp::sum:
        case ReduceOp::avg:
          result[i] = static_cast<T>(result[i] + more[i]);
          break;
        case ReduceOp::product:
          result[i] = static_cast<T>(result[i] * more[i]);
          break;
        case ReduceOp::min:
          result[i] = std::min(result[i], more[i]);
          break;
        case ReduceOp::max:
          result[i] = std::max(result[i], more[i]);
          break;
      }
  }
  if (op == ReduceOp::avg)
    for (T& value : result) value /= static_cast<T>(size);
  return result;
}

constexpr std::size_t kCounts[] = {0, 1, 5, 1000, 20'011};

template <class T>
class CollectivesOf : public ::testing::Test {};
using ElementTypes = ::testing::Types<float, double, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(CollectivesOf, ElementTypes);

TYPED_TEST(CollectivesOf, AllReduceGivesEveryRankTheReductionOfAll) {
  for (int size = 1; size <= 5; ++size)
    for (const std::size_t count : kCounts)
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max}) {
        const auto expected = reduced<TypeParam>(op, size, count);
        on_all_ranks(size, [&](int rank, Collectives& collectives) {
          auto data = data_of<TypeParam>(rank, count);
          collectives.run(in_place(OpType::all_reduce, data, op), soon());
          EXPECT_EQ(data, expected) << size << " ranks, " << count << " " << to_string(op);
        });
      }
}

TYPED_TEST(CollectivesOf, ReduceGivesTheRootTheReductionAndLeavesTheOthersAlone) {
  for (int size = 2; size <= 4; ++size)
    for (const std::size_t count : kCounts)
      for (int root = 0; root < size; ++root) {
        const auto expected = reduced<TypeParam>(ReduceOp::sum, size, count);
        on_all_ranks(size, [&](int rank, Collectives& collectives) {
          auto data = data_of<TypeParam>(rank, count);
          collectives.run(in_place(OpType::reduce, data, ReduceOp::sum, root), soon());
          EXPECT_EQ(data, rank == root ? expected : data_of<TypeParam>(rank, count));
        });
      }
}

TYPED_TEST(CollectivesOf, BroadcastGivesEveryRankTheRootsData) {
  for (int size = 1; size <= 6; ++size)
    for (const std::size_t count : kCounts)
      for (int root = 0; root < size; ++root)
        on_all_ranks(size, [&](int rank, Collectives& collectives) {
          auto data = data_of<TypeParam>(rank, count);
          collectives.run(in_place(OpType::broadcast, data, ReduceOp::sum, root), soon());
          EXPECT_EQ(data, data_of<TypeParam>(root, count)) << "root " << root << " of " << size;
        });
}

TYPED_TEST(CollectivesOf, AllGatherGivesEveryRankTheDataOfAllInOrder) {
  for (int size = 1; size <= 5; ++size)
    for (const std::size_t count : kCounts) {
      std::vector<TypeParam> expected;
      for (int rank = 0; rank < size; ++rank) {
        const auto part = data_of<TypeParam>(rank, count);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      on_all_ranks(size, [&](int rank, Collectives& collectives) {
        const auto in = data_of<TypeParam>(rank, count);
        std::vector<TypeParam> out(count * static_cast<std::size_t>(size));
        Call call;
        call.op = OpType::all_gather;
        call.dtype = kDTypeOf<TypeParam>;
        call.count = count;
        call.in = in.data();
        call.out = out.data();
        collectives.run(call, soon());
        EXPECT_EQ(out, expected);
      });
    }
}

TEST(Collectives, AverageIsTheSumDividedByTheRanks) {
  for (const std::size_t count : kCounts)
    on_all_ranks(3, [&](int rank, Collectives& collectives) {
      auto data = data_of<double>(rank, count);
      collectives.run(in_place(OpType::all_reduce, data, ReduceOp::avg), soon());
      EXPECT_EQ(data, reduced<double>(ReduceOp::avg, 3, count));
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
      EXPECT_EQ(differ.peer, rank == 2 ? 0 : 2);
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

TEST(Collectives, RankZeroNamesAllWhoDidNotComeAndTellsOnce) {
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
  EXPECT_THAT(told, ::testing::ElementsAre(::testing::ElementsAre(1, 3)));
}

}  // namespace
}  // namespace distrun
