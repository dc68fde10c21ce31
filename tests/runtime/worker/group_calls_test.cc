// What a group offers beyond the plain collectives, over real Gloo: lists, messages between two
// ranks, several tensors at once, groups out of groups.
#include "tests/runtime/worker/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>

namespace distrun {
namespace {

using namespace std::chrono_literals;
using test::as_ranks;
using test::expect_nothing_thrown;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GroupCalls, ListsOfTensorsMayDifferInSize) {
  expect_nothing_thrown(as_ranks(3, [](ProcessGroup& group) {
    const auto me = static_cast<std::size_t>(group.rank());
    std::vector<std::vector<std::int32_t>> parts{{0}, {0, 0}, {0, 0, 0}};
    const std::vector<Tensor> outs(parts.begin(), parts.end());
    group.all_gather(outs, std::vector<std::int32_t>(me + 1, group.rank()));
    EXPECT_THAT(parts, ElementsAre(ElementsAre(0), ElementsAre(1, 1), ElementsAre(2, 2, 2)));

    std::vector<std::int32_t> mine(me + 1);
    group.reduce_scatter(mine, std::vector<ConstTensor>(parts.begin(), parts.end()));
    EXPECT_EQ(mine, std::vector<std::int32_t>(me + 1, 3 * group.rank()));

    const bool root = group.rank() == 1;
    group.scatter(
        mine,
        root ? std::vector<ConstTensor>(parts.begin(), parts.end()) : std::vector<ConstTensor>(),
        1);
    EXPECT_EQ(mine, std::vector<std::int32_t>(me + 1, group.rank()));

    mine.assign(me + 1, group.rank() + 10);
    group.gather(mine, root ? outs : std::vector<Tensor>(), 1);
    if (root) {
      EXPECT_THAT(parts[2], ElementsAre(12, 12, 12));
    }
  }));
}

TEST(GroupCalls, AllToAllSingleSplitsRows) {
  expect_nothing_thrown(as_ranks(2, [](ProcessGroup& group) {
    // Rank 0 gives one row to itself and two to rank 1; rank 1 gives two rows to rank 0, none to
    // itself.  Two elements in a row.
    const bool first = group.rank() == 0;
    std::vector<float> in =
        first ? std::vector<float>{1, 1, 2, 2, 3, 3} : std::vector<float>{4, 4, 5, 5};
    std::vector<float> out(first ? 6U : 4U);
    const auto rows = [](std::vector<float>& data) {
      return Tensor(data.data(), {static_cast<std::int64_t>(data.size() / 2), 2}, DType::float32);
    };
    const std::vector<std::size_t> in_splits =
        first ? std::vector<std::size_t>{1, 2} : std::vector<std::size_t>{2, 0};
    const std::vector<std::size_t> out_splits =
        first ? std::vector<std::size_t>{1, 2} : std::vector<std::size_t>{2, 0};
    group.all_to_all_single(rows(out), rows(in), out_splits, in_splits);
    EXPECT_EQ(out, (first ? std::vector<float>{1, 1, 4, 4, 5, 5} : std::vector<float>{2, 2, 3, 3}));

    std::vector<float> even_out(4);
    std::vector<float> even_in(4, static_cast<float>(group.rank()));
    group.all_to_all_single(even_out, even_in);
    EXPECT_THAT(even_out, ElementsAre(0, 0, 1, 1));
    const std::vector<std::size_t> wrong{1, 0};
    EXPECT_THROW(group.all_to_all_single(rows(in), rows(in), wrong, wrong), DistArgumentError);
  }));
}

// Of memory that is input and output at once nothing is sent that came in before.
TEST(GroupCalls, InputsMayBeOutputs) {
  expect_nothing_thrown(as_ranks(3, [](ProcessGroup& group) {
    const std::size_t part = 20'000;
    std::vector<int> data(3 * part);
    const auto fill = [&] {
      for (std::size_t i = 0; i < 3; ++i)
        std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(i * part), part,
                    10 * group.rank() + static_cast<int>(i));
    };
    const auto piece = [&](std::size_t i) { return std::span(data).subspan(i * part, part); };
    fill();
    group.all_to_all_single(data, data);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(data[(static_cast<std::size_t>(i) + 1) * part - 1], 10 * i + group.rank());

    const bool root = group.rank() == 1;
    fill();
    const std::vector<ConstTensor> ins{piece(0), piece(1), piece(2)};
    group.scatter(piece(0), root ? ins : std::vector<ConstTensor>(), 1);
    EXPECT_EQ(data[part - 1], 10 + group.rank());

    fill();
    const std::vector<Tensor> outs{piece(0), piece(1), piece(2)};
    group.gather(piece(0), root ? outs : std::vector<Tensor>(), 1);
    if (root) {
      EXPECT_EQ(data[0], 0);
      EXPECT_EQ(data[part], 10);
      EXPECT_EQ(data[2 * part], 20);
    }

    fill();
    group.all_gather_into_tensor(data, piece(0));
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(data[(i + 1) * part - 1], 10 * i);

    fill();
    group.reduce_scatter_tensor(piece(0), data);
    EXPECT_EQ(data[part - 1], 30 + 3 * group.rank());
  }));
}

