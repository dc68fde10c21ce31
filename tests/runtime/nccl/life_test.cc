#include "runtime/nccl/core/life.h"

#include <gtest/gtest.h>

namespace distrun::nccl {
namespace {

using namespace std::chrono_literals;

const TimePoint t0{};

Life ready_life() {
  Life life;
  life.begin(Step::join, t0, t0 + 1s);
  life.answer(NcclResult::success, "", t0);
  return life;
}

TEST(Life, JoiningIsPolledWithPausesUntilItIsReady) {
  Life life;
  EXPECT_EQ(life.begin(Step::join, t0, t0 + 10s).todo, Todo::call);
  EXPECT_EQ(life.answer(NcclResult::in_progress, "", t0).todo, Todo::poll_later);
  EXPECT_EQ(life.answer(NcclResult::in_progress, "", t0 + 2ms).todo, Todo::poll_later);
  EXPECT_EQ(life.answer(NcclResult::success, "", t0 + 4ms).todo, Todo::done);
  EXPECT_EQ(life.phase(), Phase::ready);
}

TEST(Life, AnEnqueueIsPolledWithoutPausesAtFirst) {
  Life life = ready_life();
  life.begin(Step::enqueue, t0, t0 + 10s);
  EXPECT_EQ(life.answer(NcclResult::in_progress, "", t0).todo, Todo::poll_soon);
  EXPECT_EQ(life.answer(NcclResult::in_progress, "", t0 + 9ms).todo, Todo::poll_soon);
  EXPECT_EQ(life.answer(NcclResult::in_progress, "", t0 + 10ms).todo, Todo::poll_later);
}

TEST(Life, WhatIsStillInProgressAtTheDeadlineHasFailed) {
  Life life;
  life.begin(Step::join, t0, t0 + 5s);
  EXPECT_EQ(life.answer(NcclResult::in_progress, "", t0 + 4999ms).todo, Todo::poll_later);
  const Order order = life.answer(NcclResult::in_progress, "", t0 + 5s);
  EXPECT_EQ(order.todo, Todo::fail);
  EXPECT_TRUE(order.timed_out);
  EXPECT_EQ(order.why, "connecting the ranks: NCCL is still at it after 5 s");
  EXPECT_EQ(life.phase(), Phase::failed);
}

TEST(Life, SuccessAtTheDeadlineIsSuccess) {
  Life life;
  life.begin(Step::join, t0, t0 + 5s);
  EXPECT_EQ(life.answer(NcclResult::success, "", t0 + 6s).todo, Todo::done);
}

TEST(Life, AnErrorFailsItWithNcclsWords) {
  Life life = ready_life();
  life.begin(Step::enqueue, t0, t0 + 1s);
  const Order order = life.answer(NcclResult::system_error, "unhandled system error", t0);
  EXPECT_EQ(order.todo, Todo::fail);
  EXPECT_FALSE(order.timed_out);
  EXPECT_EQ(order.why, "handing it to the device: unhandled system error");
}

TEST(Life, IsAbortedByOneOnly) {
  Life life = ready_life();
  EXPECT_FALSE(life.start_abort());
  life.fail("the watchdog");
  EXPECT_TRUE(life.start_abort());
  EXPECT_FALSE(life.start_abort());
  EXPECT_EQ(life.phase(), Phase::aborted);
}

TEST(Life, KeepsTheFirstReasonAndRefusesWithIt) {
  Life life = ready_life();
  life.fail("first");
  life.fail("second");
  const Order order = life.begin(Step::enqueue, t0, t0 + 1s);
  EXPECT_EQ(order.todo, Todo::refuse);
  EXPECT_EQ(order.why, "first");
  life.start_abort();
  EXPECT_EQ(life.begin(Step::close, t0, t0 + 1s).why, "first");
}

TEST(Life, AnAnswerThatComesAfterAFailureChangesNothing) {
  Life life = ready_life();
  life.begin(Step::enqueue, t0, t0 + 1s);
  life.fail("another rank failed");
  EXPECT_EQ(life.answer(NcclResult::success, "", t0).todo, Todo::refuse);
  EXPECT_EQ(life.phase(), Phase::failed);
}

TEST(Life, WhatFailedBeforeItWasMadeIsNeverMade) {
  Life life;
  life.fail("too late");
  EXPECT_EQ(life.begin(Step::join, t0, t0 + 1s).todo, Todo::refuse);
}

TEST(Life, ClosingEndsInDestroyAndNothingIsAbortedAfterIt) {
  Life life = ready_life();
  EXPECT_EQ(life.begin(Step::close, t0, t0 + 1s).todo, Todo::call);
  EXPECT_EQ(life.answer(NcclResult::in_progress, "", t0).todo, Todo::poll_later);
  EXPECT_EQ(life.answer(NcclResult::success, "", t0).todo, Todo::destroy);
  life.fail("too late");
  EXPECT_FALSE(life.start_abort());
  EXPECT_EQ(life.phase(), Phase::closed);
  EXPECT_EQ(life.begin(Step::enqueue, t0, t0 + 1s).todo, Todo::refuse);
}

TEST(Life, WhatWasNeverMadeIsClosedWithoutACall) {
  Life life;
  EXPECT_EQ(life.begin(Step::close, t0, t0 + 1s).todo, Todo::refuse);
  EXPECT_EQ(life.phase(), Phase::closed);
}

TEST(Life, DerivingIsPolledWithPausesAndEndsReady) {
  Life life = ready_life();
  life.begin(Step::derive, t0, t0 + 1s);
  EXPECT_EQ(life.answer(NcclResult::in_progress, "", t0).todo, Todo::poll_later);
  EXPECT_EQ(life.answer(NcclResult::success, "", t0).todo, Todo::done);
  EXPECT_EQ(life.phase(), Phase::ready);
}

}  // namespace
}  // namespace distrun::nccl
