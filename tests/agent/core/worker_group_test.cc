// What the transcripts of tests/scenario do not tell: limits, stale words, each step failing in
// turn.
#include "agent/core/worker_group.h"

#include "agent/core/invariants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>

namespace distrun::agent {
namespace {

using namespace std::chrono_literals;
constexpr TimePoint t0{1h};
constexpr Generation kRound{3};

// A group that checks itself after every event.
class Checked {
 public:
  explicit Checked(GroupLimits limits) : group_(limits) {}

  GroupEffects handle(const GroupEvent& event, TimePoint now) {
    const GroupState before = group_.state();
    GroupEffects effects = group_.handle(event, now);
    EXPECT_EQ(broken_step(before, group_.state(), effects, now), "");
    EXPECT_EQ(broken_invariant(group_.state(), group_.limits()), "");
    return effects;
  }
  void spawn_all(TimePoint now) {
    handle(Start{}, now);
    for (int i = 0; i < group_.limits().nproc; ++i) {
      handle(SpawnDone{kRound, LocalRank{i}, 100 + i}, now);
    }
  }
  void exited(int local_rank, ExitStatus status, TimePoint now) {
    handle(Exited{kRound, {{LocalRank{local_rank}, status}}}, now);
  }
  void all_is_gone(TimePoint now) {
    handle(LeftoversGone{kRound, group_.state().leftovers_request}, now);
  }
  const WorkerGroup* operator->() const { return &group_; }

