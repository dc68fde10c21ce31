// What a group does when all goes well: each operation's result, and in which order things happen.
#include "tests/runtime/nccl/group_fixture.h"

#include <atomic>
#include <numeric>

namespace distrun::nccl::testing {
namespace {

using namespace std::chrono_literals;
using Floats = std::vector<float>;

drb_tensor t(Floats& values, int device) {
  return tensor(values.data(), values.size(), device);
}

// Submits, lets the default stream finish, and expects that it went well.
void expect_done(const TestGroup& group, Op op) {
  const Answer answer = group.submit(std::move(op));
  ASSERT_TRUE(answer.ok()) << answer.text;
  ASSERT_TRUE(synchronize(nullptr));
}

class Group_ : public GroupTest {};

TEST_F(Group_, EveryCollectiveGivesItsResult) {
  with_group(4, [](int rank, TestGroup& group) {
    use_device(rank);
    const auto me = static_cast<float>(rank);

    Floats sum{me, 10};
    expect_done(group, Op(DRB_ALL_REDUCE).out(t(sum, rank)));
    EXPECT_EQ(sum, (Floats{6, 40}));

    Floats average{me};
    Floats result{0};
    expect_done(group,
                Op(DRB_ALL_REDUCE).in(t(average, rank)).out(t(result, rank)).reduce(DRB_AVG));
    EXPECT_EQ(result, Floats{1.5});
    EXPECT_EQ(average, Floats{me});

    Floats most{me};
    expect_done(group, Op(DRB_REDUCE).out(t(most, rank)).reduce(DRB_MAX).root(2));
    EXPECT_EQ(most, Floats{rank == 2 ? 3 : me});

    Floats told{me, me};
    expect_done(group, Op(DRB_BROADCAST).out(t(told, rank)).root(3));
    EXPECT_EQ(told, (Floats{3, 3}));

    Floats mine{me, -me};
    Floats all(8);
    expect_done(group, Op(DRB_ALL_GATHER).in(t(mine, rank)).out(t(all, rank)));
    EXPECT_EQ(all, (Floats{0, 0, 1, -1, 2, -2, 3, -3}));

    Floats gathered(8);
    Op gather = Op(DRB_GATHER).in(t(mine, rank)).root(1);
    if (rank == 1) gather.out(t(gathered, rank));
    expect_done(group, gather);
    if (rank == 1) {
      EXPECT_EQ(gathered, all);
    }

    Floats parts{0, 1, 2, 3};
    Floats part(1);
    Op scatter = Op(DRB_SCATTER).out(t(part, rank)).root(0);
    if (rank == 0) scatter.in(t(parts, rank));
    expect_done(group, scatter);
    EXPECT_EQ(part, Floats{me});

    expect_done(group, Op(DRB_REDUCE_SCATTER).in(t(parts, rank)).out(t(part, rank)));
    EXPECT_EQ(part, Floats{4 * me});

    Floats to{10 * me, 10 * me + 1, 10 * me + 2, 10 * me + 3};
    Floats from(4);
    expect_done(group, Op(DRB_ALL_TO_ALL).in(t(to, rank)).out(t(from, rank)));
    EXPECT_EQ(from, (Floats{me, 10 + me, 20 + me, 30 + me}));

    ASSERT_TRUE(group.submit(Op(DRB_BARRIER)).ok());
  });
}

TEST_F(Group_, UnevenSizesFindTheirPlaces) {
  with_group(3, [](int rank, TestGroup& group) {
    use_device(rank);
    // Rank r has r elements of value r.
    Floats mine(static_cast<std::size_t>(rank), static_cast<float>(rank));
    Floats one(1);
    Floats two(2);
    expect_done(group, Op(DRB_ALL_GATHER)
                           .in(t(mine, rank))
                           .out(tensor<float>(nullptr, 0, rank))
                           .out(t(one, rank))
                           .out(t(two, rank)));
    EXPECT_EQ(one, Floats{1});
    EXPECT_EQ(two, (Floats{2, 2}));

    // Rank r sends r + 1 times its number to each.
    const auto n = static_cast<std::uint64_t>(rank) + 1;
    Floats to(3 * n, static_cast<float>(rank));
    Floats from(6);
    expect_done(group,
                Op(DRB_ALL_TO_ALL).in(t(to, rank)).out(t(from, rank)).splits({n, n, n}, {1, 2, 3}));
    EXPECT_EQ(from, (Floats{0, 1, 1, 2, 2, 2}));

    Floats a{1};
    Floats b{2, 2};
    Floats result(rank == 1 ? 2 : rank == 0 ? 1 : 0);
    Op op(DRB_REDUCE_SCATTER);
    op.in(t(a, rank)).in(t(b, rank)).in(tensor<float>(nullptr, 0, rank)).out(t(result, rank));
    expect_done(group, op);
    if (rank == 0) {
      EXPECT_EQ(result, Floats{3});
    }
    if (rank == 1) {
      EXPECT_EQ(result, (Floats{6, 6}));
    }
  });
}

TEST_F(Group_, ALoneGroupHasEveryCollective) {
  with_group(1, [](int rank, TestGroup& group) {
    Floats in{1, 2};
    Floats out(2);
    for (const drb_op_kind kind : {DRB_ALL_GATHER, DRB_GATHER, DRB_SCATTER, DRB_REDUCE_SCATTER,
                                   DRB_ALL_TO_ALL, DRB_ALL_REDUCE, DRB_BROADCAST, DRB_REDUCE}) {
      out = {0, 0};
      expect_done(group, Op(kind).in(t(in, rank)).out(t(out, rank)));
      EXPECT_EQ(out, in) << kind;
    }
    EXPECT_TRUE(group.submit(Op(DRB_BARRIER)).ok());
  });
}

TEST_F(Group_, TypesAreReducedAsTheTableSays) {
  with_group(2, [](int rank, TestGroup& group) {
    use_device(rank);
    std::vector<std::uint8_t> flags{1, 0, static_cast<std::uint8_t>(rank)};
    drb_tensor bools = tensor(flags.data(), 3, rank);
    bools.dtype_code = 6;
    expect_done(group, Op(DRB_ALL_REDUCE).out(bools));
    EXPECT_EQ(flags, (std::vector<std::uint8_t>{1, 0, 1}));

    std::vector<std::int64_t> big{std::int64_t{1} << 40};
    expect_done(group, Op(DRB_ALL_REDUCE).out(tensor(big.data(), 1, rank)).reduce(DRB_MIN));
    EXPECT_EQ(big[0], std::int64_t{1} << 40);

    std::vector<std::uint16_t> halves{0x3f80};  // 1 as bfloat16
    drb_tensor bfloat = tensor(halves.data(), 1, rank);
    bfloat.dtype_code = 4;
    expect_done(group, Op(DRB_ALL_REDUCE).out(bfloat));
    EXPECT_EQ(halves[0], 0x4000);

    std::vector<std::int16_t> moved{static_cast<std::int16_t>(rank + 300)};
    expect_done(group, Op(DRB_BROADCAST).out(tensor(moved.data(), 1, rank)).root(1));
    EXPECT_EQ(moved[0], 301);

    Floats pairs{1, static_cast<float>(rank)};  // one complex number
    drb_tensor complex = tensor(pairs.data(), 1, rank);
    complex.dtype_code = 5;
    complex.dtype_bits = 64;
    expect_done(group, Op(DRB_ALL_REDUCE).out(complex));
    EXPECT_EQ(pairs, (Floats{2, 1}));
  });
}

TEST_F(Group_, PremulSumMultipliesByEachRanksFactor) {
  with_group(2, [](int rank, TestGroup& group) {
    use_device(rank);
    Floats values{2, 4};
    expect_done(group, Op(DRB_ALL_REDUCE).out(t(values, rank)).premul(rank == 0 ? 0.5 : 2));
    EXPECT_EQ(values, (Floats{5, 10}));

    std::vector<std::uint16_t> halves{0x4000};  // 2 as bfloat16
    drb_tensor bfloat = tensor(halves.data(), 1, rank);
    bfloat.dtype_code = 4;
    expect_done(group, Op(DRB_ALL_REDUCE).out(bfloat).premul(0.25));
    EXPECT_EQ(halves[0], 0x3f80);

    Floats device_factor{3};
    Op op = Op(DRB_ALL_REDUCE).out(t(values, rank)).premul(0);
    op.raw.premul_device = device_factor.data();
    expect_done(group, op);
    EXPECT_EQ(values, (Floats{30, 60}));
  });
  EXPECT_EQ(calls("op_destroy"), calls("premul_sum_create"));
}

TEST_F(Group_, CoalescedOperationsAreOneGroupOfCallsAndOneWork) {
  with_group(2, [](int rank, TestGroup& group) {
    use_device(rank);
    Floats a{1};
    Floats b{2, 2};
    std::vector<Op> ops;
    ops.push_back(Op(DRB_ALL_REDUCE).out(t(a, rank)));
    ops.push_back(Op(DRB_ALL_REDUCE).out(t(b, rank)));
    TestWork work;
    ASSERT_TRUE(group.submit_all(std::move(ops), {.async = true}, &work).ok());
    EXPECT_TRUE(work.wait().ok());
    EXPECT_EQ(work.sequence(), 0);
    EXPECT_EQ(a, Floats{2});
    EXPECT_EQ(b, (Floats{4, 4}));
  });
  EXPECT_EQ(calls("group_end"), 2);  // one on each rank
}

TEST_F(Group_, SendsAndReceivesOfOneBatchDoNotWaitForEachOther) {
  with_group(2, [](int rank, TestGroup& group) {
    use_device(rank);
    Floats mine{static_cast<float>(rank)};
    Floats theirs(1);
    std::vector<Op> ops;
    ops.push_back(Op(DRB_SEND).in(t(mine, rank)).peer(1 - rank));
    ops.push_back(Op(DRB_RECV).out(t(theirs, rank)).peer(1 - rank));
    ASSERT_TRUE(group.submit_all(std::move(ops)).ok());
    ASSERT_TRUE(synchronize(nullptr));
    EXPECT_EQ(theirs, Floats{static_cast<float>(1 - rank)});
  });
}

TEST_F(Group_, ALazyGroupConnectsAtItsFirstOperation) {
  with_group(2,
             [](int rank, TestGroup& group) {
               use_device(rank);
               Floats value{1};
               expect_done(group, Op(DRB_ALL_REDUCE).out(t(value, rank)));
               expect_done(group, Op(DRB_ALL_REDUCE).out(t(value, rank)));
               EXPECT_EQ(value, Floats{4});
             },
             {.device = -1, .options = kQuick});
  EXPECT_EQ(calls("init_rank"), 2);
}

TEST_F(Group_, ALazyGroupThatDidNothingConnectsNever) {
  with_group(2, [](int, TestGroup&) {}, {.options = kQuick});
  EXPECT_EQ(calls("init_rank"), 0);
}

TEST_F(Group_, ABarrierBeforeAllElseUsesTheCallersDevice) {
  with_group(2,
             [](int rank, TestGroup& group) {
               use_device(rank + 4);
               EXPECT_TRUE(group.submit(Op(DRB_BARRIER)).ok());
               Floats value{1};
               EXPECT_EQ(group.submit(Op(DRB_ALL_REDUCE).out(t(value, 0))).text,
                         "all_reduce: the tensors are on cuda:0, and group g is on cuda:" +
                             std::to_string(rank + 4));
             },
             {.device = -1, .options = kQuick});
}

// The third rank takes no part, so there can be no communicator of all.
TEST_F(Group_, ASendInALazyGroupConnectsItsTwoRanksOnly) {
  with_group(3,
             [](int rank, TestGroup& group) {
               use_device(rank);
               Floats value{static_cast<float>(rank)};
               if (rank == 2) expect_done(group, Op(DRB_SEND).in(t(value, rank)).peer(0));
               if (rank == 0) {
                 expect_done(group, Op(DRB_RECV).out(t(value, rank)).peer(2));
                 EXPECT_EQ(value, Floats{2});
               }
             },
             {.options = kQuick});
  EXPECT_EQ(calls("init_rank"), 2);
}

TEST_F(Group_, AnEagerGroupSendsOverItsOneCommunicator) {
  with_group(2, [](int rank, TestGroup& group) {
    use_device(rank);
    Floats value{static_cast<float>(rank)};
    expect_done(group, rank == 0 ? Op(DRB_SEND).in(t(value, rank)).peer(1)
                                 : Op(DRB_RECV).out(t(value, rank)).peer(0));
    EXPECT_EQ(value, Floats{0});
  });
  EXPECT_EQ(calls("init_rank"), 2);
}

TEST_F(Group_, ManyRanksConnectByWayOfSeveralRoots) {
  auto options = kQuick;
  options.emplace_back("ranks_per_root", "2");
  with_group(5,
             [](int rank, TestGroup& group) {
               use_device(rank);
               Floats value{1};
               expect_done(group, Op(DRB_ALL_REDUCE).out(t(value, rank)));
               EXPECT_EQ(value, Floats{5});
             },
             {.eager = true, .options = options});
  EXPECT_EQ(calls("init_rank_scalable"), 5);
  EXPECT_EQ(calls("get_unique_id"), 3);
  EXPECT_EQ(roots_of_newest(), 3);
}

TEST_F(Group_, ALibraryWithoutScalableInitUsesOneRoot) {
  double_api().init_rank_scalable = nullptr;
  auto options = kQuick;
  options.emplace_back("ranks_per_root", "1");
  with_group(3, [](int, TestGroup&) {}, {.eager = true, .options = options});
  EXPECT_EQ(calls("init_rank"), 3);
  EXPECT_EQ(calls("get_unique_id"), 1);
}

TEST_F(Group_, CallsThatAreNotInProgressWorkAsWell) {
  set_polls(0);
  with_group(2, [](int rank, TestGroup& group) {
    use_device(rank);
    Floats value{1};
    expect_done(group, Op(DRB_ALL_REDUCE).out(t(value, rank)));
    EXPECT_EQ(value, Floats{2});
  });
}

TEST_F(Group_, ASynchronousCallIsInOrderWithTheCallersStream) {
  with_group(2, [](int rank, TestGroup& group) {
    use_device(rank);
    Stream stream = nullptr;
    double_api().stream_create(&stream, false);
    Floats value{0};
    float seen = 0;
    enqueue(stream, [&] {
      std::this_thread::sleep_for(20ms);
      value[0] = 5;
    });
    ASSERT_TRUE(group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.stream = stream}).ok());
    enqueue(stream, [&] { seen = value[0]; });
    ASSERT_TRUE(synchronize(stream));
    EXPECT_EQ(seen, 10);
    double_api().stream_destroy(stream);
  });
}