// Parts that begin elsewhere as output than as input would be overwritten before they are read.
TEST(GroupCalls, InputsThatOverlapOtherOutputsAreRefused) {
  expect_nothing_thrown(as_ranks(2, [](ProcessGroup& group) {
    std::vector<int> data(6);
    const std::vector<std::size_t> in_splits{1, 5}, out_splits{5, 1};
    const bool first = group.rank() == 0;
    EXPECT_THROW(group.all_to_all_single(data, data, first ? in_splits : out_splits,
                                         first ? out_splits : in_splits),
                 DistArgumentError);
    std::vector<int> a(2), b(2), c(2), d(2);  // wherever they are in memory
    const std::vector<Tensor> outs{a, c};
    const std::vector<ConstTensor> ins{b, d};
    group.all_to_all(outs, ins);
  }));
}

TEST(GroupCalls, ReductionsWithAFactorAndOfBits) {
  expect_nothing_thrown(as_ranks(2, [](ProcessGroup& group) {
    std::vector<bfloat16> halves{bfloat16(3.0F)};
    group.all_reduce(halves, Reduction::premul_sum(0.5));
    EXPECT_EQ(static_cast<float>(halves[0]), 3.0F);
    std::vector<std::uint8_t> bits{static_cast<std::uint8_t>(group.rank() == 0 ? 0b0110 : 0b0011)};
    group.all_reduce(bits, ReduceOp::bxor);
    EXPECT_EQ(bits[0], 0b0101);
    std::array<bool, 2> flags{group.rank() == 0, false};
    group.all_reduce(flags);
    EXPECT_THAT(flags, ElementsAre(true, false));
  }));
}