 private:
  WorkerGroup group_;
};

GroupLimits limits(int nproc) {
  GroupLimits limits;
  limits.generation = kRound;
  limits.nproc = nproc;
  return limits;
}

template <class E>
long count(const GroupEffects& effects) {
  return std::count_if(effects.begin(), effects.end(),
                       [](const auto& e) { return std::holds_alternative<E>(e); });
}

TEST(WorkerGroup, SpawnsTheNextWorkerOnlyWhenTheLastIsThere) {
  Checked group(limits(2));
  EXPECT_EQ(count<Spawn>(group.handle(Start{}, t0)), 1);
  EXPECT_EQ(count<Spawn>(group.handle(Notify{SIGUSR1}, t0)), 0);
  EXPECT_EQ(count<Spawn>(group.handle(SpawnDone{kRound, LocalRank{0}, 100}, t0)), 1);
}

// The script that succeeds, with each of its spawns failing in turn.
TEST(WorkerGroup, EachSpawnMayFail) {
  constexpr int kWorkers = 3;
  for (int failing = 0; failing < kWorkers; ++failing) {
    Checked group(limits(kWorkers));
    group.handle(Start{}, t0);
    for (int i = 0; i < failing; ++i) group.handle(SpawnDone{kRound, LocalRank{i}, 100 + i}, t0);
    group.handle(SpawnFailed{kRound, LocalRank{failing}, ExecStage::fork, EPERM}, t0);
    for (int i = 0; i < failing; ++i) group.exited(i, KilledBy{SIGTERM}, t0);
    group.all_is_gone(t0);
    EXPECT_EQ(group->state().phase, GroupPhase::stopped) << "spawn " << failing;
    EXPECT_EQ(group->verdict().first_failure->local_rank, LocalRank{failing});
    EXPECT_TRUE(group->verdict().failed_at_start);
  }
}

TEST(WorkerGroup, AShortageAtTheStartIsNoFailureThatWouldComeAgain) {
  Checked group(limits(1));
  group.handle(Start{}, t0);
  group.handle(SpawnFailed{kRound, LocalRank{0}, ExecStage::fork, EAGAIN}, t0);
  group.all_is_gone(t0);
  EXPECT_FALSE(group->verdict().failed_at_start);
}

TEST(WorkerGroup, AFailureAtAnyStageOfExecEndsIt) {
  for (int stage = 0; stage <= static_cast<int>(ExecStage::exec); ++stage) {
    Checked group(limits(1));
    group.handle(Start{}, t0);
    group.handle(SpawnFailed{kRound, LocalRank{0}, static_cast<ExecStage>(stage), EPERM}, t0);
    group.all_is_gone(t0);
    EXPECT_EQ(group->state().phase, GroupPhase::stopped)
        << to_string(static_cast<ExecStage>(stage));
  }
}

TEST(WorkerGroup, WordsAboutAnotherRoundAreIgnored) {
  constexpr Generation kOld{2};
  Checked group(limits(1));
  group.spawn_all(t0);
  const GroupState before = group->state();
  group.handle(Exited{kOld, {{LocalRank{0}, ExitedWith{1}}}}, t0);
  group.handle(SpawnDone{kOld, LocalRank{0}, 7}, t0);
  group.handle(SpawnFailed{kOld, LocalRank{0}, ExecStage::exec, ENOENT}, t0);
  group.handle(LeftoversGone{kOld, 0}, t0);
  EXPECT_EQ(group->state(), before);
}

TEST(WorkerGroup, AnAnswerFromBeforeTheLastExitDoesNotCount) {
  Checked group(limits(1));
  group.spawn_all(t0);
  group.handle(Stop{StopWhy::operator_signal, SIGTERM}, t0);
  group.handle(Escalate{}, t0);  // the first look
  group.all_is_gone(t0);         // answered while the worker could still fork
  group.exited(0, KilledBy{SIGKILL}, t0);
  EXPECT_EQ(group->state().phase, GroupPhase::stopping);
  group.all_is_gone(t0);
  EXPECT_EQ(group->state().phase, GroupPhase::stopped);
}

TEST(WorkerGroup, ZeroGraceKillsAtTheNextTick) {
  GroupLimits impatient = limits(1);
  impatient.grace = 0s;
  Checked group(impatient);
  group.spawn_all(t0);
  group.handle(Stop{StopWhy::operator_signal, SIGTERM}, t0);
  EXPECT_EQ(group->next_deadline(), t0);
  group.handle(Tick{}, t0);
  EXPECT_EQ(group->state().workers[0].signalled, SIGKILL);
}

TEST(WorkerGroup, ATickTooManyDoesNoHarm) {
  Checked group(limits(2));
  group.handle(Tick{}, t0);
  group.spawn_all(t0);
  group.handle(Stop{StopWhy::membership, SIGTERM}, t0 + 10s);
  const GroupState before = group->state();
  group.handle(Tick{}, t0 + 11s);
  EXPECT_EQ(group->state(), before);
}

TEST(WorkerGroup, NothingIsPendingWhileAllIsWell) {
  Checked group(limits(2));
  group.spawn_all(t0);
  EXPECT_EQ(group->next_deadline(), std::nullopt);
}

TEST(WorkerGroup, ASpawnThatNeverAnswersIsAbandoned) {
  Checked group(limits(1));
  group.handle(Start{}, t0);
  group.handle(Stop{StopWhy::operator_signal, SIGTERM}, t0);
  group.handle(Tick{}, t0 + 30s);
  group.handle(Tick{}, t0 + 30s + kPatience);
  ASSERT_EQ(group->verdict().abandoned.size(), 1u);
  EXPECT_EQ(group->verdict().abandoned[0].pid, 0);
}

TEST(WorkerGroup, SuccessStandsThoughSomethingLeftBehindCannotBeKilled) {
  Checked group(limits(1));
  group.spawn_all(t0);
  group.exited(0, ExitedWith{0}, t0);
  group.handle(Tick{}, t0 + 30s);
  group.handle(Tick{}, t0 + 30s + kPatience);
  EXPECT_EQ(group->verdict().result, GroupResult::succeeded);
  EXPECT_TRUE(group->verdict().leftovers_abandoned);
}

// ---- holding back an early failure -------------------------------------------------------------

TEST(WorkerGroup, AnEarlyFailureIsHeldBackAsLongAsItLived) {
  Checked group(limits(2));
  group.spawn_all(t0);
  group.exited(0, ExitedWith{1}, t0 + 300ms);
  EXPECT_EQ(group->next_deadline(), t0 + 600ms);
}

TEST(WorkerGroup, AnEarlyFailureIsHeldBackForAMomentAtLeast) {
  Checked group(limits(2));
  group.spawn_all(t0);
  group.exited(0, ExitedWith{1}, t0 + 1ms);
  EXPECT_EQ(group->next_deadline(), t0 + 1ms + kHoldMin);
}

TEST(WorkerGroup, AnEarlyFailureIsHeldBackToTheEndOfTheStartAtMost) {
  Checked group(limits(2));
  group.spawn_all(t0);
  group.exited(0, ExitedWith{1}, t0 + 900ms);
  EXPECT_EQ(group->next_deadline(), t0 + kStartup);
}

TEST(WorkerGroup, ALaterFailureIsAnsweredAtOnce) {
  Checked group(limits(2));
  group.spawn_all(t0);
  group.exited(0, ExitedWith{1}, t0 + kStartup);
  EXPECT_EQ(group->state().phase, GroupPhase::stopping);
}

TEST(WorkerGroup, AnEarlyKillIsAnsweredAtOnce) {
  Checked group(limits(2));
  group.spawn_all(t0);
  group.exited(0, KilledBy{SIGKILL}, t0 + 10ms);
  EXPECT_EQ(group->state().phase, GroupPhase::stopping);
}

TEST(WorkerGroup, ASuccessMeanwhileShowsThatNotAllFailAlike) {
  Checked group(limits(3));
  group.spawn_all(t0);
  group.exited(0, ExitedWith{1}, t0 + 300ms);
  group.exited(1, ExitedWith{0}, t0 + 310ms);
  EXPECT_EQ(group->state().phase, GroupPhase::stopping);
}

TEST(WorkerGroup, AStopEndsTheHolding) {
  Checked group(limits(2));
  group.spawn_all(t0);
  group.exited(0, ExitedWith{1}, t0 + 300ms);
  group.handle(Stop{StopWhy::operator_signal, SIGINT}, t0 + 310ms);
  EXPECT_EQ(group->state().workers[1].signalled, SIGINT);
}

TEST(WorkerGroup, OneWorkerAloneThatFailsEarlyFailedAtStart) {
  Checked group(limits(1));
  group.spawn_all(t0);
  group.exited(0, ExitedWith{2}, t0 + 10ms);
  group.all_is_gone(t0 + 10ms);
  EXPECT_TRUE(group->verdict().failed_at_start);
}

TEST(WorkerGroup, OneWorkerAloneThatIsKilledEarlyDidNotFailAtStart) {
  Checked group(limits(1));
  group.spawn_all(t0);
  group.exited(0, KilledBy{SIGKILL}, t0 + 10ms);
  group.all_is_gone(t0 + 10ms);
  EXPECT_FALSE(group->verdict().failed_at_start);
}

}  // namespace
}  // namespace distrun::agent