TEST_F(Group_, AnAsynchronousCallSeesWhatWasEnqueuedBeforeIt) {
  with_group(2, [](int rank, TestGroup& group) {
    use_device(rank);
    Floats value{0};
    enqueue(nullptr, [&] {
      std::this_thread::sleep_for(20ms);
      value[0] = 5;
    });
    TestWork work;
    ASSERT_TRUE(group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work).ok());
    ASSERT_TRUE(work.wait().ok());
    EXPECT_EQ(value, Floats{10});
  });
}

TEST_F(Group_, WaitingMakesTheStreamWaitAndNotTheHost) {
  std::atomic<bool> entered{false};
  with_group(2, [&](int rank, TestGroup& group) {
    use_device(rank);
    Floats value{1};
    float seen = 0;
    if (rank == 1) {
      // Rank 0's host is through with all of its calls, though this rank comes only now.
      ASSERT_TRUE(eventually([&] { return entered.load(); }));
    }
    TestWork work;
    ASSERT_TRUE(group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work).ok());
    ASSERT_TRUE(work.wait_on(nullptr).ok());
    enqueue(nullptr, [&] { seen = value[0]; });
    if (rank == 0) {
      EXPECT_EQ(work.state(), DRB_WORK_PENDING);
      entered = true;
    }
    ASSERT_TRUE(synchronize(nullptr));
    EXPECT_EQ(seen, 2);
    EXPECT_EQ(work.state(), DRB_WORK_DONE);
  });
}

