// What a group does when something goes wrong: who is named, that everybody is released, and that
// each communicator is aborted once.
#include "tests/runtime/nccl/group_fixture.h"

#include <atomic>
#include <latch>

namespace distrun::nccl::testing {
namespace {

using namespace std::chrono_literals;
using Floats = std::vector<float>;

drb_tensor t(Floats& values, int device) {
  return tensor(values.data(), values.size(), device);
}

class GroupFault : public GroupTest {
 protected:
  GroupSpec spec(int rank, int world_size) {
    return {.rank = rank, .world_size = world_size, .eager = true, .options = kQuick};
  }
  Made make(GroupSpec its) { return make_group(backend(), store_, std::move(its)); }
};

TEST_F(GroupFault, ARankThatDoesNotComeIsNamedOnAllRanks) {
  std::latch over(3);
  run_ranks(3, [&](int rank) {
    Made made = make(spec(rank, 3));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    use_device(rank);
    Floats value{1};
    ASSERT_TRUE(made.group.submit(Op(DRB_BARRIER)).ok());
    if (rank == 2) {
      over.arrive_and_wait();  // busy elsewhere
    } else {
      TestWork work;
      ASSERT_TRUE(made.group
                      .submit(Op(DRB_ALL_REDUCE).out(t(value, rank)),
                              {.async = true, .timeout_ms = 2000}, &work)
                      .ok());
      const Answer answer = work.wait();
      EXPECT_EQ(answer.status, DRB_TIMEOUT);
      EXPECT_EQ(answer.culprit, 2);
      expect_names(
          answer, {"nccl group g (this is rank ", "all_reduce #1 (float32, 1 element)",
                   "not done within 2 s", "rank 2 has not entered all_reduce #1", "is barrier #0"});
      EXPECT_EQ(work.state(), DRB_WORK_FAILED);
      over.arrive_and_wait();
    }
    const Answer closed = made.group.close();
    expect_names(closed, {"all_reduce #1"});
  });
  EXPECT_EQ(calls("abort"), 3);
  EXPECT_EQ(calls("destroy"), 0);
}

TEST_F(GroupFault, ARankThatIsGoneIsNamed) {
  run_ranks(2, [&](int rank) {
    Made made = make(spec(rank, 2));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    use_device(rank);
    if (rank == 1) {
      // Dead, as far as the others can see: it neither comes nor answers.
      Made& dead = *new Made(std::move(made));
      std::this_thread::sleep_for(10ms);
      dead.group.abort("dead");
      dead.group.close();
      delete &dead;
      return;
    }
    Floats value{1};
    TestWork work;
    const Answer submitted =
        made.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work);
    const Answer answer = submitted.ok() ? work.wait() : submitted;
    expect_names(answer, {"on rank 1: aborted: dead"});
    made.group.close();
  });
}

TEST_F(GroupFault, WhatWasDoneBeforeStaysDone) {
  run_ranks(2, [&](int rank) {
    Made made = make(spec(rank, 2));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    use_device(rank);
    Floats value{1};
    TestWork work;
    ASSERT_TRUE(
        made.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work).ok());
    ASSERT_TRUE(work.wait().ok());
    made.group.abort("enough");
    EXPECT_EQ(work.state(), DRB_WORK_DONE);
    EXPECT_TRUE(work.wait().ok());
    made.group.close();
  });
}

TEST_F(GroupFault, WhatWasDoneUnseenIsDoneToo) {
  run_ranks(1, [&](int rank) {
    GroupSpec its = spec(rank, 1);
    its.options.emplace_back("watchdog_ms", "60000");
    Made made = make(its);
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    Floats value{1};
    TestWork work;
    ASSERT_TRUE(
        made.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work).ok());
    ASSERT_TRUE(work.wait_on(nullptr).ok());
    ASSERT_TRUE(synchronize(nullptr));
    made.group.abort("enough");
    EXPECT_EQ(work.state(), DRB_WORK_DONE);
    made.group.close();
  });
}

