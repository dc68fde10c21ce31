#include "runtime/nccl/core/watch.h"

#include <gtest/gtest.h>

namespace distrun::nccl {
namespace {

using namespace std::chrono_literals;

const TimePoint t0{};

Label all_reduce(std::int64_t sequence) {
  return {.kind = OpKind::all_reduce, .dtype = {2, 32}, .count = 1024, .sequence = sequence};
}

Watch two_works() {
  Watch watch;
  watch.add({.id = 7, .label = all_reduce(0), .submitted = t0, .deadline = t0 + 5s});
  watch.add({.id = 8, .label = all_reduce(1), .submitted = t0, .deadline = t0 + 6s});
  return watch;
}

TEST(Watch, TellsWhatIsDoneAndForgetsIt) {
  Watch watch = two_works();
  const Verdict verdict = watch.look({.works = {Seen::done, Seen::running}}, t0 + 1s);
  EXPECT_EQ(verdict.done, std::vector<std::uint64_t>{7});
  EXPECT_FALSE(verdict.failure);
  ASSERT_EQ(watch.works().size(), 1U);
  EXPECT_EQ(watch.works().front().id, 8U);
}

TEST(Watch, WhatIsDoneAfterItsDeadlineIsDone) {
  Watch watch = two_works();
  const Verdict verdict = watch.look({.works = {Seen::done, Seen::done}}, t0 + 60s);
  EXPECT_EQ(verdict.done.size(), 2U);
  EXPECT_FALSE(verdict.failure);
}

TEST(Watch, NamesTheOldestThatMissedItsDeadline) {
  Watch watch = two_works();
  EXPECT_FALSE(watch.look({.works = {Seen::running, Seen::waiting}}, t0 + 4999ms).failure);
  const auto failure = watch.look({.works = {Seen::running, Seen::waiting}}, t0 + 60s).failure;
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, FailureKind::timeout);
  EXPECT_EQ(failure->text, "all_reduce #0 (float32, 1024 elements): not done within 5 s");
  EXPECT_TRUE(failure->ask_others);
}

TEST(Watch, TellsApartWhatTheDeviceHasNotBegun) {
  Watch watch = two_works();
  const auto failure = watch.look({.works = {Seen::waiting, Seen::waiting}}, t0 + 60s).failure;
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->text.find("what was enqueued before it has not finished"), std::string::npos);
}

TEST(Watch, ADeviceErrorIsThatOfTheWorkItShowsIn) {
  Watch watch = two_works();
  const auto failure =
      watch.look({.works = {Seen::done, Seen::broken}, .device_error = "illegal address"}, t0)
          .failure;
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->text,
            "all_reduce #1 (float32, 1024 elements): the device reports: illegal address");
}

TEST(Watch, AnAsynchronousErrorNamesTheOldestThatIsPending) {
  Watch watch = two_works();
  const auto failure =
      watch.look({.works = {Seen::running, Seen::waiting}, .comm_error = "remote error"}, t0)
          .failure;
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->text, "all_reduce #0 (float32, 1024 elements): NCCL reports: remote error");
  EXPECT_EQ(failure->kind, FailureKind::backend);
}

TEST(Watch, WhatAnotherRankToldComesFirst) {
  Watch watch = two_works();
  const Failure told{.culprit = 3, .text = "rank 3 is gone"};
  const auto failure = watch
                           .look({.works = {Seen::running, Seen::waiting},
                                  .comm_error = "remote error",
                                  .told_by_others = told},
                                 t0 + 60s)
                           .failure;
  EXPECT_EQ(failure, told);
}

TEST(Watch, TheNextDeadlineIsTheEarliest) {
  Watch watch;
  EXPECT_FALSE(watch.next_deadline());
  watch.add({.id = 1, .label = {}, .submitted = t0, .deadline = t0 + 9s});
  watch.add({.id = 2, .label = {}, .submitted = t0, .deadline = t0 + 3s});
  EXPECT_EQ(watch.next_deadline(), t0 + 3s);
}

TEST(Failure, ComesBackFromItsBytes) {
  const Failure failure{
      .kind = FailureKind::timeout, .culprit = 12, .text = "a b  c", .ask_others = true};
  EXPECT_EQ(Failure::decode(failure.encode()), failure);
}