TEST_F(Group_, WhatIsEnqueuedAfterAnAsynchronousCallRunsBesideIt) {
  std::atomic<bool> ran{false};
  with_group(2, [&](int rank, TestGroup& group) {
    use_device(rank);
    Floats value{1};
    TestWork work;
    if (rank == 1) {
      ASSERT_TRUE(eventually([&] { return ran.load(); }));
    }
    ASSERT_TRUE(group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work).ok());
    if (rank == 0) enqueue(nullptr, [&] { ran = true; });
    EXPECT_TRUE(work.wait().ok());
    EXPECT_TRUE(synchronize(nullptr));
  });
}

TEST_F(Group_, OperationsOnDifferentStreamsKeepTheirOrder) {
  with_group(2, [](int rank, TestGroup& group) {
    use_device(rank);
    Floats value{1};
    TestWork work;
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(
          group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work).ok());
      ASSERT_TRUE(group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank))).ok());
    }
    ASSERT_TRUE(synchronize(nullptr));
    EXPECT_EQ(value, Floats{1 << 20});
  });
}

// Rank 0's first operation waits for its stream; the second, on another, must not overtake it.
TEST_F(Group_, AnOperationOvertakesNoEarlierOneOnAnotherStream) {
  with_group(2, [](int rank, TestGroup& group) {
    use_device(rank);
    Stream slow = nullptr;
    double_api().stream_create(&slow, false);
    if (rank == 0) enqueue(slow, [] { std::this_thread::sleep_for(50ms); });
    Floats one{1};
    Floats two{1, 1};
    ASSERT_TRUE(
        group.submit(Op(DRB_ALL_REDUCE).out(t(one, rank)), {.async = true, .stream = slow}).ok());
    ASSERT_TRUE(group.submit(Op(DRB_ALL_REDUCE).out(t(two, rank))).ok());
    ASSERT_TRUE(synchronize(nullptr));
    EXPECT_EQ(one, Floats{2});
    EXPECT_EQ(two, (Floats{2, 2}));
    double_api().stream_destroy(slow);
  });
}