// Aborting stops kernels in the middle, and the events behind them fire.
TEST_F(GroupFault, AnAbortedOperationNeverCountsAsDone) {
  Faults::slow_abort(30ms);
  run_ranks(2, [&](int rank) {
    Made made = make(spec(rank, 2));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    use_device(rank);
    if (rank == 0) {
      Floats value{1};
      TestWork work;
      ASSERT_TRUE(
          made.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work).ok());
      made.group.abort("enough", 1);
      while (work.state() == DRB_WORK_PENDING) std::this_thread::yield();
      EXPECT_EQ(work.state(), DRB_WORK_FAILED);
      const Answer answer = work.wait();
      EXPECT_EQ(answer.status, DRB_BACKEND);
      EXPECT_EQ(answer.culprit, 1);
      EXPECT_FALSE(work.wait_on(nullptr).ok());
    }
    made.group.close();
  });
}

TEST_F(GroupFault, AnAsynchronousErrorOfNcclEndsTheGroupEverywhere) {
  run_ranks(2, [&](int rank) {
    Made made = make(spec(rank, 2));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    use_device(rank);
    if (rank == 0) Faults::asynchronous_error(0, NcclResult::remote_error);
    EXPECT_TRUE(eventually([&] { return !made.group.check().ok(); }));
    expect_names(made.group.check(),
                 {"on rank 0: NCCL reports: remote process exited or there was a network error"});
    Floats value{1};
    expect_names(made.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank))), {"NCCL reports"});
    made.group.close();
  });
  EXPECT_EQ(calls("abort"), 2);
}

TEST_F(GroupFault, ADeviceErrorNamesTheOperation) {
  run_ranks(1, [&](int rank) {
    Made made = make(spec(rank, 1));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    Faults::fail("event_query", 700);
    Floats value{1};
    TestWork work;
    // Not asked for by us: the watchdog is to see it.
    ASSERT_TRUE(
        made.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work).ok());
    EXPECT_TRUE(eventually([&] { return !made.group.check().ok(); }));
    expect_names(made.group.check(),
                 {"all_reduce #0", "the device reports: an illegal memory access"});
    made.group.close();
  });
}

TEST_F(GroupFault, AnErrorOfTheCallItselfNamesItAndFailsTheGroup) {
  Faults::fail("all_reduce", static_cast<int>(NcclResult::unhandled_cuda_error), 0);
  run_ranks(2, [&](int rank) {
    Made made = make(spec(rank, 2));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    use_device(rank);
    Floats value{1};
    TestWork work;
    const Answer submitted =
        made.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work);
    const Answer answer = submitted.ok() ? work.wait() : submitted;
    expect_names(answer,
                 {"on rank 0: all_reduce #0", "handing it to the device: unhandled cuda error"});
    made.group.close();
  });
  EXPECT_EQ(calls("abort"), 2);
}

TEST_F(GroupFault, AnErrorInsideAGroupOfCallsStillEndsIt) {
  Faults::fail("broadcast", static_cast<int>(NcclResult::invalid_argument));
  run_ranks(1, [&](int rank) {
    Made made = make(spec(rank, 1));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    Floats value{1};
    std::vector<Op> ops;
    ops.push_back(Op(DRB_ALL_REDUCE).out(t(value, rank)));
    ops.push_back(Op(DRB_BROADCAST).out(t(value, rank)));
    expect_names(made.group.submit_all(std::move(ops)), {"2 coalesced", "invalid argument"});
    made.group.close();
  });
  EXPECT_EQ(calls("group_end"), calls("group_start"));
}

TEST_F(GroupFault, ACudaCallThatFailsIsNamed) {
  Faults::fail("event_record", 700);
  run_ranks(1, [&](int rank) {
    Made made = make(spec(rank, 1));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    Floats value{1};
    expect_names(made.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank))),
                 {"all_reduce #0", "cudaEventRecord: an illegal memory access"});
    made.group.close();
  });
}

