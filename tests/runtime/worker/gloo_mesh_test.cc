// Connections that are made when they are first used, over real sockets: ranks are meshes in one
// process, which share a HashStore.
#include "runtime/worker/gloo/gloo_mesh.h"

#include "runtime/worker/call.h"
#include "runtime/worker/gloo/gloo_transport.h"
#include "runtime/worker/gloo/interfaces.h"
#include "tests/runtime/worker/process_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <sched.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace distrun {
namespace {

using namespace std::chrono_literals;

TimePoint soon() {
  return Clock::now() + 20s;
}

std::shared_ptr<Store> a_store() {
  return std::make_shared<PrefixStore>("mesh", std::make_shared<HashStore>());
}

std::unique_ptr<GlooMesh> a_mesh(
    const std::shared_ptr<Store>& store, int rank, int size,
    std::function<bool(int)> alive = [](int) { return true; }) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  auto mesh = std::make_unique<GlooMesh>(rank, size, attributes);
  mesh->connect_when_used(store, std::move(alive));
  return mesh;
}

TEST(GlooMesh, ReachesARankThatDoesSomethingElse) {
  const auto store = a_store();
  const auto mine = a_mesh(store, 0, 3);
  const auto theirs = a_mesh(store, 1, 3);
  EXPECT_FALSE(mine->connected(1));
  EXPECT_TRUE(mine->reach(1, soon()));
  EXPECT_TRUE(mine->connected(1));
  EXPECT_FALSE(mine->connected(2));
}

TEST(GlooMesh, TwoThatReachForEachOtherAtOnceAreConnectedOnce) {
  for (int round = 0; round < 10; ++round) {
    const auto store = a_store();
    const auto one = a_mesh(store, 0, 2);
    const auto other = a_mesh(store, 1, 2);
    bool reached = false;
    std::thread thread([&] { reached = other->reach(0, soon()); });
    EXPECT_TRUE(one->reach(1, soon()));
    thread.join();
    EXPECT_TRUE(reached);
  }
}

TEST(GlooMesh, AMessageCrossesAConnectionThatIsMadeForIt) {
  const auto store = a_store();
  const auto lives = [](int) { return true; };
  const GlooAddress address{.interfaces = "", .variable = "", .address = "127.0.0.1"};
  const auto sender = connect_gloo_when_used(store, 0, 2, address, lives);
  const auto receiver = connect_gloo_when_used(store, 1, 2, address, lives);
  const std::vector<std::byte> message(100'000, std::byte{7});
  std::vector<std::byte> room(message.size());
  // Of anybody: the receiver need not know who will come.
  const auto received = receiver->receive_any(room, 5);
  ASSERT_TRUE(sender->reach(1, soon()));
  const auto sent = sender->send(1, message, 5);
  EXPECT_TRUE(received->wait(soon()));
  EXPECT_TRUE(sent->wait(soon()));
  EXPECT_EQ(received->peer(), 0);
  EXPECT_EQ(room, message);
  sender->close();
  receiver->close();
}

TEST(GlooMesh, WhoDoesNotAnswerIsNotReachedByTheDeadline) {
  const auto mesh = a_mesh(a_store(), 0, 2);
  EXPECT_FALSE(mesh->reach(1, Clock::now() + 100ms));
}

TEST(GlooMesh, ARankThatHasEndedIsLostAtOnce) {
  const auto mesh = a_mesh(a_store(), 0, 3, [](int rank) { return rank != 2; });
  for (const bool waits : {true, false}) {
    try {
      waits ? mesh->reach(2, soon()) : mesh->connected(2);
      ADD_FAILURE() << "found";
    } catch (const PeerLost& lost) {
      EXPECT_EQ(lost.peer, 2);
    }
  }
}

TEST(GlooMesh, CloseEndsAReachThatIsUnderWay) {
  const auto mesh = a_mesh(a_store(), 0, 2);
  std::thread closing([&] {
    std::this_thread::sleep_for(50ms);
    mesh->close();
  });
  EXPECT_THROW(mesh->reach(1, Clock::now() + 1h), PeerLost);
  closing.join();
}

TEST(GlooMesh, AStoreThatFailsIsNotThePeersFault) {
  const test::TempFolder dir;
  const auto store = std::make_shared<FileStore>(dir / "store");
  const auto mesh = a_mesh(store, 0, 2);
  std::ofstream(dir / "store", std::ios::trunc) << "no longer a store, but something else";
  try {
    mesh->reach(1, soon());
    ADD_FAILURE() << "found";
  } catch (const PeerLost&) {
    ADD_FAILURE() << "blamed";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("connecting to rank 1: "), std::string::npos);
  }
}