TEST_F(Group_, AWaitOnTheHostEndsAtItsTimeoutAndTheOperationGoesOn) {
  std::atomic<bool> waited{false};
  with_group(2, [&](int rank, TestGroup& group) {
    use_device(rank);
    Floats value{1};
    if (rank == 1) {
      ASSERT_TRUE(eventually([&] { return waited.load(); }));
    }
    TestWork work;
    ASSERT_TRUE(group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work).ok());
    if (rank == 0) {
      const Answer late = work.wait(20);
      EXPECT_EQ(late.status, DRB_TIMEOUT);
      expect_names(late, {"all_reduce #0", "20 ms", "goes on nevertheless"});
      waited = true;
    }
    EXPECT_TRUE(work.wait().ok());
    EXPECT_EQ(value, Floats{2});
  });
}

TEST_F(Group_, WhatIsPartOfAGraphIsNotWatched) {
  Faults::capturing();
  with_group(2, [&](int rank, TestGroup& group) {
    use_device(rank);
    Floats value{1};
    TestWork work;
    ASSERT_TRUE(
        group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.timeout_ms = 200}, &work).ok());
    drb_work_state state = DRB_WORK_PENDING;
    EXPECT_EQ(backend().work_test(work.raw(), &state), DRB_UNSUPPORTED);
    EXPECT_TRUE(work.wait_on(nullptr).ok());
    ASSERT_TRUE(synchronize(nullptr));
    EXPECT_TRUE(group.check().ok());  // though its deadline is over
  });
}

