// A coordinator that was elected: it leaves in the record whose it was, and the next one does not
// wait for that node as for the others.
#include "tests/rendezvous/core/rendezvous_fixture.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace distrun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Authority elected(const std::string& node) {
  Authority authority;
  authority.elected = node;
  return authority;
}

class ElectedCoordinator : public testing::Test {
 protected:
  // Of a round of host1, host2 and host3, coordinated by host1's agent.
  ElectedCoordinator() {
    Hall hall(terms(2, 3), elected("host1.1"));
    const SessionId first = hall.join("host1");
    hall.join("host2");
    hall.join("host3");
    welcome_ = *hall.last<Welcome>(first);
    record_ = *hall.saved();
  }
  void come_back(Hall& hall, const std::string& host, int rank) const {
    Join join = hall.a_join(host);
    Held held;
    held.round = record_.last;
    held.founder = record_.founder;
    held.rank = NodeRank(rank);
    held.node_count = 3;
    join.held = held;
    hall.join(join);
  }

  Welcome welcome_;
  Record record_;
};

TEST_F(ElectedCoordinator, IsNamedInTheRecordAndToNoAgentForNobodyTakesItOver) {
  EXPECT_EQ(record_.coordinator, "host1.1");
  EXPECT_EQ(welcome_.coordinator, "");
}

TEST_F(ElectedCoordinator, OfTheOneBeforeLittleIsExpectedOnceAllOthersAreBack) {
  Hall hall(record_, elected("host2.1"));
  come_back(hall, "host2", 1);
  come_back(hall, "host3", 2);
  hall.pass(milliseconds(900));
  EXPECT_EQ(hall.phase(), RoundPhase::recovering);
  hall.pass(milliseconds(200));
  EXPECT_NE(hall.phase(), RoundPhase::recovering);
}

TEST_F(ElectedCoordinator, OfAnyOtherThatIsMissingMoreIs) {
  Hall hall(record_, elected("host2.1"));
  come_back(hall, "host1", 0);
  come_back(hall, "host2", 1);
  hall.pass(seconds(4));
  EXPECT_EQ(hall.phase(), RoundPhase::recovering);
}

TEST_F(ElectedCoordinator, ItsNodeThatComesBackGoesOn) {
  Hall hall(record_, elected("host2.1"));
  come_back(hall, "host2", 1);
  come_back(hall, "host3", 2);
  hall.pass(milliseconds(500));
  come_back(hall, "host1", 0);
  EXPECT_EQ(hall.phase(), RoundPhase::sealed);
}

}  // namespace
}  // namespace distrun::rendezvous
