#include "runtime/worker/point_to_point.h"

#include "runtime/worker/lanes.h"
#include "tests/runtime/worker/post_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

namespace distrun {
namespace {

using test::Post;
using test::PostTransport;

TimePoint soon() {
  return Clock::now() + std::chrono::seconds(20);
}

P2PCall send_of(const std::vector<float>& data, int to, int tag = 0) {
  P2PCall call;
  call.op = OpType::send;
  call.peer = to;
  call.tag = tag;
  call.count = data.size();
  call.in = reinterpret_cast<const std::byte*>(data.data());
  return call;
}

P2PCall receive_of(std::vector<float>& data, int from, int tag = 0) {
  P2PCall call;
  call.op = OpType::recv;
  call.peer = from;
  call.tag = tag;
  call.count = data.size();
  call.out = reinterpret_cast<std::byte*>(data.data());
  return call;
}

struct Three {
  Post post{true};  // ranks of one thread: each sends before the next one receives
  PostTransport zero{post, 0, 3}, one{post, 1, 3}, two{post, 2, 3};
  PointToPoint at_zero{zero}, at_one{one}, at_two{two};
};

void run(PointToPoint& at, P2PCall call) {
  at.run(call, soon());
}

TEST(PointToPoint, MessagesOfOneTagArriveInTheOrderInWhichTheyWereSentSmallAndLarge) {
  Three ranks;
  const std::vector<float> small(3, 1), large(10'000, 2), empty;
  run(ranks.at_zero, send_of(large, 1));
  run(ranks.at_zero, send_of(small, 1));
  run(ranks.at_zero, send_of(empty, 1));
  std::vector<float> first(10'000), second(3), third;
  run(ranks.at_one, receive_of(first, 0));
  run(ranks.at_one, receive_of(second, 0));
  run(ranks.at_one, receive_of(third, 0));
  EXPECT_EQ(first, large);
  EXPECT_EQ(second, small);
}

TEST(PointToPoint, TagsAreToldApart) {
  Three ranks;
  run(ranks.at_zero, send_of({1}, 1, 7));
  run(ranks.at_zero, send_of({2}, 1, 8));
  std::vector<float> data(1);
  run(ranks.at_one, receive_of(data, 0, 8));
  EXPECT_EQ(data[0], 2);
  run(ranks.at_one, receive_of(data, 0, 7));
  EXPECT_EQ(data[0], 1);
}

TEST(PointToPoint, FromAnybodySaysFromWhomAndTakesTheDataOfThatOne) {
  Three ranks;
  const std::vector<float> data(10'000, 5);
  run(ranks.at_two, send_of(data, 1));
  std::vector<float> taken(10'000);
  P2PCall call = receive_of(taken, kAnySource);
  ranks.at_one.run(call, soon());
  EXPECT_EQ(call.peer, 2);
  EXPECT_EQ(taken, data);
}

TEST(PointToPoint, AReceiverWithOtherRoomSaysWhatBothCalled) {
  Three ranks;
  run(ranks.at_zero, send_of(std::vector<float>(10'000), 1, 4));
  std::vector<float> data(9'999);
  P2PCall call = receive_of(data, kAnySource, 4);
  try {
    ranks.at_one.run(call, soon());
    FAIL() << "taken";
  } catch (const CallsDiffer& differ) {
    EXPECT_STREQ(differ.what(),
                 "rank 0 called send to rank 1, tag 4 (float32 x 10000), rank 1 called recv from "
                 "any rank, tag 4 (float32 x 9999): they differ in the count");
    EXPECT_EQ(differ.peer, 0);
  }
}

TEST(PointToPoint, WhoDoesNotSendIsLate) {
  Three ranks;
  std::vector<float> data(1);
  P2PCall call = receive_of(data, 2);
  try {
    ranks.at_one.run(call, Clock::now());
    FAIL() << "came";
  } catch (const PeersLate& late) {
    EXPECT_THAT(late.peers, ::testing::ElementsAre(2));
  }
}

TEST(Lanes, JobsOfOneLaneRunInOrderAndLanesBesideEachOther) {
  Lanes lanes;
  std::atomic<int> met = 0;
  std::vector<int> order;
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(lanes.add({0, {0, 0}}, [&order, i] { order.push_back(i); }));
  // Each waits for the others: they have a thread each.
  for (int lane = 1; lane <= 4; ++lane)
    ASSERT_TRUE(lanes.add({0, {lane, 0}}, [&met] {
      ++met;
      while (met < 4) std::this_thread::yield();
    }));
  EXPECT_TRUE(lanes.drain(soon()));
  std::vector<int> expected(50);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(Lanes, AJobThatIsWaitedForComesAfterThoseBeforeIt) {
  Lanes lanes;
  std::vector<int> order;
  std::atomic<bool> go = false;
  ASSERT_TRUE(lanes.add({0, {0, 0}}, [&] {
    while (!go) std::this_thread::yield();
    order.push_back(1);
  }));
  std::thread other([&] { go = true; });
  EXPECT_TRUE(lanes.run({0, {0, 0}}, [&] { order.push_back(2); }));
  EXPECT_THAT(order, ::testing::ElementsAre(1, 2));
  other.join();
  const auto here = std::this_thread::get_id();
  EXPECT_TRUE(lanes.run({0, {1, 0}}, [&] { EXPECT_EQ(std::this_thread::get_id(), here); }));
}

TEST(Lanes, TooManyInOneLaneAreRefused) {
  Lanes lanes;
  std::atomic<bool> go = false;
  const auto wait = [&go] {
    while (!go) std::this_thread::yield();
  };
  std::size_t taken = 0;
  while (taken <= Lanes::kMaxWaiting + 1 && lanes.add({0, {0, 0}}, wait)) ++taken;
  EXPECT_LE(taken, Lanes::kMaxWaiting + 1);
  EXPECT_GE(taken, Lanes::kMaxWaiting);
  go = true;
}

}  // namespace
}  // namespace distrun