TEST_F(Group_, ABarrierReturnsWhenAllHaveCome) {
  std::atomic<int> there{0};
  with_group(3, [&](int rank, TestGroup& group) {
    use_device(rank);
    if (rank == 2) std::this_thread::sleep_for(30ms);
    ++there;
    ASSERT_TRUE(group.submit(Op(DRB_BARRIER)).ok());
    EXPECT_EQ(there, 3);
  });
}

TEST_F(Group_, BlockingWaitMakesSynchronousCallsBlock) {
  auto options = kQuick;
  options.emplace_back("blocking_wait", "1");
  with_group(2,
             [](int rank, TestGroup& group) {
               use_device(rank);
               Floats value{1};
               ASSERT_TRUE(group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank))).ok());
               EXPECT_EQ(value, Floats{2});
             },
             {.eager = true, .options = options});
}

TEST_F(Group_, TheStreamHasThePriorityAskedFor) {
  auto options = kQuick;
  options.emplace_back("high_priority", "1");
  with_group(1, [](int, TestGroup&) {}, {.eager = true, .options = options});
  EXPECT_EQ(priorities(0), std::vector<bool>{true});
}

TEST_F(Group_, AWorkOutlivesItsGroup) {
  run_ranks(2, [&](int rank) {
    Made made = make_group(backend(), store_,
                           {.rank = rank, .world_size = 2, .eager = true, .options = kQuick});
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    use_device(rank);
    Floats value{1};
    TestWork work;
    ASSERT_TRUE(
        made.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work).ok());
    ASSERT_TRUE(made.group.close().ok());
    EXPECT_EQ(work.state(), DRB_WORK_DONE);
    EXPECT_TRUE(work.wait().ok());
    EXPECT_EQ(value, Floats{2});
  });
}

