// Who is to blame when time is up: the roll of a call, over a HashStore.
#include "runtime/worker/group_failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

namespace distrun {
namespace {

using namespace std::chrono_literals;
using Ranks = std::vector<int>;
using ::testing::ElementsAre;

class Boards {
 public:
  explicit Boards(int size) {
    for (int rank = 0; rank < size; ++rank) boards_.emplace_back(store_.clone(), rank, size);
  }
  ~Boards() {
    over_ = true;
    for (auto& thread : waiting_) thread.join();
  }
  FailureBoard& at(int rank) { return boards_[static_cast<std::size_t>(rank)]; }
  // Rank `rank` waits for those in the call with that number.
  void waits(int rank, std::uint64_t sequence, const Ranks& waits_for) {
    waiting_.emplace_back([this, rank, sequence, waits_for] {
      while (!over_) {
        at(rank).answer_roll(sequence, waits_for);
        std::this_thread::yield();
      }
    });
  }
  // Whom a rank blames that waits for those.
  Ranks blamed(int rank, std::uint64_t sequence, Ranks waits_for) {
    EXPECT_EQ(at(rank).call_roll(sequence, waits_for, 300ms), std::nullopt);
    return waits_for;
  }

 private:
  HashStore store_;
  std::deque<FailureBoard> boards_;
  std::vector<std::thread> waiting_;
  std::atomic<bool> over_ = false;
};

TEST(Roll, ANeighbourThatItselfWaitsIsNotBlamed) {
  Boards boards(4);
  boards.waits(3, 7, {2});
  boards.waits(2, 7, {1});
  EXPECT_THAT(boards.blamed(0, 7, {3}), ElementsAre(1));
  EXPECT_THAT(boards.blamed(2, 7, {1}), ElementsAre(1));
}

TEST(Roll, OfSeveralAllAreBlamed) {
  Boards boards(4);
  boards.waits(0, 7, {1, 2});
  EXPECT_THAT(boards.blamed(3, 7, {0}), ElementsAre(1, 2));
}

TEST(Roll, WhoWaitsInAnotherCallHasNotAnsweredThisOne) {
  Boards boards(3);
  boards.waits(1, 6, {2});
  EXPECT_THAT(boards.blamed(0, 7, {1}), ElementsAre(1));
}

TEST(Roll, InACircleThereIsNobodyButTheNeighbourToBlame) {
  Boards boards(3);
  boards.waits(1, 7, {2});
  boards.waits(2, 7, {0});
  EXPECT_THAT(boards.blamed(0, 7, {1}), ElementsAre(1));
}

TEST(Roll, AFailureThatIsReportedMeanwhileIsTheReason) {
  Boards boards(2);
  const GroupFailure failure{ErrorKind::timeout, 3, "rank 3 did it"};
  boards.at(1).report(failure);
  Ranks ranks{1};
  const auto told = boards.at(0).call_roll(7, ranks, 10s);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->peer, 3);
  EXPECT_EQ(told->text, "rank 3 did it");
}

TEST(GroupFailure, KeepsWhatItSaysOnItsWay) {
  const GroupFailure differ{ErrorKind::backend, 2, "two lines\nof text", 5};
  const GroupFailure back = GroupFailure::decode(differ.encode());
  EXPECT_EQ(back.kind, ErrorKind::backend);
  EXPECT_EQ(back.peer, 2);
  EXPECT_EQ(back.other, 5);
  EXPECT_EQ(back.text, "two lines\nof text");
  const GroupFailure late{ErrorKind::timeout, std::nullopt, ""};
  EXPECT_EQ(GroupFailure::decode(late.encode()).kind, ErrorKind::timeout);
  EXPECT_EQ(GroupFailure::decode(late.encode()).peer, std::nullopt);
}

}  // namespace
}  // namespace distrun