TEST_F(GroupFault, BadArgumentsHurtNobody) {
  with_group(2, [](int rank, TestGroup& group) {
    use_device(rank);
    Floats value{1};
    EXPECT_EQ(group.submit(Op(DRB_BROADCAST).out(t(value, rank)).root(9)).status, DRB_ARGUMENT);
    EXPECT_EQ(group.submit(Op(DRB_RECV).out(t(value, rank)).peer(DRB_ANY_RANK)).status,
              DRB_UNSUPPORTED);
    EXPECT_EQ(group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.timeout_ms = -1}).status,
              DRB_ARGUMENT);
    TestWork work;
    ASSERT_TRUE(group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {}, &work).ok());
    EXPECT_EQ(work.sequence(), 0);  // those above have taken no number
    EXPECT_TRUE(work.wait().ok());
  });
}

TEST_F(GroupFault, WhatTheDeviceHasNotBegunSaysSo) {
  std::latch release(1);
  run_ranks(1, [&](int rank) {
    Made made = make(spec(rank, 1));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    enqueue(nullptr, [&] { release.wait(); });  // a kernel of the program's own hangs
    Floats value{1};
    TestWork work;
    ASSERT_TRUE(
        made.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.timeout_ms = 100}, &work).ok());
    expect_names(work.wait(), {"all_reduce #0", "the device has not begun it"});
    release.count_down();
    made.group.close();
    ASSERT_TRUE(synchronize(nullptr));
  });
}

TEST_F(GroupFault, ARankThatNeverConnectsIsNamed) {
  run_ranks(2, [&](int rank) {
    if (rank == 1) return;
    GroupSpec its = spec(rank, 2);
    its.timeout_ms = 200;
    its.options.emplace_back("diagnosis_ms", "50");
    const Made made = make(its);
    EXPECT_EQ(made.answer.status, DRB_TIMEOUT);
    EXPECT_EQ(made.answer.culprit, 1);
    expect_names(made.answer, {"on rank 0: create: connecting the ranks",
                               "NCCL is still at it after ", "rank 1 does not answer"});
  });
  EXPECT_EQ(calls("abort"), 1);
}

TEST_F(GroupFault, AnIdThatIsNeverPublishedNamesWhoseItIs) {
  run_ranks(2, [&](int rank) {
    if (rank == 0) return;
    GroupSpec its = spec(rank, 2);
    its.timeout_ms = 200;
    its.options.emplace_back("diagnosis_ms", "50");
    const Made made = make(its);
    EXPECT_EQ(made.answer.status, DRB_TIMEOUT);
    expect_names(made.answer, {"rank 0 has not published NCCL's id (key nccl/id/all/0)"});
  });
  EXPECT_EQ(calls("abort"), 0);
}

TEST_F(GroupFault, LibrariesOfDifferentVersionsAreRefused) {
  store_.set("g/nccl/id/all/0", "distrun-nccl-id 1 22703 " + std::string(128, 'x'));
  GroupSpec its = spec(1, 2);
  its.options.emplace_back("diagnosis_ms", "50");
  expect_names(make(its).answer,
               {"rank 0 has NCCL 2.27.3, this rank 2.28.9: all ranks need the same"});
}

TEST_F(GroupFault, AnIdOfSomethingElseIsRefused) {
  store_.set("g/nccl/id/all/0", "what is this");
  GroupSpec its = spec(1, 2);
  its.options.emplace_back("diagnosis_ms", "50");
  expect_names(make(its).answer, {"nccl/id/all/0 holds no id of NCCL's"});
}

// The rank that still connects is released by the others' failure, long before its own timeout.
TEST_F(GroupFault, WhoStillConnectsHearsOfTheFailureOfOthers) {
  const auto began = std::chrono::steady_clock::now();
  run_ranks(3, [&](int rank) {
    if (rank == 2) return;
    GroupSpec its = spec(rank, 3);
    its.options.emplace_back("diagnosis_ms", "50");
    its.timeout_ms = rank == 0 ? 200 : 60'000;
    expect_names(make(its).answer, {"on rank 0: create: connecting the ranks"});
  });
  EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);
  EXPECT_EQ(calls("abort"), 2);
}