TEST_F(Group_, SplitMakesGroupsOfOneColourInTheOrderOfTheirRanks) {
  with_group(4, [&](int rank, TestGroup& parent) {
    use_device(rank);
    Floats value{static_cast<float>(rank)};
    ASSERT_TRUE(parent.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}).ok());
    // Odd and even ranks, each in reverse; rank 3 stays out.
    const bool member = rank != 3;
    const int colour = member ? rank % 2 : DRB_NO_COLOUR;
    const int size = rank % 2 == 0 ? 2 : 1;
    Made made = split_group(backend(), store_, parent, colour,
                            {.rank = rank == 0 ? 1 : 0,
                             .world_size = size,
                             .name = "half" + std::to_string(rank % 2),
                             .options = kQuick});
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    EXPECT_EQ(static_cast<bool>(made.group), member);
    if (!member) return;
    Floats all(static_cast<std::size_t>(size));
    Floats mine{static_cast<float>(rank)};
    expect_done(made.group, Op(DRB_ALL_GATHER).in(t(mine, rank)).out(t(all, rank)));
    EXPECT_EQ(all, (rank == 1 ? Floats{1} : Floats{2, 0}));
    EXPECT_TRUE(made.group.close().ok());
  });
  EXPECT_EQ(calls("init_rank"), 4);  // the children needed none
}

TEST_F(Group_, SplitOfALazyGroupConnectsIt) {
  with_group(2,
             [&](int rank, TestGroup& parent) {
               Made made =
                   split_group(backend(), store_, parent, 0,
                               {.rank = rank, .world_size = 2, .name = "c", .options = kQuick});
               ASSERT_TRUE(made.answer.ok()) << made.answer.text;
               EXPECT_TRUE(made.group.close().ok());
             },
             {.options = kQuick});
}

TEST_F(Group_, SplitAndShrinkThatTheLibraryLacksAreRefusedInWords) {
  double_api().split = nullptr;
  double_api().shrink = nullptr;
  with_group(1, [&](int, TestGroup& parent) {
    const GroupSpec spec{.name = "c", .options = kQuick};
    expect_names(split_group(backend(), store_, parent, 0, spec).answer, {"ncclCommSplit", "2.18"});
    const Answer shrink = shrink_group(backend(), store_, parent, {0}, false, spec).answer;
    EXPECT_EQ(shrink.status, DRB_UNSUPPORTED);
    expect_names(shrink, {"ncclCommShrink", "2.27"});
  });
}

TEST_F(Group_, ShrinkClosesTheGapsThatExcludedRanksLeave) {
  run_ranks(3, [&](int rank) {
    Made parent = make_group(backend(), store_,
                             {.rank = rank, .world_size = 3, .eager = true, .options = kQuick});
    ASSERT_TRUE(parent.answer.ok()) << parent.answer.text;
    use_device(rank);
    if (rank != 1) {
      Made made = shrink_group(
          backend(), store_, parent.group, {1}, false,
          {.rank = rank == 0 ? 0 : 1, .world_size = 2, .name = "s", .options = kQuick});
      ASSERT_TRUE(made.answer.ok()) << made.answer.text;
      Floats value{1};
      expect_done(made.group, Op(DRB_ALL_REDUCE).out(t(value, rank)));
      EXPECT_EQ(value, Floats{2});
      EXPECT_TRUE(made.group.close().ok());
    }
    EXPECT_TRUE(parent.group.close().ok());
  });
}