TEST(Failure, BytesOfSomethingElseAreAFailureThatSaysSo) {
  EXPECT_NE(Failure::decode("nonsense").text.find("cannot be read: nonsense"), std::string::npos);
  EXPECT_NE(Failure::decode("0 99999999999 0 x").text.find("cannot be read"), std::string::npos);
}

TEST(Progress, ComesBackFromItsBytes) {
  const Progress progress{.submitted = 17, .completed = 16, .last = "all_reduce #17 (…)"};
  EXPECT_EQ(Progress::decode(progress.encode()), progress);
  EXPECT_FALSE(Progress::decode("17"));
  EXPECT_FALSE(Progress::decode("17 x y"));
}

TEST(Explain, NamesTheRankThatHasNotEntered) {
  const Progress there{.submitted = 17, .completed = 16, .last = "all_reduce #17"};
  const Progress behind{.submitted = 16, .completed = 16, .last = "broadcast #16"};
  const Failure failure = explain({.text = "on rank 0: too late"}, {there, there, behind, there});
  EXPECT_EQ(failure.culprit, 2);
  EXPECT_EQ(
      failure.text,
      "on rank 0: too late; rank 2 has not entered all_reduce #17: the last collective there is "
      "broadcast #16");
}

TEST(Explain, NamesTheRankThatDoesNotAnswer) {
  const Progress there{.submitted = 17, .completed = 16, .last = "all_reduce #17"};
  const Failure failure = explain({.text = "late"}, {there, std::nullopt});
  EXPECT_EQ(failure.culprit, 1);
  EXPECT_EQ(failure.text, "late; rank 1 does not answer (dead, stopped, or not there yet)");
}

TEST(Explain, BlamesNobodyWhenSeveralAreBehind) {
  const Progress there{.submitted = 3, .completed = 2, .last = "barrier #3"};
  const Failure failure = explain({.text = "late"}, {there, Progress{}, Progress{}});
  EXPECT_EQ(failure.culprit, -1);
  EXPECT_EQ(
      failure.text,
      "late; ranks 1, 2 have not entered barrier #3: the last collective there, of rank 1, is "
      "none");
}

TEST(Explain, NamesEightRanksAtMost) {
  std::vector<std::optional<Progress>> positions(20);
  positions[0] = Progress{.submitted = 0, .completed = -1, .last = "barrier #0"};
  EXPECT_NE(explain({.text = "late"}, positions).text.find("7, 8 and 11 more do not answer"),
            std::string::npos);
}

TEST(Explain, KeepsTheCulpritThatIsKnown) {
  EXPECT_EQ(explain({.culprit = 5, .text = "x"}, {Progress{}, std::nullopt}).culprit, 5);
}

TEST(Label, SaysWhatIsKnownOfTheOperation) {
  EXPECT_EQ(
      (Label{.kind = OpKind::send, .dtype = {4, 16}, .count = 1, .sequence = 3, .peer = 2}).text(),
      "send #3 to rank 2 (bfloat16, 1 element)");
  EXPECT_EQ(
      (Label{.kind = OpKind::broadcast, .dtype = {0, 8}, .count = 5, .sequence = 0, .peer = 0})
          .text(),
      "broadcast #0 with root 0 (int8, 5 elements)");
  EXPECT_EQ((Label{.kind = OpKind::barrier, .sequence = 9}).text(), "barrier #9");
  EXPECT_EQ(
      (Label{.kind = OpKind::all_reduce, .dtype = {2, 64}, .count = 2, .coalesced = 4}).text(),
      "4 coalesced: all_reduce #0 (float64, 2 elements)");
}

TEST(Roots, OneServesUpToTheLimit) {
  EXPECT_EQ(plan_roots(1, 128).count, 1);
  EXPECT_EQ(plan_roots(128, 128).count, 1);
  EXPECT_EQ(plan_roots(129, 128).count, 2);
}

TEST(Roots, EachIsStartedByTheFirstRankOfItsRun) {
  const Roots roots = plan_roots(10, 4);  // runs of 4, 3 and 3 ranks
  std::vector<int> starters;
  for (int rank = 0; rank < 10; ++rank) {
    if (const auto root = roots.started_by(rank, 10)) {
      EXPECT_EQ(*root, static_cast<int>(starters.size()));
      starters.push_back(rank);
    }
  }
  EXPECT_EQ(starters, (std::vector<int>{0, 4, 7}));
}

}  // namespace
}  // namespace distrun::nccl