// A rank that dies before anybody has reached for it.
TEST(GlooMesh, AKilledRankIsNamedByAReceiveThatNeverConnected) {
  const test::TempFolder dir;
  std::vector<test::Rank> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back(dir, rank, [&, rank]() -> std::string {
      const auto group = test::join_by_file(dir, rank, 2);
      group->barrier();
      if (rank == 1) ::kill(::getpid(), SIGKILL);
      std::vector<float> value(1);
      group->recv(value, 1);
      return "received";
    });
  for (auto& rank : ranks) rank.join();
  const std::string report = ranks[0].report();
  EXPECT_EQ(report.find("peer 1: "), 0U) << report;
  EXPECT_NE(report.find(" is gone"), std::string::npos) << report;
}

// ---- interfaces --------------------------------------------------------------------------------

std::string refusal(const std::string& names) {
  try {
    return "took " + usable_interface(names, "GLOO_SOCKET_IFNAME");
  } catch (const DistArgumentError& error) {
    return error.what();
  }
}

TEST(Interfaces, AnUnknownOneIsNamedWithThoseThatAreThere) {
  const std::string text = refusal("lo,nosuch0");
  EXPECT_EQ(text.find("GLOO_SOCKET_IFNAME=lo,nosuch0: no network interface is called \"nosuch0\"; "
                      "there are: "),
            0U)
      << text;
  EXPECT_NE(text.find("lo (127.0.0.1)"), std::string::npos) << text;
}

TEST(Interfaces, ACommaTooManyIsRefused) {
  EXPECT_NE(refusal("lo,").find("no network interface is called \"\""), std::string::npos);
}

// In a network of its own: `one` is down, `two` has no address, `three` has one.
TEST(Interfaces, TheFirstThatCanBeUsedIsTaken) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNET) != 0) ::_exit(77);
    // NOLINTNEXTLINE(cert-env33-c,concurrency-mt-unsafe)
    if (std::system("PATH=$PATH:/usr/sbin:/sbin; ip link set lo up && ip link add one type veth "
                    "peer name two && ip link add three type veth peer name four && "
                    "ip link set two up && ip addr add 10.9.8.7/24 dev three && "
                    "ip link set three up") != 0)
      ::_exit(77);
    const std::string none = refusal("one,two");
    const bool right =
        refusal("one,two,three,lo") == "took three" &&
        none.find("none can be used: one: it is down, two: it has no address") != std::string::npos;
    if (!right) std::fprintf(stderr, "%s\n", none.c_str());
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no network namespace, or no ip, here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Interfaces, AGroupThatIsToUseAnUnknownOneIsRefusedOnAllRanks) {
  const test::TempFolder dir;
  std::vector<test::Rank> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back(dir, rank, [&, rank]() -> std::string {
      ::setenv("GLOO_SOCKET_IFNAME", rank == 0 ? "lo" : "nosuch0", 1);
      ::setenv("DISTRUN_SHARED_MEMORY", "0", 1);
      test::join_by_file(dir, rank, 2);
      return "joined";
    });
  for (auto& rank : ranks) {
    rank.join();
    EXPECT_NE(rank.report().find("no network interface is called \"nosuch0\""), std::string::npos)
        << rank.report();
  }
}

TEST(Interfaces, ANameWithoutAnAddressIsRefused) {
  EXPECT_THROW(numeric_address("no such host"), DistArgumentError);
  EXPECT_EQ(numeric_address("127.0.0.1"), "127.0.0.1");
}

}  // namespace
}  // namespace distrun