TEST_F(Group_, MemoryRegisteredBeforeTheFirstOperationIsToldToNcclThen) {
  with_group(2,
             [&](int rank, TestGroup& group) {
               use_device(rank);
               Floats value{1};
               Floats more(4);
               drb_registration* early = nullptr;
               drb_registration* late = nullptr;
               ASSERT_EQ(backend().register_memory(group.raw(), value.data(), 4, &early), DRB_OK);
               EXPECT_EQ(calls("register_memory"), 0);
               ASSERT_TRUE(group.submit(Op(DRB_BARRIER)).ok());
               ASSERT_EQ(backend().register_memory(group.raw(), more.data(), 16, &late), DRB_OK);
               ASSERT_EQ(backend().deregister_memory(group.raw(), early), DRB_OK);
               EXPECT_EQ(backend().deregister_memory(group.raw(), early), DRB_ARGUMENT);
               ASSERT_TRUE(group.submit(Op(DRB_BARRIER)).ok());
               // `late` is left for close().
             },
             {.options = kQuick});
  EXPECT_EQ(calls("register_memory"), 4);
  EXPECT_EQ(calls("deregister_memory"), 4);
}

TEST_F(Group_, AllocatesFromNcclWhereItCan) {
  void* data = nullptr;
  ASSERT_EQ(backend().allocate(64, &data), DRB_OK);
  EXPECT_EQ(backend().deallocate(data), DRB_OK);
}

TEST_F(Group_, ProgressCountsWhatWasSubmittedAndWhatIsDone) {
  with_group(2, [&](int rank, TestGroup& group) {
    use_device(rank);
    drb_progress progress{
        .size = sizeof(drb_progress), .reserved = 0, .submitted = 0, .completed = 0};
    ASSERT_EQ(backend().progress(group.raw(), &progress), DRB_OK);
    EXPECT_EQ(progress.submitted, -1);
    ASSERT_TRUE(group.submit(Op(DRB_BARRIER)).ok());
    ASSERT_TRUE(group.submit(Op(DRB_BARRIER)).ok());
    EXPECT_TRUE(eventually([&] {
      return backend().progress(group.raw(), &progress) == DRB_OK && progress.completed == 1;
    }));
    EXPECT_EQ(progress.submitted, 1);
  });
}

TEST_F(Group_, TheStoreIsGivenBack) {
  with_group(2, [](int, TestGroup&) {});
  EXPECT_TRUE(eventually([&] { return store_.clones() == 0; }));
}

TEST(Backend, SaysWhatItIs) {
  reset_double();
  const drb_backend& backend = *backend_over(double_api());
  EXPECT_EQ(backend.abi, DRB_ABI);
  EXPECT_STREQ(backend.name, "nccl");
  EXPECT_STREQ(backend.devices, "cuda");
  char text[200];
  EXPECT_EQ(backend.probe(text, sizeof text), DRB_OK);
  EXPECT_STREQ(text, "8 GPUs; NCCL 2.28.9, CUDA runtime 13.0, driver 13.0");
}

TEST(Backend, ProbeSaysWhyNot) {
  reset_double();
  const drb_backend& backend = *backend_over(double_api());
  char text[200];
  set_no_driver();
  EXPECT_EQ(backend.probe(text, sizeof text), DRB_UNSUPPORTED);
  EXPECT_STREQ(text,
               "no use of a GPU here: CUDA driver version is insufficient for CUDA runtime version "
               "(there is no driver); NCCL 2.28.9, CUDA runtime 13.0, driver none");
  reset_double();
  set_devices(0);
  EXPECT_EQ(backend.probe(text, 16), DRB_UNSUPPORTED);
  EXPECT_STREQ(text, "no GPU is visib");
}

}  // namespace
}  // namespace distrun::nccl::testing
