#include "runtime/nccl/schedule.h"

#include "runtime/nccl/failed.h"
#include "tests/runtime/nccl/ranks.h"

#include <gtest/gtest.h>

#include <array>

namespace distrun::nccl {
namespace {

using testing::Op;
using testing::tensor;

float data[64];
float other[64];

drb_tensor in(std::size_t count, std::size_t at = 0) {
  return tensor(data + at, count, 0);
}
drb_tensor out(std::size_t count, std::size_t at = 0) {
  return tensor(other + at, count, 0);
}

Plan plan_of(Op op, int rank = 1, int world_size = 4) {
  const drb_op* raw = op.get();
  return make_plan({&raw, 1}, {rank, world_size});
}

// What the plan is refused with.
std::string refusal(Op op, int rank = 1, int world_size = 4) {
  try {
    plan_of(std::move(op), rank, world_size);
  } catch (const Failed& failed) {
    return failed.what();
  }
  return "";
}

std::vector<Call> calls(const Plan& plan) {
  std::vector<Call> out;
  for (const Command& command : plan.commands) out.push_back(command.call);
  return out;
}

TEST(Schedule, AnAllReduceInPlaceIsOneCall) {
  const Plan plan = plan_of(Op(DRB_ALL_REDUCE).out(out(8)).reduce(DRB_MAX));
  ASSERT_EQ(calls(plan), std::vector<Call>{Call::all_reduce});
  EXPECT_EQ(plan.commands[0].in, other);
  EXPECT_EQ(plan.commands[0].out, other);
  EXPECT_EQ(plan.commands[0].count, 8U);
  EXPECT_EQ(plan.commands[0].op, NcclOp::max);
  EXPECT_EQ(plan.label.text(), "all_reduce #0 (float32, 8 elements)");
}

TEST(Schedule, AReduceWritesAtTheRootOnly) {
  EXPECT_EQ(plan_of(Op(DRB_REDUCE).out(out(8)).root(1)).commands[0].out, other);
  EXPECT_EQ(plan_of(Op(DRB_REDUCE).out(out(8)).root(2)).commands[0].out, nullptr);
  EXPECT_EQ(plan_of(Op(DRB_REDUCE).in(in(8)).root(2)).commands[0].in, data);
}

TEST(Schedule, NothingIsCalledForNoElements) {
  EXPECT_TRUE(plan_of(Op(DRB_ALL_REDUCE).out(tensor<float>(nullptr, 0, 0))).commands.empty());
}

TEST(Schedule, AnAllGatherToAListIsABroadcastFromEach) {
  const Plan plan = plan_of(
      Op(DRB_ALL_GATHER).in(in(2)).out(out(1)).out(out(2, 1)).out(out(0, 3)).out(out(5, 3)));
  ASSERT_EQ(calls(plan), (std::vector<Call>(3, Call::broadcast)));
  EXPECT_EQ(plan.commands[0].peer, 0);
  EXPECT_EQ(plan.commands[1].in, data);
  EXPECT_EQ(plan.commands[2].peer, 3);
  EXPECT_EQ(plan.commands[2].count, 5U);
}

TEST(Schedule, AGatherIsReceivesAndACopyAtTheRootAndASendElsewhere) {
  const Plan root = plan_of(Op(DRB_GATHER).in(in(2)).out(out(8)).root(1));
  EXPECT_EQ(calls(root), (std::vector<Call>{Call::recv, Call::copy, Call::recv, Call::recv}));
  EXPECT_EQ(root.commands[2].out, other + 4);
  const Plan leaf = plan_of(Op(DRB_GATHER).in(in(2)).root(0));
  EXPECT_EQ(calls(leaf), std::vector<Call>{Call::send});
  EXPECT_EQ(leaf.commands[0].peer, 0);
}

TEST(Schedule, AScatterFromItsOwnPlaceCopiesNothing) {
  const Plan plan = plan_of(Op(DRB_SCATTER).in(in(8)).out(in(2, 2)).root(1));
  EXPECT_EQ(calls(plan), (std::vector<Call>(3, Call::send)));
}

TEST(Schedule, AReduceScatterFromAListIsAReduceToEach) {
  const Plan plan =
      plan_of(Op(DRB_REDUCE_SCATTER).in(in(1)).in(in(2, 1)).in(in(0)).in(in(3, 3)).out(out(2)));
  ASSERT_EQ(calls(plan), (std::vector<Call>(3, Call::reduce)));
  EXPECT_EQ(plan.commands[0].out, nullptr);
  EXPECT_EQ(plan.commands[1].out, other);
}

TEST(Schedule, UnevenSplitsSkipWhatIsEmptyAndKeepTheirPlaces) {
  const Plan plan =
      plan_of(Op(DRB_ALL_TO_ALL).in(in(6)).out(out(4)).splits({1, 2, 0, 3}, {1, 2, 1, 0}));
  EXPECT_EQ(calls(plan),
            (std::vector<Call>{Call::send, Call::recv, Call::copy, Call::recv, Call::send}));
  EXPECT_EQ(plan.commands[3].out, other + 3);
  EXPECT_EQ(plan.commands[4].in, data + 3);
}

TEST(Schedule, ComplexCountsAsPairs) {
  drb_tensor t = out(4);
  t.dtype_code = 5;
  t.dtype_bits = 64;
  const Plan plan = plan_of(Op(DRB_ALL_REDUCE).out(t));
  EXPECT_EQ(plan.commands[0].count, 8U);
  EXPECT_EQ(plan.commands[0].type, NcclType::float32);
}

TEST(Schedule, ABarrierIsOneElementOfItsOwn) {
  const Plan plan = plan_of(Op(DRB_BARRIER));
  ASSERT_EQ(plan.commands.size(), 1U);
  EXPECT_TRUE(plan.commands[0].on_scratch);
  EXPECT_EQ(plan.device, -1);
}

TEST(Schedule, RefusesRanksThatAreNone) {
  EXPECT_EQ(refusal(Op(DRB_BROADCAST).out(out(1)).root(4)),
            "broadcast: root 4 is not a rank of this group of 4");
  EXPECT_EQ(refusal(Op(DRB_SEND).in(in(1)).peer(7)),
            "send: peer 7 is not a rank of this group of 4");
  EXPECT_EQ(refusal(Op(DRB_SEND).in(in(1)).peer(1)), "send: the peer is this rank itself, 1");
}

TEST(Schedule, RefusesToReceiveFromAnySourceInWords) {
  EXPECT_EQ(refusal(Op(DRB_RECV).out(out(1)).peer(DRB_ANY_RANK)),
            "recv: NCCL cannot receive from any source: name the rank, or use a gloo group");
}

TEST(Schedule, RefusesTensorsOfTheWrongKind) {
  drb_tensor host = out(4);
  host.device_type = 1;
  EXPECT_EQ(refusal(Op(DRB_ALL_REDUCE).out(host)),
            "all_reduce: nccl takes tensors on cuda devices, and this one's is of DLPack's device "
            "type 1");
  drb_tensor elsewhere = out(4);
  elsewhere.device_index = 3;
  EXPECT_EQ(refusal(Op(DRB_ALL_REDUCE).in(in(4)).out(elsewhere)),
            "all_reduce: tensors on different devices: cuda:0 and cuda:3");
  drb_tensor wide = out(4);
  wide.dtype_bits = 64;
  EXPECT_EQ(refusal(Op(DRB_ALL_REDUCE).in(in(4)).out(wide)),
            "all_reduce: tensors of different types: float32 and float64");
  drb_tensor nowhere = out(4);
  nowhere.data = nullptr;
  EXPECT_EQ(refusal(Op(DRB_ALL_REDUCE).out(nowhere)),
            "all_reduce: a tensor of 4 elements has no data");
  drb_tensor huge = out(4);
  huge.count = ~std::uint64_t{0};
  EXPECT_NE(refusal(Op(DRB_ALL_REDUCE).out(huge)).find("larger than memory"), std::string::npos);
}

TEST(Schedule, RefusesSizesThatDoNotFit) {
  EXPECT_EQ(refusal(Op(DRB_ALL_GATHER).in(in(2)).out(out(7))),
            "all_gather: the output has 7 elements, not 2 for each of 4 ranks");
  EXPECT_EQ(refusal(Op(DRB_ALL_GATHER).in(in(2)).out(out(2)).out(out(2))),
            "all_gather: wants 1 output for all ranks, or 4, one for each, and got 2");
  EXPECT_EQ(refusal(Op(DRB_ALL_TO_ALL).in(in(6)).out(out(8))),
            "all_to_all: the input's 6 elements cannot be divided among 4 ranks; give splits");
  EXPECT_EQ(refusal(Op(DRB_ALL_TO_ALL).in(in(6)).out(out(6)).splits({1, 2, 3, 1}, {1, 2, 3, 0})),
            "all_to_all: the input splits do not add up to its 6 elements");
  EXPECT_EQ(refusal(Op(DRB_ALL_TO_ALL)
                        .in(in(6))
                        .out(out(6))
                        .splits({~std::uint64_t{0}, 7, 0, 0}, {1, 2, 3, 0})),
            "all_to_all: the input splits do not add up to its 6 elements");
}

TEST(Schedule, RefusesAGatherListThatIsMissingAtTheRootOrGivenElsewhere) {
  EXPECT_EQ(refusal(Op(DRB_GATHER).in(in(2)).root(0).out(out(8))),
            "gather: wants 1 inputs and 0 outputs on this rank, and got 1 and 1");
  EXPECT_NE(refusal(Op(DRB_GATHER).in(in(2)).root(1)), "");
}

TEST(Schedule, RefusesWhatNcclCannotReduceByName) {
  EXPECT_EQ(refusal(Op(DRB_ALL_REDUCE).out(out(1)).reduce(DRB_BAND)),
            "all_reduce: band of float32: NCCL has no bit operations");
}

TEST(Schedule, RefusesOperationsAndReductionsThatDoNotExist) {
  EXPECT_EQ(refusal(Op(99)), "nccl has no operation 99");
  EXPECT_EQ(refusal(Op(DRB_ALL_REDUCE).out(out(1)).reduce(42)),
            "all_reduce: unknown reduce operation 42");
}

TEST(Schedule, CoalescesCollectivesAndPairsButNotBoth) {
  Op a = Op(DRB_ALL_REDUCE).out(out(2));
  Op b = Op(DRB_BROADCAST).out(out(3)).root(0);
  Op c = Op(DRB_SEND).in(in(1)).peer(0);
  const std::array<const drb_op*, 2> fine{a.get(), b.get()};
  EXPECT_EQ(make_plan(fine, {1, 4}).commands.size(), 2U);
  const std::array<const drb_op*, 2> mixed{a.get(), c.get()};
  EXPECT_THROW(make_plan(mixed, {1, 4}), Failed);
  Op barrier(DRB_BARRIER);
  const std::array<const drb_op*, 2> with_barrier{a.get(), barrier.get()};
  EXPECT_THROW(make_plan(with_barrier, {1, 4}), Failed);
}

}  // namespace
}  // namespace distrun::nccl
