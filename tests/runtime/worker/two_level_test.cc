// Two levels over transports of threads: "hosts" are parts of the ranks, whose shared memory is
// another post office.
#include "runtime/worker/two_level.h"

#include "tests/runtime/worker/post_transport.h"
#include "tests/runtime/worker/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
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
        collectives_(
            transport_, [](const Call&, const std::vector<int>&) {}, 64) {}
  void run(const Call& call, TimePoint deadline) override { collectives_.run(call, deadline); }
  void close() override { transport_.close(); }

 private:
  PostTransport transport_;
  Collectives collectives_;
};

// Counts what is sent, without the agreement, to ranks of the same host and of others.
struct Traffic {
  std::atomic<std::size_t> inside = 0;
  std::atomic<std::size_t> across = 0;
};

class Counted final : public Transport {
 public:
  Counted(Post& post, int rank, const std::vector<int>& host_of, Traffic& traffic)
      : whole_(post, rank, static_cast<int>(host_of.size())),
        host_of_(host_of),
        traffic_(traffic) {}
  int rank() const override { return whole_.rank(); }
  int size() const override { return whole_.size(); }
  std::unique_ptr<Transfer> send(int peer, std::span<const std::byte> message,
                                 Channel channel) override {
    constexpr std::size_t kAgreement = 512;  // at most, in these tests
    const bool inside = host(peer) == host(rank());
    if (message.size() > kAgreement) (inside ? traffic_.inside : traffic_.across) += message.size();
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
  int host(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }

  PostTransport whole_;
  const std::vector<int>& host_of_;
  Traffic& traffic_;
};

using Hosts = std::vector<int>;

// The network, and the memory of each host.
struct Offices {
  explicit Offices(const Hosts& of) : host_of(of) {
    for (const int host : host_of) memories[host];
  }
  // Null: that rank is alone on its host.
  std::unique_ptr<CallRunner> in_host(int rank) {
    const int host = host_of[static_cast<std::size_t>(rank)];
    const auto place = std::count(host_of.begin(), host_of.begin() + rank, host);
    const auto here = std::count(host_of.begin(), host_of.end(), host);
    if (here == 1) return nullptr;
    return std::make_unique<InHost>(memories.at(host), static_cast<int>(place),
                                    static_cast<int>(here));
  }

  const Hosts& host_of;
  Post network;
  std::map<int, Post> memories;
};

// Body: (int rank, CallRunner& two levels, CallRunner& the flat way)
template <class Body>
void on_hosts(const Hosts& host_of, Body body, Traffic& traffic) {
  Offices offices(host_of);
  Post flat_network;
  const auto size = static_cast<int>(host_of.size());
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      const auto nothing = [](const Call&, const std::vector<int>&) {};
      Counted transport(offices.network, rank, host_of, traffic);
      Collectives flat(transport, nothing, 64);
      TwoLevel two(flat, transport, host_of, offices.in_host(rank));
      PostTransport other(flat_network, rank, size);
      Collectives without(other, nothing, 64);
      body(rank, two, without);
    });
  for (auto& rank : ranks) rank.join();
}

template <class Body>
void on_hosts(const Hosts& host_of, Body body) {
  Traffic traffic;
  on_hosts(
      host_of, [&](int rank, CallRunner& two, CallRunner&) { body(rank, two); }, traffic);
}

// Neighbours and not, of as many ranks each and not, some alone; all together, and all alone.  The
// first ones with every type and reduction.
const std::vector<Hosts> kLayouts{{0, 0, 1, 1},       {0, 1, 0},    {0, 1, 2, 2}, {0, 1, 0, 1},
                                  {0, 1, 1, 0},       {0, 0, 0, 1}, {0, 1, 1},    {0, 1, 2},
                                  {0, 1, 1, 2, 0, 1}, {0, 0, 0}};
constexpr std::size_t kWithAllTypes = 3;

class EveryOperationOnHosts : public ::testing::TestWithParam<OpType> {};
INSTANTIATE_TEST_SUITE_P(TwoLevel, EveryOperationOnHosts, ::testing::ValuesIn(test::kAllOps),
                         [](const auto& of) { return std::string(to_string(of.param)); });

