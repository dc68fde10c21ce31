// What goes wrong in the middle of a collective: who is told what, and how soon.
#include "runtime/worker/shm/shared_memory.h"
#include "tests/runtime/worker/shm/ranks.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>
#include <unistd.h>

namespace distrun::shm::test {
namespace {

using Strings = std::vector<std::string>;

// Noticed at the next look, of which there are twenty in a second; the rest is for busy machines.
constexpr auto kNoticed = 2s;

struct Timed {
  std::string outcome;
  Duration took;
};
Timed timed(const std::function<void()>& step) {
  const TimePoint start = Clock::now();
  std::string outcome = outcome_of(step);
  return {std::move(outcome), Clock::now() - start};
}

// Calls until one fails, with `count` elements each.
std::string reduce_until_failure(CallRunner& runner, std::size_t count) {
  std::vector<float> data(count, 1.0F);
  std::string outcome;
  for (std::uint64_t n = 0; outcome.empty(); ++n)
    outcome = outcome_of([&] { runner.run(all_reduce_call(data, n), soon()); });
  return outcome;
}

class SharedMemoryKill : public testing::TestWithParam<std::size_t> {};

TEST_P(SharedMemoryKill, OfARankIsToldByNameOnAllOthersSoon) {
  const std::size_t count = GetParam();
  Processes ranks(3, [&](int rank, Store& store) {
    const auto runner = connect(store, rank, 3);
    std::vector<float> data(count, 1.0F);
    for (std::uint64_t n = 0; n < 10; ++n) runner->run(all_reduce_call(data, n), soon());
    say("begun;");
    const std::string outcome = reduce_until_failure(*runner, count);
    return outcome + "@" + std::to_string(Clock::now().time_since_epoch().count());
  });
  for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(ranks.has_said(rank, "begun;"));
  const TimePoint killed = Clock::now();
  ranks.signal(1, SIGKILL);
  const Strings reports = ranks.reports();
  EXPECT_EQ(reports[1], "begun;killed by 9");
  for (const int rank : {0, 2}) {
    const std::string& report = reports[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(report.starts_with("begun;lost 1: its process ended")) << report;
    const TimePoint noticed{Duration(std::stoll(report.substr(report.find('@') + 1)))};
    EXPECT_LT(noticed - killed, kNoticed);
  }
}
// One that spins, one that copies.
INSTANTIATE_TEST_SUITE_P(Sizes, SharedMemoryKill, testing::Values(2, 1'000'000));

TEST(SharedMemoryFault, ADeadRankIsToldToThoseThatSleepInABarrier) {
  const Strings reports = run_processes(3, [](int rank, Store& store) -> std::string {
    const auto runner = connect(store, rank, 3);
    if (rank == 2) {
      std::this_thread::sleep_for(300ms);
      ::kill(::getpid(), SIGKILL);
    }
    return outcome_of([&] { runner->run(barrier_call(), soon()); });
  });
  EXPECT_EQ(reports[2], "killed by 9");
  for (const std::size_t rank : {0U, 1U})
    EXPECT_TRUE(reports[rank].starts_with("lost 2: its process ended")) << reports[rank];
}

TEST(SharedMemoryFault, AProcessThatExitsWithoutAWordIsLost) {
  const Strings reports = run_processes(2, [](int rank, Store& store) -> std::string {
    const auto runner = connect(store, rank, 2);
    if (rank == 1) ::_exit(0);
    return outcome_of([&] { runner->run(barrier_call(), soon()); });
  });
  EXPECT_EQ(reports[0], "lost 1: its process ended");
}

TEST(SharedMemoryFault, StoppedRanksAreNamedAtTheDeadlineAndNobodyElse) {
  Processes ranks(4, [](int rank, Store& store) {
    const auto runner = connect(store, rank, 4);
    runner->run(barrier_call(), soon());
    say("begun;");
    if (rank == 1 || rank == 3) ::raise(SIGSTOP);
    const Timed result = timed([&] { runner->run(barrier_call(1), soon(500ms)); });
    // For the last one to come the barrier was complete, and only the next one cannot be.
    if (rank % 2 == 1 && result.outcome.empty())
      return outcome_of([&] { runner->run(barrier_call(2), soon()); });
    if (rank % 2 == 1) return result.outcome;
    return result.took < 450ms ? "too early" : result.outcome;
  });
  for (const int rank : {0, 2}) ASSERT_TRUE(ranks.has_said(rank, "late 1 3"));
  for (const int rank : {1, 3}) ranks.signal(rank, SIGCONT);
  const Strings reports = ranks.reports();
  for (const std::size_t rank : {1U, 3U})
    EXPECT_NE(reports[rank].find("it has waited for this rank until its deadline"),
              std::string::npos)
        << reports[rank];
}

TEST(SharedMemoryFault, WhoeverHasTheShorterDeadlineEndsItForAll) {
  const Strings reports = run_threads(3, [](int rank, Store& store) {
    const auto runner = connect(store, rank, 3);
    if (rank == 2) {
      std::this_thread::sleep_for(600ms);
      return std::string();
    }
    return outcome_of([&] { runner->run(barrier_call(), soon(rank == 0 ? 200ms : 20s)); });
  });
  EXPECT_EQ(reports, (Strings{"late 2", "late 2", ""}));
}

TEST(SharedMemoryFault, CloseFromAnotherThreadReleasesEverybody) {
  const Body body = [](int rank, Store& store) {
    const auto runner = connect(store, rank, 3);
    if (rank == 2) {  // never comes
      std::this_thread::sleep_for(500ms);
      return std::string("here");
    }
    std::thread closer;
    if (rank == 1)
      closer = std::thread([&] {
        std::this_thread::sleep_for(100ms);
        runner->close();
      });
    const Timed result = timed([&] { runner->run(barrier_call(), soon()); });
    if (closer.joinable()) closer.join();
    return result.took < kNoticed ? result.outcome : "too slow";
  };
  const Strings expected{"lost 1: it has left the group", "lost 1: this rank has left the group",
                         "here"};
  EXPECT_EQ(run_processes(3, body), expected);
  EXPECT_EQ(run_threads(3, body), expected);
}

TEST(SharedMemoryFault, ARankThatIsDoneAndGoneHurtsNobodyWhoIsSlower) {
  const Strings reports = run_processes(3, [](int rank, Store& store) {
    auto runner = connect(store, rank, 3);
    std::vector<float> data(100, 1.0F);
    for (std::uint64_t n = 0; n < 200; ++n) runner->run(all_reduce_call(data, n), soon());
    if (rank == 1) ::_exit(0);  // one without a word, the others in good order
    return std::string();
  });
  EXPECT_EQ(reports, Strings(3));
}

TEST(SharedMemoryFault, AGroupThatFailedIsOfNoMoreUse) {
  const Strings reports = run_threads(2, [](int rank, Store& store) {
    const auto runner = connect(store, rank, 2);
    if (rank == 1) {
      std::this_thread::sleep_for(200ms);
      outcome_of([&] { runner->run(barrier_call(), soon()); });
      return outcome_of([&] { runner->run(barrier_call(1), soon()); });
    }
    outcome_of([&] { runner->run(barrier_call(), soon(50ms)); });
    return outcome_of([&] { runner->run(barrier_call(1), soon()); });
  });
  EXPECT_EQ(reports[0], "lost 0: this rank has left the group");
  EXPECT_EQ(reports[1], "lost 0: it has waited for this rank until its deadline, and left");
}

// ---- different calls ---------------------------------------------------------------------------

Strings differing(const std::function<void(int rank, Call& call)>& change, int size = 3) {
  return run_processes(size, [&](int rank, Store& store) {
    const auto runner = connect(store, rank, size);
    std::vector<float> data(100'000, static_cast<float>(rank));
    Call call = all_reduce_call(data, 7);
    change(rank, call);
    std::string outcome = outcome_of([&] { runner->run(call, soon()); });
    for (const float value : data)
      if (value != static_cast<float>(rank)) return "data was touched after: " + outcome;
    return outcome;
  });
}

TEST(SharedMemoryFault, DifferentCountsAreToldOnAllRanksBeforeDataIsTouched) {
  const Strings reports = differing([](int rank, Call& call) { call.count -= rank == 2 ? 1 : 0; });
  const std::string text =
      ": rank 0 called all_reduce 7 (float32 x 100000, sum), rank 2 called all_reduce 7 (float32 x "
      "99999, sum): they differ in the count";
  EXPECT_EQ(reports, (Strings{"differ 2" + text, "differ 2" + text, "differ 0" + text}));
}

TEST(SharedMemoryFault, EveryOtherDifferenceIsNamed) {
  const auto of_rank_1 = [&](const std::function<void(Call & call)>& change) {
    const std::string report =
        differing([&](int rank, Call& call) { rank == 1 ? change(call) : void(); }, 2)[0];
    return report.substr(report.find("they differ"));
  };
  EXPECT_EQ(of_rank_1([](Call& call) { call.op = OpType::broadcast; }),
            "they differ in the operation");
  EXPECT_EQ(of_rank_1([](Call& call) { call.sequence = 8; }), "they differ in its number");
  EXPECT_EQ(of_rank_1([](Call& call) { call.dtype = DType::int32; }),
            "they differ in the element type");
  EXPECT_EQ(of_rank_1([](Call& call) { call.reduce = ReduceOp::max; }),
            "they differ in the reduce operation");
}

TEST(SharedMemoryFault, PartsThatDoNotFitTogetherAreTold) {
  const Strings reports = run_processes(3, [](int rank, Store& store) {
    const auto runner = connect(store, rank, 3);
    std::vector<std::byte> room(64);
    Call call;
    call.op = OpType::all_to_all;
    for (int peer = 0; peer < 3; ++peer) {
      // Rank 1 expects one more from rank 2 than that one has.
      call.outs.push_back({room.data(), rank == 1 && peer == 2 ? 3U : 2U});
      call.ins.push_back({room.data(), 2});
    }
    return outcome_of([&] { runner->run(call, soon()); });
  });
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(
        reports[rank].ends_with("the size of the part of rank 2 for rank 1: 2 elements are "
                                "given, 3 are expected"))
        << reports[rank];
}

TEST(SharedMemoryFault, ADifferenceIsToldEvenIfAThirdRankNeverComes) {
  const Strings reports = run_processes(3, [](int rank, Store& store) {
    const auto runner = connect(store, rank, 3);
    std::vector<float> data(10);
    if (rank == 2) {
      std::this_thread::sleep_for(600ms);
      return std::string();
    }
    Call call = all_reduce_call(data);
    if (rank == 1) call.reduce = ReduceOp::max;
    return outcome_of([&] { runner->run(call, soon(300ms)); }).substr(0, 8);
  });
  EXPECT_EQ(reports, (Strings{"differ 1", "differ 0", ""}));
}

}  // namespace
}  // namespace distrun::shm::test