TEST_F(GroupFault, AnErrorWhileConnectingIsTold) {
  Faults::fail("init_rank", static_cast<int>(NcclResult::system_error), 1);
  run_ranks(2, [&](int rank) {
    GroupSpec its = spec(rank, 2);
    its.timeout_ms = 5000;
    const Made made = make(its);
    expect_names(made.answer, {"on rank 1: create: connecting the ranks: unhandled system error"});
  });
}

TEST_F(GroupFault, TwoRanksOnOneDeviceAreToldByNccl) {
  run_ranks(2, [&](int rank) {
    GroupSpec its = spec(rank, 2);
    its.device = 0;
    expect_names(make(its).answer, {"invalid usage"});
  });
}

TEST_F(GroupFault, AStoreThatIsGoneDoesNotKeepAGroupFromEnding) {
  run_ranks(1, [&](int rank) {
    Made made = make(spec(rank, 1));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    store_.break_down();
    std::this_thread::sleep_for(30ms);
    EXPECT_TRUE(made.group.submit(Op(DRB_BARRIER)).ok());  // operations do not need it
    made.group.abort("enough");
    expect_names(made.group.check(),
                 {"aborted: enough", "could not be told", "the server is gone"});
    made.group.close();
  });
}

TEST_F(GroupFault, ClosingWaitsForAllRanksAndNotForEver) {
  run_ranks(2, [&](int rank) {
    Made made = make(spec(rank, 2));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    const Answer answer = rank == 0 ? made.group.close(200) : Answer{};
    if (rank == 0) {
      EXPECT_EQ(answer.status, DRB_TIMEOUT);
      expect_names(answer, {"on rank 0: destroy: closing: NCCL is still at it"});
      return;
    }
    EXPECT_TRUE(eventually([&] { return !made.group.check().ok(); }));
    made.group.close();
  });
  EXPECT_EQ(calls("abort"), 2);
}

TEST_F(GroupFault, AnEnqueueThatNeverEndsIsGivenUpAtTheDeadline) {
  run_ranks(1, [&](int rank) {
    Made made = make(spec(rank, 1));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    Faults::never_ready("enqueue", 0);
    Floats value{1};
    const Answer answer =
        made.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.timeout_ms = 100});
    EXPECT_EQ(answer.status, DRB_TIMEOUT);
    expect_names(answer, {"all_reduce #0", "handing it to the device: NCCL is still at it"});
    made.group.close();
  });
  EXPECT_EQ(calls("abort"), 1);
}

TEST_F(GroupFault, AnAbortThatHangsKeepsNobodyForEver) {
  std::latch release(1);
  Faults::hold_aborts(release);
  run_ranks(2, [&](int rank) {
    GroupSpec its = spec(rank, 2);
    its.options.emplace_back("abort_patience_ms", "0");
    its.options.emplace_back("diagnosis_ms", "0");
    Made made = make(its);
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    use_device(rank);
    if (rank == 0) {
      Floats value{1};
      TestWork work;
      ASSERT_TRUE(
          made.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work).ok());
      made.group.abort("enough");
      expect_names(work.wait(), {"aborted: enough", "ncclCommAbort does not come back"});
      release.count_down();
    }
    EXPECT_TRUE(eventually([&] { return !made.group.check().ok(); }));
    made.group.close();
  });
  // A thread that aborts may have been left to itself; it tidies up when it is through.
}

