// Coming together: who is on one host, who is not let in, and what there is no shared memory for.
#include "runtime/worker/shm/join.h"

#include "runtime/worker/shm/host.h"
#include "runtime/worker/shm/shared_memory.h"
#include "runtime/worker/shm/unix_socket.h"
#include "tests/runtime/worker/shm/ranks.h"
#include <distrun/error.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <random>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace distrun::shm::test {
namespace {

using Strings = std::vector<std::string>;

std::string why_not(Store& store, int rank, int size) {
  const SharedMemory shared = connect_shared_memory(store, rank, size, soon());
  return shared.runner ? "joined" : shared.why_not;
}

Strings alike(int ranks, const std::string& text) {
  return Strings(static_cast<std::size_t>(ranks), text);
}

std::string works(Store& store, int rank, int size) {
  const auto runner = connect(store, rank, size);
  std::vector<float> data{1};
  runner->run(all_reduce_call(data), soon());
  return data.front() == static_cast<float>(size) ? "works" : "wrong";
}

int open_files() {
  int count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

// ---- hosts -------------------------------------------------------------------------------------

TEST(ShmHost, HostsAreCountedInTheOrderOfTheirFirstRanks) {
  using Hosts = std::vector<int>;
  EXPECT_EQ(number_hosts(Strings{"x", "y", "x", "z", "y"}), (Hosts{0, 1, 0, 2, 1}));
  EXPECT_EQ(number_hosts(Strings{"", "x", "", "x"}), (Hosts{0, 1, 2, 1}));
  EXPECT_EQ(number_hosts(Strings{}), Hosts{});
}

TEST(ShmHost, AllRanksOfThisMachineAreOnOneHost) {
  const HostIdentity host = this_host();
  EXPECT_EQ(host.why_not, "");
  EXPECT_EQ(host.text, this_host().text);
}

TEST(ShmHost, EveryRankLearnsTheHostsOfAll) {
  const Strings names{"a", "b", "", "b", "a"};
  const Strings reports = run_threads(5, [&](int rank, Store& store) {
    std::string text;
    for (const int host :
         exchange_hosts(store, rank, 5, names[static_cast<std::size_t>(rank)], soon()))
      text += std::to_string(host);
    return text;
  });
  EXPECT_EQ(reports, alike(5, "01210"));
}

TEST(ShmHost, ARankThatDoesNotTellItsHostIsNamed) {
  HashStore store;
  store.set("host/2", "x");
  try {
    exchange_hosts(store, 0, 4, "x", soon(50ms));
    FAIL();
  } catch (const DistTimeoutError& error) {
    EXPECT_STREQ(error.what(), "setting up shared memory: waited in vain for rank(s) 1, 3");
    EXPECT_EQ(error.peer_rank(), 1);
  }
}

// ---- no shared memory, and everybody knows -----------------------------------------------------

TEST(ShmJoin, IfItIsSwitchedOffOnOneRankNoneHasIt) {
  const Strings reports = run_processes(3, [](int rank, Store& store) {
    if (rank == 1) ::setenv("DISTRUN_SHARED_MEMORY", "0", 1);
    return why_not(store, rank, 3);
  });
  EXPECT_EQ(reports, alike(3, "rank 1: switched off by DISTRUN_SHARED_MEMORY=0"));
}

TEST(ShmJoin, RanksOfDifferentHostsHaveNone) {
  const Strings reports = run_threads(3, [](int rank, Store& store) {
    return join(store, rank, 3, {rank == 2 ? "there" : "here", ""}, soon()).why_not;
  });
  EXPECT_EQ(reports, alike(3, "ranks 0 and 2 are on different hosts"));
}

TEST(ShmJoin, ARankThatMayHaveNoMemoryIsNamedByAll) {
  const Strings reports = run_processes(3, [](int rank, Store& store) {
    // Enough for the store's file, and for the first look at what this host can do.
    const rlimit low{16 * kPage, 16 * kPage};
    if (rank == 2) ::setrlimit(RLIMIT_FSIZE, &low);
    return why_not(store, rank, 3);
  });
  EXPECT_EQ(reports, alike(3, reports[0]));
  EXPECT_TRUE(reports[0].starts_with("rank 2: the limit on the size of files (ulimit -f) is below"))
      << reports[0];
}

TEST(ShmJoin, ARankThatMayOpenNoMoreFilesIsNamedByAll) {
  const Strings reports = run_processes(4, [](int rank, Store& store) {
    if (rank == 3) {
      const rlim_t next = static_cast<rlim_t>(::dup(0));
      ::close(static_cast<int>(next));
      const rlimit low{next + 7, next + 7};
      ::setrlimit(RLIMIT_NOFILE, &low);
    }
    return why_not(store, rank, 4);
  });
  EXPECT_EQ(reports, alike(4, "rank 3: receiving descriptors: Too many open files"));
}

TEST(ShmJoin, MoreRanksThanFitAreToldSoWithoutAskingAnybody) {
  HashStore store;
  EXPECT_NE(why_not(store, 5, kMaxRanks + 1), "joined");
  EXPECT_EQ(store.num_keys(), 0);
}

TEST(ShmJoin, ThreadsBesideProcessesHaveNone) {
  const Strings reports = run_processes(2, [](int rank, Store& store) {
    if (rank == 0) return why_not(store, 0, 3);
    std::string other;
    std::thread thread([&] { other = why_not(*store.clone(), 2, 3); });
    const std::string own = why_not(store, 1, 3);
    thread.join();
    return own == other ? own : "differ";
  });
  EXPECT_EQ(reports, alike(2, "some ranks are threads of one process, and some are not"));
}

// ---- joining fails -----------------------------------------------------------------------------

TEST(ShmJoin, ARankThatNeverComesIsNamedAtTheDeadline) {
  HashStore store;
  try {
    connect_shared_memory(store, 0, 2, soon(50ms));
    FAIL();
  } catch (const DistTimeoutError& error) {
    EXPECT_EQ(error.peer_rank(), 1);
  }
}

TEST(ShmJoin, ARankThatDiesOnTheWayIsNamedByAllOthers) {
  const Strings reports = run_processes(3, [](int rank, Store& store) -> std::string {
    if (rank == 1) {
      store.set("shm/1", this_host().text);
      ::_exit(0);
    }
    try {
      connect_shared_memory(store, rank, 3, soon(500ms));
    } catch (const DistError& error) {
      return error.what();
    }
    return "joined";
  });
  const std::string text = "setting up shared memory: rank 1: it has not come by the deadline";
  EXPECT_EQ(reports, (Strings{text, "", text}));
}

// ---- strangers ---------------------------------------------------------------------------------

TEST(ShmJoin, StrangersAtTheSocketAreTurnedAwayAndHurtNobody) {
  const Strings reports = run_processes(3, [](int rank, Store& store) {
    if (rank != 1) return works(store, rank, 3);
    store.set("shm/1", this_host().text);
    const std::string call = store.get("shm/call");
    const std::string name = call.substr(0, call.size() - 32);
    std::vector<Fd> strangers;
    for (const std::size_t size : {0U, 1U, 8U, 100U, 616U, 5000U}) {
      strangers.push_back(connect_unix(name, soon()));  // stays, and is silent if size is 0
      std::vector<std::byte> garbage(size, std::byte{0x5A});
      const int file = strangers.back().get();
      const std::vector<int> files(size % 3, file);
      try {
        if (size > 0) send_message(strangers.back(), garbage, files, soon());
      } catch (const std::system_error&) {
        // it was turned away already
      }
    }
    return works(store, rank, 3);
  });
  EXPECT_EQ(reports, alike(3, "works"));
}

// A rank that writes what it likes into its own memory: the other gets an error or wrong results,
// in time, and touches nothing that is not its own.
TEST(ShmJoin, NonsenseInARanksMemoryIsAtWorstAWrongResult) {
  constexpr int kTurns = 12;
  const Strings reports = run_processes(2, [](int rank, Store& store) {
    std::mt19937_64 random(4711);
    for (int turn = 0; turn < kTurns; ++turn) {
      PrefixStore own("turn" + std::to_string(turn), store.clone());
      Joined joined = join(own, rank, 2, this_host(), soon());
      if (!joined.membership) return joined.why_not;
      if (rank == 0) {
        Runner runner(std::move(*joined.membership), {.flat_bytes = 64, .chunk_bytes = 256});
        std::vector<float> in(500), out(500);
        Call call = all_reduce_call(in);
        call.op = std::array{OpType::all_reduce, OpType::all_gather, OpType::scatter,
                             OpType::gather,     OpType::all_to_all, OpType::reduce_scatter}
            [static_cast<unsigned>(turn) % 6];
        call.root = turn % 2;
        call.count = call.op == OpType::all_reduce ? 500 : 250;
        for (const std::uint64_t at : {0U, 250U}) {
          call.ins.push_back({reinterpret_cast<std::byte*>(in.data() + at), 250});
          call.outs.push_back({reinterpret_cast<std::byte*>(out.data() + at), 250});
        }
        call.out = call.outs.front().data;
        for (int n = 0; n < 1000; ++n)
          if (!outcome_of([&] { runner.run(call, soon(100ms)); }).empty()) break;
        own.set("done", "1");
        continue;
      }
      const Membership& its = *joined.membership;
      std::byte* const mine = its.segments[1].data();
      const std::byte* const other = its.segments[0].data();
      while (!own.check({"done"}))
        for (int n = 0; n < 200; ++n) {
          // Just like the other's, so that it is believed, but for one place.
          const std::size_t at = its.layout.buffer_at(static_cast<std::uint32_t>(n % 2));
          std::array<std::byte, kLine> post;
          std::memcpy(post.data(), other + at, kLine);
          if (n % 3 != 0) post[random() % kLine] = static_cast<std::byte>(random());
          std::memcpy(mine + at, post.data(), kLine);
          if (n % 7 == 0)
            mine[its.layout.tables_at + random() % 64] = static_cast<std::byte>(random());
          if (n % 50 == 0 && turn % 3 == 0)
            mine[random() % kPage] = static_cast<std::byte>(random());
        }
    }
    return std::string("done");
  });
  EXPECT_EQ(reports, alike(2, "done"));
}

// ---- nothing is left behind --------------------------------------------------------------------

TEST(ShmJoin, AGroupCostsOneOpenFileAndLeavesNone) {
  const Strings reports = run_processes(3, [](int rank, Store& store) {
    connect(store, rank, 3);  // whatever is opened once
    const int before = open_files();
    std::string text;
    for (int turn = 0; turn < 3; ++turn) {
      PrefixStore own(std::to_string(turn), store.clone());
      const int with_store = open_files();
      const auto runner = connect(own, rank, 3);
      text += std::to_string(open_files() - with_store);
    }
    return text + "/" + std::to_string(open_files() - before);
  });
  EXPECT_EQ(reports, alike(3, "111/0"));
}

TEST(ShmJoin, ItsKeysAreGoneFromTheStoreOnceAllHaveJoined) {
  HashStore store;
  std::vector<std::string> reports(3);
  std::vector<std::thread> ranks;
  ranks.reserve(3);
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back(
        [&, rank] { reports[static_cast<std::size_t>(rank)] = works(*store.clone(), rank, 3); });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(reports, alike(3, "works"));
  EXPECT_EQ(store.num_keys(), 0);
}

TEST(ShmJoin, ARankThatEndsByForkingHurtsNobody) {
  const Strings reports = run_processes(2, [](int rank, Store& store) {
    auto runner = connect(store, rank, 2);
    if (const pid_t child = ::fork(); child == 0) {
      runner.reset();  // a copy of the object, and not the rank
      ::_exit(0);
    } else {
      ::waitpid(child, nullptr, 0);
    }
    return outcome_of([&] { runner->run(barrier_call(), soon()); });
  });
  EXPECT_EQ(reports, alike(2, ""));
}

}  // namespace
}  // namespace distrun::shm::test
