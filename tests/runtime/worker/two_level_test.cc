// Two levels over transports of threads: "hosts" are parts of the ranks, whose shared memory is
// another post office.
#include "runtime/worker/two_level.h"

#include "tests/runtime/worker/post_transport.h"
#include "tests/runtime/worker/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

namespace distrun {
namespace {

using test::Post;
using test::PostTransport;

TimePoint soon() {
  return Clock::now() + std::chrono::seconds(20);
}

// Collectives with a transport of their own.
class InHost final : public CallRunner {
 public:
  InHost(Post& post, int rank, int size)
      : transport_(post, rank, size),
        collectives_(transport_, [](const Call&, const std::vector<int>&) {}) {}
  void run(const Call& call, TimePoint deadline) override { collectives_.run(call, deadline); }
  void close() override { transport_.close(); }

 private:
  PostTransport transport_;
  Collectives collectives_;
};

template <class Body>
void on_hosts(const std::vector<int>& host_of, Body body) {
  Post network;
  std::map<int, Post> memories;
  for (const int host : host_of) memories[host];
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank)
    ranks.emplace_back([&, rank] {
      const int host = host_of[rank];
      const auto upto = host_of.begin() + static_cast<std::ptrdiff_t>(rank);
      const auto place = std::count(host_of.begin(), upto, host);
      const auto here = std::count(host_of.begin(), host_of.end(), host);
      std::unique_ptr<CallRunner> in_host;
      if (here > 1)
        in_host = std::make_unique<InHost>(memories.at(host), static_cast<int>(place),
                                           static_cast<int>(here));
      PostTransport transport(network, static_cast<int>(rank), static_cast<int>(host_of.size()));
      Collectives flat(
          transport, [](const Call&, const std::vector<int>&) {}, 64);
      TwoLevel two(flat, transport, host_of, std::move(in_host));
      body(static_cast<int>(rank), two);
    });
  for (auto& rank : ranks) rank.join();
}

class EveryOperationOnHosts : public ::testing::TestWithParam<OpType> {};
INSTANTIATE_TEST_SUITE_P(TwoLevel, EveryOperationOnHosts, ::testing::ValuesIn(test::kAllOps),
                         [](const auto& of) { return std::string(to_string(of.param)); });

TEST_P(EveryOperationOnHosts, GivesWhatItGivesWithoutHosts) {
  for (const std::vector<int>& hosts : {std::vector{0, 0, 1, 1}, std::vector{0, 1, 1, 0},
                                        std::vector{0, 1, 0}, std::vector{0, 1, 2}}) {
    const auto size = static_cast<int>(hosts.size());
    auto trials = test::trials_of(GetParam(), size, {1, 83});
    for (int root = 0; root < size; ++root)  // in every host
      if (GetParam() == OpType::broadcast) {
        trials.push_back({OpType::broadcast, DType::int32, ReduceOp::sum, root, 83, false, size});
      }
    on_hosts(hosts, [&](int rank, TwoLevel& two) {
      std::uint64_t sequence = 0;
      for (const test::Trial& trial : trials) {
        test::Side side;
        test::set_up(side, trial, rank);
        side.call.sequence = sequence++;
        two.run(side.call, soon());
        test::check(side, trial, rank);
      }
    });
  }
}

TEST(TwoLevel, CallsThatDifferAreToldBeforeAnyDataMoves) {
  on_hosts({0, 0, 1, 1}, [](int rank, TwoLevel& two) {
    std::vector<float> data(rank == 3 ? 999 : 1000);
    Call call;
    call.op = OpType::all_reduce;
    call.count = data.size();
    call.out = reinterpret_cast<std::byte*>(data.data());
    call.in = call.out;
    try {
      two.run(call, soon());
      ADD_FAILURE() << "agreed";
    } catch (const CallsDiffer& differ) {
      EXPECT_THAT(differ.what(), ::testing::HasSubstr("rank 3 called all_reduce"));
    }
  });
}

// After the agreement the first rank of host 1 comes no more: whoever waits for it knows its rank
// in the whole group.
TEST(TwoLevel, WhoIsLateIsNamedByItsRankInTheWholeGroup) {
  Post network;
  const std::vector<int> host_of{0, 1};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      PostTransport transport(network, rank, 2);
      Collectives flat(
          transport, [](const Call&, const std::vector<int>&) {}, 64);
      std::vector<float> data(1000);
      Call call;
      call.op = OpType::all_reduce;
      call.count = data.size();
      call.out = reinterpret_cast<std::byte*>(data.data());
      call.in = call.out;
      if (rank == 1) {
        EXPECT_FALSE(flat.agree(call, soon()));
        return;
      }
      TwoLevel two(flat, transport, host_of, nullptr);
      try {
        two.run(call, Clock::now() + std::chrono::milliseconds(300));
        ADD_FAILURE() << "done";
      } catch (const PeersLate& late) {
        EXPECT_THAT(late.peers, ::testing::ElementsAre(1));
      }
    });
  for (auto& rank : ranks) rank.join();
}

}  // namespace
}  // namespace distrun
