// The engine of a group over transports of threads, where carriers can be made to fail at will.
#include "runtime/worker/group_engine.h"

#include "tests/runtime/worker/post_transport.h"
#include "tests/runtime/worker/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <new>
#include <thread>

namespace distrun {
namespace {

using namespace std::chrono_literals;
using test::Post;
using test::PostTransport;
using ::testing::HasSubstr;

// Collectives among all, of which one runs out of memory in its second call.
class Carrier final : public CallRunner {
 public:
  Carrier(Post& post, int rank, bool breaks)
      : breaks_(breaks),
        transport_(post, rank, 2),
        collectives_(transport_, [](const Call&, const std::vector<int>&) {}) {}
  void run(const Call& call, TimePoint deadline) override {
    if (breaks_ && ++calls_ == 2) throw std::bad_alloc();
    collectives_.run(call, deadline);
  }
  void close() override { transport_.close(); }

 private:
  const bool breaks_;
  int calls_ = 0;
  PostTransport transport_;
  Collectives collectives_;
};

std::string error_of(GroupEngine& engine) {
  try {
    engine.run(Call(), 20s);
  } catch (const DistBackendError& error) {
    return error.what();
  }
  return "";
}

TEST(GroupEngine, ARankThatRunsOutOfMemoryInACallEndsTheGroupAndTellsTheOthers) {
  Post memory, network;
  HashStore store;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      GroupEngine::Links links;
      links.transport = std::make_unique<PostTransport>(network, rank, 2);
      links.store = store.clone();
      links.host_of = {0, 0};
      links.host = std::make_unique<Carrier>(memory, rank, rank == 1);
      GroupEngine engine({.rank = rank, .size = 2, .name = "g", .description = "", .timeout = 20s},
                         std::move(links), {0, 1});
      EXPECT_EQ(error_of(engine), "");
      EXPECT_THAT(error_of(engine), HasSubstr("rank 1 failed in it: std::bad_alloc"));
      EXPECT_THAT(error_of(engine), HasSubstr("is of no more use since an earlier failure: "));
    });
  for (auto& rank : ranks) rank.join();
}

// As of a process that is stopped: after so many messages it sends no more, and does nothing else.
class StoppingTransport final : public Transport {
 public:
  StoppingTransport(Post& post, int rank, int size, int messages, std::shared_future<void> over)
      : whole_(post, rank, size), left_(messages), over_(std::move(over)) {}
  int rank() const override { return whole_.rank(); }
  int size() const override { return whole_.size(); }
  std::unique_ptr<Transfer> send(int peer, std::span<const std::byte> message,
                                 Channel channel) override {
    if (left_-- == 0) over_.wait();
    return whole_.send(peer, message, channel);
  }
  std::unique_ptr<Transfer> receive(int peer, std::span<std::byte> room, Channel channel) override {
    return whole_.receive(peer, room, channel);
  }
  std::unique_ptr<Transfer> receive_any(std::span<std::byte> room, Channel channel) override {
    return whole_.receive_any(room, channel);
  }
  void close() override { whole_.close(); }

 private:
  PostTransport whole_;
  int left_;
  std::shared_future<void> over_;
};

class RankThatStops : public ::testing::TestWithParam<OpType> {};
INSTANTIATE_TEST_SUITE_P(InTheMiddle, RankThatStops,
                         ::testing::Values(OpType::all_reduce, OpType::reduce, OpType::all_gather,
                                           OpType::reduce_scatter, OpType::all_to_all),
                         [](const auto& of) { return std::string(to_string(of.param)); });

// In a ring most ranks wait for one that waits itself.
TEST_P(RankThatStops, IsTheOneThatAllOthersName) {
  constexpr int kSize = 4, kStopped = 2;
  Post network;
  HashStore store;
  std::promise<void> over;
  const std::shared_future<void> is_over = over.get_future().share();
  const test::Trial trial{GetParam(), DType::float32, ReduceOp::sum, 0, 10'000, false, kSize};
  const auto body = [&](int rank) {
    test::Side side;
    test::set_up(side, trial, rank);
    GroupEngine::Links links;
    // It still takes part in the agreement, and in the first step after it.
    links.transport = std::make_unique<StoppingTransport>(
        network, rank, kSize, rank == kStopped ? 2 : 1'000'000, is_over);
    links.store = store.clone();
    links.host_of = {0, 1, 2, 3};
    GroupEngine engine(
        {.rank = rank, .size = kSize, .name = "g", .description = "", .timeout = 20s},
        std::move(links), {0, 1, 2, 3});
    try {
      engine.run(Call(side.call), 500ms);
      if (rank != kStopped) ADD_FAILURE() << "rank " << rank << " did not notice";
    } catch (const DistError& error) {
      if (rank == kStopped) return;
      EXPECT_EQ(error.kind(), ErrorKind::timeout) << error.what();
      EXPECT_EQ(error.peer_rank(), kStopped) << error.what();
    }
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSize; ++rank) ranks.emplace_back(body, rank);
  for (int rank = 0; rank < kSize; ++rank)
    if (rank != kStopped) ranks[static_cast<std::size_t>(rank)].join();
  over.set_value();
  ranks[kStopped].join();
}

}  // namespace
}  // namespace distrun