// 64 bytes go with the agreement.
TEST_P(EveryOperationOnHosts, GivesWhatItGivesWithoutHosts) {
  for (std::size_t layout = 0; layout < kLayouts.size(); ++layout) {
    const Hosts& hosts = kLayouts[layout];
    const auto size = static_cast<int>(hosts.size());
    std::vector<test::Trial> trials;
    if (layout < kWithAllTypes) trials = test::trials_of(GetParam(), size, {1, 83});
    for (int root = 0; root < size; ++root)  // in every host
      for (const std::size_t count : {0, 3, 4, 5, 16, 17, 83})
        for (const DType dtype : {DType::float32, DType::float16})
          trials.push_back({GetParam(), dtype, ReduceOp::sum, root, count, root % 2 == 1, size});
    on_hosts(hosts, [&](int rank, CallRunner& two) {
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

// As the arguments of a group allow it: what a rank puts in lies where a part comes out, its own or
// another's.  `shift`: that of the rank so much further.
void put_together(Call& call, std::vector<std::byte>& memory, int rank, int shift) {
  const std::size_t width = size_of(call.dtype);
  const auto me = static_cast<std::size_t>(rank);
  const auto size = std::max(call.ins.size(), call.outs.size());
  const bool gathers = call.op == OpType::all_gather || call.op == OpType::gather;
  if (size == 0) return;
  const std::size_t other = (me + static_cast<std::size_t>(shift)) % size;
  if (gathers) {
    std::memmove(call.outs[other].data, call.in, call.count * width);
    call.in = call.outs[other].data;
  } else if (call.op == OpType::all_to_all) {
    std::memmove(call.outs[me].data, call.ins[me].data, call.ins[me].count * width);
    call.ins[me].data = call.outs[me].data;
  } else {
    call.out = memory.data() + (call.ins[other].data - memory.data());
  }
}

TEST_P(EveryOperationOnHosts, GivesTheSameInPlace) {
  const OpType op = GetParam();
  for (const Hosts& hosts : kLayouts)
    for (const int shift : {0, 1}) {
      const auto size = static_cast<int>(hosts.size());
      on_hosts(hosts, [&](int rank, CallRunner& two) {
        for (int root = 0; root < size; ++root) {
          const test::Trial trial{op, DType::float32, ReduceOp::sum, root, 50, false, size};
          test::Side side;
          test::set_up(side, trial, rank);
          const std::byte* const before = side.call.out;
          put_together(side.call, side.in, rank, shift);
          side.call.sequence = static_cast<std::uint64_t>(root);
          two.run(side.call, soon());
          if (side.call.out != nullptr && side.call.out != before)
            std::memcpy(side.out.data(), side.call.out, side.call.count * size_of(side.call.dtype));
          test::check(side, trial, rank);
        }
      });
    }
}

// Two hosts of two ranks; of each rank's part or data, how often it is sent.
TEST_P(EveryOperationOnHosts, CrossesBetweenHostsOnceForEachHostAndStaysOffTheNetworkInside) {
  struct Times {
    double across, inside;
  };
  const std::map<OpType, Times> expected{
      {OpType::broadcast, {1, 0}},  {OpType::all_reduce, {2, 0}}, {OpType::reduce, {1.5, 0}},
      {OpType::all_gather, {4, 0}}, {OpType::barrier, {0, 0}},    {OpType::reduce_scatter, {4, 0}},
      {OpType::all_to_all, {8, 4}}, {OpType::gather, {2, 1}},     {OpType::scatter, {2, 1}}};
  constexpr std::size_t kCount = 4000;
  for (const Hosts& hosts : {Hosts{0, 0, 1, 1}, Hosts{0, 1, 0, 1}}) {
    Traffic traffic;
    const test::Trial trial{GetParam(), DType::float32, ReduceOp::sum, 2, kCount, false, 4};
    on_hosts(
        hosts,
        [&](int rank, CallRunner& two, CallRunner&) {
          test::Side side;
          test::set_up(side, trial, rank);
          two.run(side.call, soon());
          test::check(side, trial, rank);
        },
        traffic);
    const auto times = [](std::size_t bytes) {
      return static_cast<double>(bytes) / (kCount * sizeof(float));
    };
    EXPECT_EQ(times(traffic.across), expected.at(GetParam()).across);
    EXPECT_EQ(times(traffic.inside), expected.at(GetParam()).inside);
  }
}

class EveryReductionOnHosts : public ::testing::TestWithParam<OpType> {};
INSTANTIATE_TEST_SUITE_P(TwoLevel, EveryReductionOnHosts,
                         ::testing::Values(OpType::all_reduce, OpType::reduce,
                                           OpType::reduce_scatter),
                         [](const auto& of) { return std::string(to_string(of.param)); });

// Real numbers: two ways to add them up differ in the last bits only.
TEST_P(EveryReductionOnHosts, DiffersFromTheFlatWayByRoundingAlone) {
  for (const Hosts& hosts : kLayouts)
    for (const ReduceOp reduce : {ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum}) {
      Traffic traffic;
      const auto size = static_cast<int>(hosts.size());
      const test::Trial trial{GetParam(), DType::float32, reduce, size - 1, 1003, true, size};
      on_hosts(
          hosts,
          [&](int rank, CallRunner& two, CallRunner& flat) {
            std::vector<std::vector<std::byte>> results;
            for (CallRunner* const runner : {&two, &flat}) {
              test::Side side;
              test::set_up(side, trial, rank);
              std::vector<std::byte>& memory = side.in.empty() ? side.out : side.in;
              for (std::size_t i = 0; i + sizeof(float) <= memory.size(); i += sizeof(float)) {
                const auto value =
                    0.1F * static_cast<float>((i * 7 + static_cast<std::size_t>(rank)) % 13);
                std::memcpy(memory.data() + i, &value, sizeof value);
              }
              runner->run(side.call, soon());
              results.push_back(side.out);
            }
            for (std::size_t i = 0; i + sizeof(float) <= results[0].size(); i += sizeof(float)) {
              float one = 0, other = 0;
              std::memcpy(&one, results[0].data() + i, sizeof one);
              std::memcpy(&other, results[1].data() + i, sizeof other);
              ASSERT_NEAR(one, other, 1e-5) << "element " << i / sizeof(float) << ", rank " << rank;
            }
          },
          traffic);
    }
}

TEST(TwoLevel, CallsThatDifferAreToldBeforeAnyDataMoves) {
  on_hosts({0, 0, 1, 1}, [](int rank, CallRunner& two) {
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

enum class Leaving { silently, closing };

// After the agreement the last rank comes no more, or closes the network, for everybody.
void leave(Leaving how, OpType op, const Hosts& hosts) {
  const auto size = static_cast<int>(hosts.size());
  const int gone = size - 1;
  // Whose data all want, or who wants its data.
  const int root = op == OpType::broadcast || op == OpType::scatter ? gone : 0;
  const test::Trial trial{op, DType::float32, ReduceOp::sum, root, 1000, false, size};
  Offices offices(hosts);
  std::atomic<int> named = 0;  // the one that left
  const auto name = [&](int peer, int rank) {
    EXPECT_NE(peer, rank);
    EXPECT_GE(peer, 0);
    EXPECT_LT(peer, size);
    if (peer == gone) ++named;
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      PostTransport transport(offices.network, rank, size);
      Collectives flat(
          transport, [](const Call&, const std::vector<int>&) {}, 64);
      test::Side side;
      test::set_up(side, trial, rank);
      if (rank == gone) {
        EXPECT_FALSE(flat.agree(side.call, soon()));
        if (how == Leaving::closing) transport.close();
        return;
      }
      TwoLevel two(flat, transport, hosts, offices.in_host(rank));
      try {
        two.run(side.call, Clock::now() + std::chrono::seconds(1));
      } catch (const PeersLate& late) {
        for (const int peer : late.peers) name(peer, rank);
      } catch (const PeerLost& lost) {
        EXPECT_EQ(how, Leaving::closing);
        name(lost.peer, rank);
      }
    });
  for (auto& rank : ranks) rank.join();
  EXPECT_TRUE(named > 0 || how == Leaving::closing)
      << to_string(op) << ", hosts " << ::testing::PrintToString(hosts);
}

class ARankThatLeaves : public ::testing::TestWithParam<Leaving> {};
INSTANTIATE_TEST_SUITE_P(TwoLevel, ARankThatLeaves,
                         ::testing::Values(Leaving::silently, Leaving::closing),
                         [](const auto& of) {
                           return of.param == Leaving::silently ? "silently" : "closing";
                         });

// Whoever waits for it knows that; and whoever is waited for by somebody is another than that one.
TEST_P(ARankThatLeaves, IsNamedByItsRankInTheWholeGroup) {
  std::vector<std::thread> at_once;  // most of the time they wait
  for (const OpType op : test::kAllOps)
    for (const Hosts& hosts :
         {Hosts{0, 1}, Hosts{0, 1, 1, 0}, Hosts{0, 1, 0, 1}, Hosts{0, 1, 2, 2}})
      if (op != OpType::barrier)  // is over with the agreement
        at_once.emplace_back([this, op, hosts] { leave(GetParam(), op, hosts); });
  for (auto& one : at_once) one.join();
}

}  // namespace
}  // namespace distrun
