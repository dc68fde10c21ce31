// The rendezvous of one node, with a real store on a port of the kernel's choice.
#include "agent/local_rendezvous.h"

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

namespace distrun::agent {
namespace {

Spec spec_of(int max_restarts) {
  Spec spec;
  spec.nproc = 2;
  spec.max_restarts = max_restarts;
  spec.host_name = "host-a";
  return spec;
}

class LocalRendezvousTest : public ::testing::Test {
 protected:
  LocalRendezvousTest() : spec_(spec_of(1)) {
    rendezvous_.on_answer([this](Event event) { answers_.push_back(std::move(event)); });
  }

  template <class E>
  E answer_to(const Join& join) {
    answers_.clear();
    rendezvous_.join(join, "a report\n");
    EXPECT_EQ(answers_.size(), 1u);
    if (answers_.empty() || !std::holds_alternative<E>(answers_.back())) {
      ADD_FAILURE() << "another answer";
      return {};
    }
    return std::get<E>(answers_.back());
  }

  Join ended(GroupResult result) {
    GroupVerdict verdict;
    verdict.result = result;
    verdict.generation = Generation{round_++};
    if (result == GroupResult::failed) {
      verdict.first_failure =
          Ending{LocalRank{1}, Rank{1}, 4711, ExitedWith{13}, Part::first_failure, Clock::now()};
    }
    return {verdict};
  }

  boost::asio::io_context io_{1};
  Spec spec_;
  LocalRendezvous rendezvous_{io_, spec_};
  std::vector<Event> answers_;
  int round_ = 0;
};

TEST_F(LocalRendezvousTest, GivesTheWholeRoundToItsOnlyNode) {
  const Assignment a = answer_to<Welcome>(Join{}).assignment;
  EXPECT_EQ(a.generation, Generation{0});
  EXPECT_EQ(a.node_count, 1);
  EXPECT_EQ(a.world_size, 2);
  EXPECT_EQ(a.role_world_size, 2);
  EXPECT_EQ(a.restart_count, 0);
  EXPECT_EQ(a.master_addr, "127.0.0.1");
  EXPECT_GT(a.master_port, 0);
}

TEST_F(LocalRendezvousTest, RestartsAsOftenAsTheBudgetAllows) {
  answer_to<Welcome>(Join{});
  EXPECT_EQ(answer_to<Welcome>(ended(GroupResult::failed)).assignment.restart_count, 1);
  const JobOver over = answer_to<JobOver>(ended(GroupResult::failed));
  EXPECT_EQ(over.result, JobResult::failed);
  EXPECT_EQ(over.exit_code, 13);
  EXPECT_EQ(over.why, "not restarted: its only restart is used");
  EXPECT_EQ(over.restarts, 1);
  EXPECT_EQ(over.report, "") << "the failure was here";
}

TEST_F(LocalRendezvousTest, EndsWithTheSuccessOfItsOnlyNode) {
  answer_to<Welcome>(Join{});
  const JobOver over = answer_to<JobOver>(ended(GroupResult::succeeded));
  EXPECT_EQ(over.result, JobResult::succeeded);
  EXPECT_EQ(over.exit_code, 0);
}

TEST_F(LocalRendezvousTest, AReportedFailureStillGetsItsRestart) {
  answer_to<Welcome>(Join{});
  const Join failed = ended(GroupResult::failed);
  rendezvous_.report(Report{Generation{0}, *failed.ended->first_failure});
  EXPECT_EQ(answer_to<Welcome>(failed).assignment.generation, Generation{1});
}

TEST_F(LocalRendezvousTest, DoesNotRestartBesideWhatIsStillThere) {
  answer_to<Welcome>(Join{});
  Join failed = ended(GroupResult::failed);
  failed.ended->leftovers_abandoned = true;
  EXPECT_EQ(answer_to<JobOver>(failed).result, JobResult::failed);
}

TEST_F(LocalRendezvousTest, DoesNotRestartWhatNeverWorked) {
  answer_to<Welcome>(Join{});
  Join failed = ended(GroupResult::failed);
  failed.ended->failed_at_start = true;
  EXPECT_EQ(answer_to<JobOver>(failed).result, JobResult::failed);
}

TEST_F(LocalRendezvousTest, ThePortOfTheStoreMayBeGivenAndIsUsedInEveryRound) {
  spec_.master_port = answer_to<Welcome>(Join{}).assignment.master_port;
  EXPECT_EQ(answer_to<Welcome>(ended(GroupResult::failed)).assignment.master_port,
            spec_.master_port);
}

TEST_F(LocalRendezvousTest, WithoutAStoreThereIsNoRound) {
  spec_.master_addr = "192.0.2.1";  // for documentation: nobody's
  EXPECT_EQ(answer_to<RoundFailed>(Join{}).error, RoundError::no_store);
}

TEST_F(LocalRendezvousTest, NothingIsLeftOfItOnceTheNodeHasLeft) {
  answer_to<Welcome>(Join{});
  rendezvous_.leave(Leave{});
  io_.poll();
  EXPECT_TRUE(io_.stopped()) << "neither a timer nor a socket is left";
}

}  // namespace
}  // namespace distrun::agent