TEST_F(GroupFault, WorkAbortEndsTheGroupWithTheOperationsName) {
  run_ranks(2, [&](int rank) {
    Made made = make(spec(rank, 2));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    use_device(rank);
    if (rank == 0) {
      Floats value{1};
      TestWork work;
      ASSERT_TRUE(
          made.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work).ok());
      EXPECT_EQ(backend().work_abort(work.raw(), "no longer wanted"), DRB_OK);
      expect_names(work.wait(), {"aborted: all_reduce #0", "no longer wanted"});
    }
    EXPECT_TRUE(eventually([&] { return !made.group.check().ok(); }));
    made.group.close();
  });
}

TEST_F(GroupFault, ShrinkWithAbortEndsWhatHangsAndGoesOnWithTheRest) {
  std::latch shrunk(2);
  run_ranks(3, [&](int rank) {
    Made parent = make(spec(rank, 3));
    ASSERT_TRUE(parent.answer.ok()) << parent.answer.text;
    use_device(rank);
    if (rank == 2) {
      shrunk.wait();
      parent.group.abort("dead");
      parent.group.close();
      return;
    }
    Floats value{1};
    TestWork hanging;
    ASSERT_TRUE(
        parent.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &hanging)
            .ok());
    Made made = shrink_group(backend(), store_, parent.group, {2}, true,
                             {.rank = rank, .world_size = 2, .name = "s", .options = kQuick});
    shrunk.count_down();
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    expect_names(hanging.wait(), {"given up for a smaller group"});
    Floats sum{1};
    TestWork work;
    ASSERT_TRUE(made.group.submit(Op(DRB_ALL_REDUCE).out(t(sum, rank)), {}, &work).ok());
    EXPECT_TRUE(work.wait().ok());
    EXPECT_EQ(sum, Floats{2});
    EXPECT_TRUE(made.group.close().ok());
    parent.group.close();
  });
}

TEST_F(GroupFault, ASplitThatNotAllComeToFails) {
  run_ranks(2, [&](int rank) {
    Made parent = make(spec(rank, 2));
    ASSERT_TRUE(parent.answer.ok()) << parent.answer.text;
    if (rank == 0) {
      const Made made = split_group(
          backend(), store_, parent.group, 0,
          {.rank = 0, .world_size = 1, .timeout_ms = 200, .name = "c", .options = kQuick});
      EXPECT_EQ(made.answer.status, DRB_TIMEOUT);
      expect_names(made.answer, {"on rank 0: split: making a communicator from another"});
    }
    EXPECT_TRUE(eventually([&] { return !parent.group.check().ok(); }));
    parent.group.close();
  });
}

TEST_F(GroupFault, ThreadsMaySubmitAtOnce) {
  run_ranks(1, [&](int rank) {
    Made made = make(spec(rank, 1));
    ASSERT_TRUE(made.answer.ok()) << made.answer.text;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        Floats value{1};
        for (int k = 0; k < 50; ++k) {
          TestWork work;
          EXPECT_TRUE(
              made.group.submit(Op(DRB_ALL_REDUCE).out(t(value, rank)), {.async = true}, &work)
                  .ok());
          EXPECT_TRUE(work.wait().ok());
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(made.group.close().ok());
  });
}

TEST_F(GroupFault, OptionsThatCannotBeAreRefusedBeforeAnythingIsDone) {
  const auto refused = [&](GroupSpec its) { return make(std::move(its)).answer; };
  GroupSpec its = spec(2, 2);
  expect_names(refused(its), {"rank 2 of a group of 2"});
  its = spec(0, 2);
  its.device = -1;
  expect_names(refused(its), {"an eager group needs a device"});
  its = spec(0, 2);
  its.timeout_ms = 0;
  expect_names(refused(its), {"timeout must be greater than 0"});
  its = spec(0, 2);
  its.options.emplace_back("typo", "1");
  expect_names(refused(its), {"nccl has no option typo"});
  drb_group* group = nullptr;
  EXPECT_EQ(backend().create(nullptr, &group), DRB_ARGUMENT);
  EXPECT_EQ(calls("init_rank"), 0);
}

}  // namespace
}  // namespace distrun::nccl::testing