TEST(GroupCalls, TwoRanksSendToEachOtherAtOnceSmallAndLarge) {
  expect_nothing_thrown(as_ranks(2, [](ProcessGroup& group) {
    for (const std::size_t count : {1U, 300'000U}) {
      const std::vector<double> mine(count, group.rank() + 1.0);
      std::vector<double> theirs(count);
      const std::vector<P2POp> both{P2POp::irecv(theirs, 1 - group.rank(), 3),
                                    P2POp::isend(mine, 1 - group.rank(), 3)};
      for (Work& work : group.batch_isend_irecv(both)) work.wait();
      EXPECT_EQ(theirs, std::vector<double>(count, 2.0 - group.rank()));
    }
  }));
}

TEST(GroupCalls, ReceivingFromAnyRankSaysFromWhom) {
  expect_nothing_thrown(as_ranks(3, [](ProcessGroup& group) {
    std::vector<int> data{group.rank()};
    if (group.rank() != 0) return group.send(data, 0, 5);
    std::vector<int> seen;
    for (int i = 0; i < 2; ++i) {
      Work work = group.irecv(data, std::nullopt, 5);
      work.wait();
      EXPECT_EQ(work.source_rank(), data[0]);
      seen.push_back(data[0]);
    }
    EXPECT_THAT(seen, ::testing::UnorderedElementsAre(1, 2));
  }));
}

TEST(GroupCalls, AReceiveThatWaitsHoldsUpNoCollective) {
  expect_nothing_thrown(as_ranks(2, [](ProcessGroup& group) {
    std::vector<float> data{0}, sum{1};
    const bool receives = group.rank() == 0;
    Work work = receives ? group.irecv(data, 1) : Work();
    group.all_reduce(sum);
    EXPECT_FALSE(receives && work.is_completed());
    group.barrier();
    if (!receives) group.send(std::vector<float>{7}, 0);
    work.wait();
    if (receives) {
      EXPECT_EQ(data[0], 7);
    }
  }));
}

TEST(GroupCalls, ASendThatDoesNotFitEndsTheGroupOnBothSidesInWords) {
  const auto thrown = as_ranks(2, [](ProcessGroup& group) {
    std::vector<float> data(100'000);
    if (group.rank() == 0) {
      group.send(data, 1);
      group.barrier();
    } else {
      group.recv(std::span(data).first(5), 0);
    }
  });
  EXPECT_THAT(thrown, ::testing::Each(HasSubstr(
                          "rank 0 called send to rank 1, tag 0 (float32 x 100000), rank 1 called "
                          "recv from rank 0, tag 0 (float32 x 5): they differ in the count")));
}

TEST(GroupCalls, SendingToItselfAndNegativeTagsAreRefused) {
  expect_nothing_thrown(as_ranks(2, [](ProcessGroup& group) {
    std::vector<float> data(1);
    EXPECT_THROW(group.send(data, group.rank()), DistArgumentError);
    EXPECT_THROW(group.recv(data, 2), DistArgumentError);
    EXPECT_THROW(group.isend(data, 1 - group.rank(), -1), DistArgumentError);
  }));
}

TEST(GroupCalls, ReceivingFromNobodyTakesItsTimeoutAndEndsTheGroup) {
  const auto thrown = as_ranks(2, [](ProcessGroup& group) {
    std::vector<float> data(1);
    if (group.rank() == 0) group.recv(data, std::nullopt, 0, {.timeout = 100ms});
    if (group.rank() == 1) group.barrier();
  });
  EXPECT_THAT(thrown[0], HasSubstr("recv from any rank, tag 0 (float32 x 1): nobody sent anything "
                                   "within 100 ms"));
  EXPECT_THAT(thrown[1], HasSubstr("nobody sent anything"));
}

TEST(GroupCalls, SeveralTensorsGoAsOneOperation) {
  expect_nothing_thrown(as_ranks(2, [](ProcessGroup& group) {
    const float mine = static_cast<float>(group.rank() + 1);
    std::vector<float> a{mine}, b{mine * 10, mine * 100};
    const std::vector<Tensor> both{a, b};
    group.all_reduce_coalesced(both);
    EXPECT_THAT(a, ElementsAre(3));
    EXPECT_THAT(b, ElementsAre(30, 300));

    std::vector<float> all_a(2), all_b(4);
    const std::vector<Tensor> outs{all_a, all_b};
    const std::vector<ConstTensor> ins{a, b};
    a[0] = mine;
    Work work = group.all_gather_into_tensor_coalesced(outs, ins, {.async_op = true});
    work.wait();
    EXPECT_THAT(all_a, ElementsAre(1, 2));
    EXPECT_THAT(all_b, ElementsAre(30, 300, 30, 300));

    const std::vector<ConstTensor> wholes{all_a, all_b};
    group.reduce_scatter_tensor_coalesced(both, wholes);
    EXPECT_THAT(a, ElementsAre(2 * mine));
    EXPECT_THAT(b, ElementsAre(60, 600));
    const std::vector<double> other{1};
    EXPECT_THROW(group.reduce_scatter_tensor_coalesced(
                     both, std::vector<ConstTensor>{all_a, ConstTensor(other)}),
                 DistArgumentError);
  }));
}

TEST(GroupCalls, SeveralTensorsThatAreCutDifferentlyAreTold) {
  const auto thrown = as_ranks(2, [](ProcessGroup& group) {
    std::vector<float> one(1), three(3);
    const std::vector<Tensor> tensors =
        group.rank() == 0 ? std::vector<Tensor>{one, three} : std::vector<Tensor>{three, one};
    group.all_reduce_coalesced(tensors);
  });
  EXPECT_THAT(thrown, ::testing::Each(HasSubstr("they differ in the sizes of the tensors")));
}

TEST(GroupCalls, AReceiveFromAnyoneEndsWhenAnotherRankFails) {
  const auto start = std::chrono::steady_clock::now();
  const auto thrown = as_ranks(2, [](ProcessGroup& group) {
    if (group.rank() == 1) throw DistError(ErrorKind::store, "x");
    std::vector<float> data(1);
    group.recv(data);
  });
  EXPECT_THAT(thrown[0], HasSubstr("left the group: an exception ended its work"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST(GroupCalls, AnAbortIsToldToTheOthersWithItsReason) {
  const auto thrown = as_ranks(2, [](ProcessGroup& group) {
    if (group.rank() == 1) return group.abort("the data is stale");
    group.barrier();
  });
  EXPECT_THAT(thrown[0], HasSubstr("left the group: the data is stale"));
}

TEST(GroupCalls, WhatIsToFollowAnOperationIsCalledOnceItIsDone) {
  expect_nothing_thrown(as_ranks(2, [](ProcessGroup& group) {
    std::vector<float> data{1};
    std::atomic<int> called = 0;
    Work work = group.all_reduce(data, ReduceOp::sum, {.async_op = true});
    work.then([&](const Work& done) { called += done.is_success() ? 1 : 100; });
    work.wait();
    group.barrier();  // behind it, and so behind what follows it
    EXPECT_EQ(called, 1);
    work.then([&](const Work&) { ++called; });
    EXPECT_EQ(called, 2) << "a completed one calls at once";
  }));
}

// ---- groups ------------------------------------------------------------------------------------

TEST(Subgroups, AreMadeByAllAndHeldByTheirMembers) {
  expect_nothing_thrown(as_ranks(4, [](ProcessGroup& world) {
    const auto odd = world.new_group({3, 1}, {.description = "odd"});
    EXPECT_EQ(odd != nullptr, world.rank() % 2 == 1);
    if (odd) {
      EXPECT_EQ(odd->size(), 2);
      EXPECT_EQ(odd->rank(), world.rank() / 2) << "in ascending order";
      EXPECT_EQ(odd->description(), "odd");
      EXPECT_THAT(odd->global_ranks(), ElementsAre(1, 3));
      EXPECT_EQ(odd->global_rank(1), 3);
      EXPECT_EQ(odd->group_rank(3), 1);
      EXPECT_EQ(odd->group_rank(0), std::nullopt);
      std::vector<int> sum{world.rank()};
      odd->all_reduce(sum);
      EXPECT_EQ(sum[0], 4);
    }
    const auto pair = world.new_subgroups(2);
    EXPECT_THAT(pair->global_ranks(), ElementsAre(world.rank() / 2 * 2, world.rank() / 2 * 2 + 1));
    const std::vector<std::vector<int>> listed{{0, 3}, {1}};
    const auto mine = world.new_subgroups_by_enumeration(listed);
    EXPECT_EQ(mine == nullptr, world.rank() == 2);
    if (mine) {
      mine->barrier();
    }
  }));
}

TEST(Subgroups, OfSubgroupsKeepTheRanksOfTheFirst) {
  expect_nothing_thrown(as_ranks(4, [](ProcessGroup& world) {
    const auto upper = world.new_group({2, 3});
    if (!upper) return;
    const auto last = upper->new_group({1});
    EXPECT_EQ(last != nullptr, world.rank() == 3);
    if (last) {
      EXPECT_EQ(last->global_rank(0), 3);
    }
  }));
}

TEST(Subgroups, WithLocalSynchronizationOnlyMembersCall) {
  expect_nothing_thrown(as_ranks(3, [](ProcessGroup& world) {
    if (world.rank() == 1) return;
    const auto group = world.new_group({0, 2}, {.use_local_synchronization = true});
    const auto again = world.new_group({0, 2}, {.use_local_synchronization = true});
    std::vector<int> sum{1};
    again->all_reduce(sum);
    group->all_reduce(sum);
    EXPECT_EQ(sum[0], 4);
  }));
}

TEST(Subgroups, DifferentOnesAtOnceAreToldInsteadOfWaitedFor) {
  const auto thrown = as_ranks(3, [](ProcessGroup& world) {
    world.rank() == 2 ? world.new_group({0, 2}) : world.new_group({0, 1});
  });
  EXPECT_THAT(thrown,
              ::testing::Each(HasSubstr("rank 0 and rank 2 create groups of different ranks")));
}

TEST(Subgroups, ThatCannotBeAreRefused) {
  expect_nothing_thrown(as_ranks(2, [](ProcessGroup& world) {
    EXPECT_THROW(world.new_group({0, 2}), DistArgumentError);
    EXPECT_THROW(world.new_group({1, 1}), DistArgumentError);
    EXPECT_THROW(world.new_group(std::vector<int>()), DistArgumentError);
    EXPECT_THROW(world.new_subgroups(3), DistArgumentError);
    const std::vector<std::vector<int>> overlap{{0}, {0, 1}};
    EXPECT_THROW(world.new_subgroups_by_enumeration(overlap), DistArgumentError);
    EXPECT_THROW(static_cast<void>(world.global_rank(2)), DistArgumentError);
  }));
}

}  // namespace
}  // namespace distrun
