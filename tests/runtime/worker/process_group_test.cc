// Process groups over real Gloo: every rank a thread of this process, met through a HashStore.
#include "tests/runtime/worker/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>

namespace distrun {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

using test::as_ranks;
using test::expect_nothing_thrown;

template <class T>
class GroupOf : public ::testing::Test {};
using ElementTypes = ::testing::Types<double, std::int32_t>;
TYPED_TEST_SUITE(GroupOf, ElementTypes);

TYPED_TEST(GroupOf, EveryOperationGivesItsResultSmallAndLarge) {
  using T = TypeParam;
  for (const std::size_t count : {3u, 50'000u})
    for (int size = 1; size <= 4; ++size) {
      const T rank_sum = static_cast<T>(size * (size + 1) / 2);
      expect_nothing_thrown(as_ranks(size, [&](ProcessGroup& group) {
        const T mine = static_cast<T>(group.rank() + 1);
        const int last = size - 1;

        std::vector<T> data(count, mine);
        group.all_reduce(data);
        EXPECT_EQ(data, std::vector<T>(count, rank_sum));

        data.assign(count, mine);
        group.all_reduce(data, ReduceOp::max);
        EXPECT_EQ(data, std::vector<T>(count, static_cast<T>(size)));

        data.assign(count, mine);
        group.reduce(data, last, ReduceOp::min);
        EXPECT_EQ(data, std::vector<T>(count, group.rank() == last ? T{1} : mine));

        data.assign(count, mine);
        group.broadcast(data, last);
        EXPECT_EQ(data, std::vector<T>(count, static_cast<T>(size)));

        std::vector<T> all(count * static_cast<std::size_t>(size));
        const std::vector<T> part(count, mine);
        group.all_gather_into_tensor(all, part);
        for (int rank = 0; rank < size; ++rank)
          EXPECT_EQ(all[count * static_cast<std::size_t>(rank) + count - 1],
                    static_cast<T>(rank + 1));

        group.barrier();
      }));
    }
}

TEST(ProcessGroup, TensorsAreMadeFromAnythingContiguous) {
  expect_nothing_thrown(as_ranks(2, [](ProcessGroup& group) {
    std::array<double, 2> array{1, 2};
    group.all_reduce(array, ReduceOp::avg);
    EXPECT_THAT(array, ::testing::ElementsAre(1, 2));
    std::vector<std::int64_t> vector{1, 2, 3};
    group.all_reduce(std::span(vector).subspan(1));
    EXPECT_THAT(vector, ::testing::ElementsAre(1, 4, 6));
    group.all_reduce(Tensor(vector.data(), 1, DType::int64), ReduceOp::product);
    EXPECT_EQ(vector[0], 1);
    const std::vector<std::int64_t> in(vector);
    std::vector<std::int64_t> out(6);
    group.all_gather_into_tensor(out, in);
    EXPECT_EQ(out[3], 1);
  }));
}

TEST(ProcessGroup, AsynchronousCallsRunInTheOrderInWhichTheyWereIssued) {
  expect_nothing_thrown(as_ranks(3, [](ProcessGroup& group) {
    std::vector<float> a{1}, b(100'000, 2.0f);
    Work first = group.all_reduce(a, ReduceOp::sum, {.async_op = true});
    Work second = group.all_reduce(b, ReduceOp::sum, {.async_op = true});
    Work third = group.broadcast(a, 0, {.async_op = true});  // after the first on the same buffer
    group.barrier();                                         // behind them all
    EXPECT_TRUE(first.is_completed() && second.is_success() && third.is_completed());
    EXPECT_EQ(third.exception(), nullptr);
    EXPECT_EQ(first.sequence_number(), 0u);
    EXPECT_EQ(third.sequence_number(), 2u);
    third.wait();
    EXPECT_EQ(a[0], 3.0f);
    EXPECT_EQ(b.back(), 6.0f);
  }));
}

TEST(ProcessGroup, WaitingForAWorkHasATimeoutOfItsOwnWhichDoesNotHurtIt) {
  expect_nothing_thrown(as_ranks(2, [](ProcessGroup& group) {
    std::vector<float> data{1};
    if (group.rank() == 1) std::this_thread::sleep_for(150ms);
    Work work = group.all_reduce(data, ReduceOp::sum, {.async_op = true});
    if (group.rank() == 0) {
      try {
        work.wait(20ms);
        ADD_FAILURE() << "done before rank 1 began";
      } catch (const DistTimeoutError& error) {
        EXPECT_THAT(error.what(), HasSubstr("all_reduce 0 (float32 x 1, sum): not completed"));
      }
    }
    work.wait();
    EXPECT_EQ(data[0], 2.0f);
  }));
}

TEST(ProcessGroup, TheDestructorWaitsForWhatWasIssued) {
  std::vector<std::vector<float>> data(2, std::vector<float>(10'000, 1.0f));
  expect_nothing_thrown(as_ranks(2, [&](ProcessGroup& group) {
    group.all_reduce(data[static_cast<std::size_t>(group.rank())], ReduceOp::sum,
                     {.async_op = true});
  }));
  EXPECT_EQ(data[0].back(), 2.0f);
  EXPECT_EQ(data[1].back(), 2.0f);
}

TEST(ProcessGroup, BadArgumentsAreRefusedBeforeAnythingIsSent) {
  expect_nothing_thrown(as_ranks(2, [](ProcessGroup& group) {
    std::vector<float> floats(4);
    std::vector<std::int32_t> integers(4);
    alignas(8) std::array<std::byte, 16> raw{};
    EXPECT_THROW(group.broadcast(floats, 2), DistArgumentError);
    EXPECT_THROW(group.reduce(floats, -1), DistArgumentError);
    EXPECT_THROW(group.all_reduce(integers, ReduceOp::avg), DistArgumentError);
    EXPECT_THROW(group.all_gather_into_tensor(floats, floats), DistArgumentError);
    EXPECT_THROW(group.all_gather_into_tensor(integers, floats), DistArgumentError);
    EXPECT_THROW(group.all_reduce(Tensor(nullptr, 1, DType::int32)), DistArgumentError);
    EXPECT_THROW(group.all_reduce(Tensor(raw.data() + 1, 1, DType::float64)), DistArgumentError);
    EXPECT_THROW(group.barrier({.timeout = -1ms}), DistArgumentError);
    group.barrier();  // nothing was sent, so the group is as good as new
  }));
}

TEST(ProcessGroup, DifferentCallsAreToldToEveryRankAndEndTheGroup) {
  const auto thrown = as_ranks(3, [](ProcessGroup& group) {
    std::vector<float> data(group.rank() == 1 ? 70'000u : 70'001u);
    EXPECT_THROW(group.all_reduce(data), DistBackendError);
    group.barrier();  // of no more use
  });
  for (const std::string& text : thrown) {
    EXPECT_THAT(text, HasSubstr("is of no more use since an earlier failure"));
    EXPECT_THAT(text, HasSubstr("rank 0 called all_reduce 0 (float32 x 70001, sum), rank 1 called "
                                "all_reduce 0 (float32 x 70000, sum): they differ in the count"));
  }
}

TEST(ProcessGroup, ARankThatDoesNotComeIsNamedOnAllOthersWhenTheTimeIsUp) {
  std::vector<std::optional<int>> blamed(3);
  const auto start = std::chrono::steady_clock::now();
  as_ranks(3, [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      std::this_thread::sleep_for(1200ms);
      return;
    }
    try {
      // Rank 2's time is up before rank 0's: it has to know that rank 0 is not to blame.
      group.barrier({.timeout = group.rank() == 2 ? 400ms : 700ms});
      ADD_FAILURE() << "passed";
    } catch (const DistTimeoutError& error) {
      blamed[static_cast<std::size_t>(group.rank())] = error.peer_rank();
      EXPECT_THAT(error.what(), HasSubstr("barrier 0: rank 1 (pid "));
      EXPECT_THAT(error.what(), HasSubstr("did not take part within"));
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  EXPECT_THAT(blamed, ::testing::ElementsAre(1, std::nullopt, 1));
}

TEST(ProcessGroup, ARankWhoseRankZeroDoesNotComeNamesIt) {
  as_ranks(2, [&](ProcessGroup& group) {
    if (group.rank() == 0) {
      std::this_thread::sleep_for(1000ms);
      return;
    }
    try {
      group.barrier({.timeout = 200ms});
      ADD_FAILURE() << "passed";
    } catch (const DistTimeoutError& error) {
      EXPECT_EQ(error.peer_rank(), 0);
    }
  });
}

TEST(ProcessGroup, APeerThatIsGoneDoesNotEndThisProcessBySignal) {
  struct Restore {
    ~Restore() { ::signal(SIGPIPE, SIG_DFL); }
  } restore;
  const auto after_init = [](void (*before)(int)) {
    ::signal(SIGPIPE, before);
    as_ranks(2, [](ProcessGroup&) {});
    struct sigaction now {};
    ::sigaction(SIGPIPE, nullptr, &now);
    return now.sa_handler;
  };
  EXPECT_EQ(after_init(SIG_DFL), SIG_IGN);
  const auto own = +[](int) {};
  EXPECT_EQ(after_init(own), own) << "a handler of the program's own stays";
}

TEST(ProcessGroup, AnExceptionOnOneRankReleasesTheOthersAndSaysWhoLeft) {
  const auto start = std::chrono::steady_clock::now();
  const auto thrown = as_ranks(3, [](ProcessGroup& group) {
    if (group.rank() == 2) throw DistError(ErrorKind::store, "the data file is missing");
    std::vector<double> data(100'000);
    group.all_reduce(data);
  });
  EXPECT_EQ(thrown[2], "the data file is missing");
  EXPECT_THAT(thrown[0], HasSubstr("rank 2 (pid "));
  EXPECT_THAT(thrown[0], HasSubstr("left the group: an exception ended its work"));
  EXPECT_THAT(thrown[1], HasSubstr("left the group: an exception ended its work"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST(ProcessGroup, AnUnwindingRankDoesNotWaitForItsOperationsUnderWay) {
  std::vector<float> data(100'000);
  const auto start = std::chrono::steady_clock::now();
  as_ranks(2, [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      std::this_thread::sleep_for(500ms);
      return;
    }
    group.all_reduce(data, ReduceOp::sum, {.async_op = true});
    throw DistError(ErrorKind::store, "x");
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST(ProcessGroup, AfterCloseCallsAreRefused) {
  const auto thrown = as_ranks(2, [](ProcessGroup& group) {
    group.close();
    group.close();  // once more does nothing
    group.barrier();
  });
  EXPECT_THAT(thrown, ::testing::Each("process group \"g\" is closed"));
}

TEST(ProcessGroup, ClosingWithoutTheOthersTakesItsTimeoutAndNoMore) {
  as_ranks(2, [](ProcessGroup& group) {
    if (group.rank() == 1) {
      std::this_thread::sleep_for(300ms);
      return;
    }
    EXPECT_THROW(group.close(100ms), DistTimeoutError);
  });
}

TEST(ProcessGroup, ClosingAfterAnotherHasFailedSaysSoAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  const auto thrown = as_ranks(2, [](ProcessGroup& group) {
    if (group.rank() == 1) throw DistError(ErrorKind::store, "x");
    group.close();
  });
  EXPECT_THAT(thrown[0], HasSubstr("closing: rank 1 (pid "));
  EXPECT_THAT(thrown[0], HasSubstr("left the group: an exception ended its work"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 4s);
}

TEST(ProcessGroup, RanksThatDoNotJoinAreNamed) {
  const auto store = std::make_shared<HashStore>();
  try {
    init_process_group("gloo",
                       {.timeout = 100ms, .store = store, .rank = 1, .world_size = 4, .name = "g"});
    FAIL() << "joined";
  } catch (const DistTimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 of 4 waited 100 ms for the others; "
                                        "not there: rank 0, 2, 3"));
    EXPECT_EQ(error.peer_rank(), 0);
  }
}

TEST(ProcessGroup, ARankThatCannotJoinIsToldToTheOthersSoon) {
  const auto store = std::make_shared<HashStore>();
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> thrown(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        init_process_group("gloo", {.timeout = 60s,
                                    .store = store,
                                    .rank = rank,
                                    .world_size = 2,
                                    .name = "g",
                                    .local_address = rank == 0 ? "" : "192.0.2.1"});
      } catch (const DistError& error) {
        thrown[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (auto& rank : ranks) rank.join();
  EXPECT_THAT(thrown[1], HasSubstr("from address 192.0.2.1"));
  EXPECT_THAT(thrown[0], HasSubstr("rank 1 could not join: "));
  EXPECT_THAT(thrown[0], HasSubstr("from address 192.0.2.1"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
}

TEST(ProcessGroup, TwoProcessesWithOneRankAreToldApart) {
  const auto store = std::make_shared<HashStore>();
  const GroupOptions options{
      .timeout = 50ms, .store = store, .rank = 0, .world_size = 2, .name = "g"};
  EXPECT_THROW(init_process_group("gloo", options), DistTimeoutError);
  try {
    init_process_group("gloo", options);
    FAIL() << "joined";
  } catch (const DistStoreError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 0 has joined already"));
  }
}

TEST(ProcessGroup, SeveralGroupsLiveOnOneStore) {
  const auto store = std::make_shared<HashStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&store, rank] {
      for (const std::string name : {"a", "b"}) {
        const auto group = init_process_group(
            "gloo", {.timeout = 30s, .store = store, .rank = rank, .world_size = 2, .name = name});
        std::vector<float> data{1};
        group->all_reduce(data);
        EXPECT_EQ(data[0], 2.0f);
      }
    });
  for (auto& rank : ranks) rank.join();
}

TEST(ProcessGroup, HandsOutMemoryThatServesEveryGroupAndOutlivesIt) {
  expect_nothing_thrown(as_ranks(3, [](ProcessGroup& group) {
    Buffer buffer = group.allocate(std::size_t{1} << 20);
    const auto values = buffer.as<float>();
    EXPECT_EQ(values.front(), 0);
    std::ranges::fill(values, static_cast<float>(group.rank()));
    group.all_reduce(values);
    EXPECT_THAT(values, ::testing::Each(3));
    const auto pair = group.new_group({0, 1});
    if (pair) {
      pair->broadcast(values, 1);
      pair->close();
    }
    EXPECT_EQ(values.back(), 3);
    EXPECT_THROW(group.allocate(std::size_t{1} << 60), DistUnsupportedError);
  }));
}

// Whatever carries them out: this test runs over shared memory and over Gloo.
TEST(ProcessGroup, DeterministicReductionsAreInTheOrderOfRanks) {
  const auto value = [](int rank, std::size_t i) {
    return std::pow(10.0F, static_cast<float>((i + static_cast<std::size_t>(rank) * 5) % 7) - 3) /
           3;
  };
  const auto store = std::make_shared<HashStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      const auto group = init_process_group("gloo", {.timeout = 30s,
                                                     .store = store,
                                                     .rank = rank,
                                                     .world_size = 3,
                                                     .name = "g",
                                                     .deterministic = true});
      for (const std::size_t count : {5U, 20'000U}) {
        std::vector<float> data(count), expected(count);
        for (std::size_t i = 0; i < count; ++i) {
          data[i] = value(rank, i);
          expected[i] = value(0, i) + value(1, i) + value(2, i);
        }
        group->all_reduce(data);
        EXPECT_EQ(data, expected);
      }
      group->close();
    });
  for (auto& rank : ranks) rank.join();
}

TEST(ProcessGroup, DeterministicOnSomeRanksOnlyIsRefusedOnAll) {
  const auto store = std::make_shared<HashStore>();
  std::vector<std::string> thrown(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        init_process_group("gloo", {.timeout = 30s,
                                    .store = store,
                                    .rank = rank,
                                    .world_size = 2,
                                    .name = "g",
                                    .deterministic = rank == 1});
      } catch (const DistError& error) {
        thrown[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (auto& rank : ranks) rank.join();
  EXPECT_THAT(thrown, ::testing::Each(HasSubstr("deterministic reductions are")));
}

TEST(ProcessGroup, TheFirstThatIsHeldIsTheDefault) {
  EXPECT_FALSE(is_initialized());
  EXPECT_THROW(default_group(), DistArgumentError);
  const auto store = std::make_shared<HashStore>();
  const auto group = init_process_group("gloo", {.store = store, .rank = 0, .world_size = 1});
  EXPECT_TRUE(is_initialized());
  EXPECT_EQ(default_group(), group);
}

TEST(ProcessGroup, UnknownBackendsAndHalfOptionsAreRefused) {
  EXPECT_THROW(init_process_group("nosuch", {}), DistUnsupportedError);
  EXPECT_THROW(init_process_group("gloo", {.rank = 0, .world_size = 1}), DistArgumentError);
  EXPECT_FALSE(is_available("nosuch"));
  EXPECT_TRUE(is_available("gloo"));
  EXPECT_THROW(init_process_group(
                   "gloo", {.store = std::make_shared<HashStore>(), .rank = 2, .world_size = 2}),
               DistArgumentError);
}

}  // namespace
}  // namespace distrun
