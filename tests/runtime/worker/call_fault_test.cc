// A rank that is killed, stopped, late, or calls something else, in each call of a group, over each
// carrier: what the others are told, whom it names, and when.  Each case prints what was seen.
#include "tests/runtime/worker/every_call.h"
#include "tests/runtime/worker/hosts_store.h"
#include "tests/runtime/worker/process_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <map>
#include <memory>
#include <sys/file.h>
#include <thread>
#include <tuple>
#include <vector>

namespace distrun {
namespace {

using namespace std::chrono_literals;
using test::CallCase;
using test::kVictim;
using test::Rank;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

enum class Fault { killed, stopped, late, wrong };
// On two levels: hosts of as many ranks each, and not.
enum class Carrier { shared_memory, gloo, two_levels, even_hosts };

const char* to_string(Fault fault) {
  constexpr std::array kNames{"killed", "stopped", "late", "wrong"};
  return kNames[static_cast<std::size_t>(fault)];
}
const char* to_string(Carrier carrier) {
  constexpr std::array kNames{"shared_memory", "gloo", "two_levels", "even_hosts"};
  return kNames[static_cast<std::size_t>(carrier)];
}

// The victim shares a host with rank 0, for which others wait.
std::vector<int> hosts_of(Carrier carrier) {
  if (carrier == Carrier::two_levels) return {0, 0, 1};
  if (carrier == Carrier::even_hosts) return {0, 0, 1, 1};
  return {0, 0, 0};
}
int ranks_of(Carrier carrier) {
  return static_cast<int>(hosts_of(carrier).size());
}

// Well above what goes with the agreement, so that it happens in the middle of moving data, too.
constexpr std::size_t kCount = 40'000;

// Of one call, where its time is to run out: long enough for a busy machine to be none of the
// reasons.
constexpr Timeout kTime = 3s;

// How much later than it should the error may come.
constexpr auto kMargin = 8s;

// What one rank saw.
struct Seen {
  std::string error = "nothing";
  int peer = -1;
  long ms = 0;  // from the beginning of the call that failed
  std::string text;

  std::string encode() const {
    return error + " " + std::to_string(peer) + " " + std::to_string(ms) + " " + text;
  }
  static Seen decode(const std::string& report) {
    Seen seen;
    std::istringstream in(report);
    in >> seen.error >> seen.peer >> seen.ms;
    in.get();
    std::getline(in, seen.text, '\0');
    return seen;
  }
};

// Calls it until it fails.
Seen call_until_failure(ProcessGroup& group, const CallCase& of, std::size_t more,
                        const CallOptions& options) {
  Seen seen;
  const auto saw = [&](const char* error, const DistError& what, Clock::time_point since) {
    seen.error = error;
    seen.peer = what.peer_rank().value_or(-1);
    seen.text = what.what();
    seen.ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since).count();
    return seen;
  };
  for (;;) {
    const auto start = Clock::now();
    try {
      of.call(group, kCount, more, options);
    } catch (const DistTimeoutError& error) {
      return saw("DistTimeoutError", error, start);
    } catch (const DistBackendError& error) {
      return saw("DistBackendError", error, start);
    } catch (const DistError& error) {
      return saw("DistError", error, start);
    }
  }
}

// Not while it holds the lock of the file that is the store, which would hold up everybody: a child
// holds that meanwhile.
void signal_this_process_soon(int signal, const std::string& store) {
  std::thread([signal, store] {
    std::this_thread::sleep_for(30ms);  // somewhere in the middle of a call
    const int fd = ::open(store.c_str(), O_RDWR | O_CLOEXEC);
    ::flock(fd, LOCK_EX);
    if (::fork() != 0) return;
    ::kill(::getppid(), signal);
    ::usleep(5'000);
    ::flock(fd, LOCK_UN);
    ::_exit(0);
  }).detach();
}

class Trial {
 public:
  Trial(const CallCase& of, Fault fault, Carrier carrier) : fault_(fault), carrier_(carrier) {
    for (int rank = 0; rank < ranks_of(carrier); ++rank)
      ranks_.emplace_back(dir_, rank, [this, &of, rank] { return body(of, rank); });
  }
  std::vector<Seen> seen() {
    for (int rank = 0; rank < ranks_of(carrier_); ++rank)
      if (rank != kVictim) at(rank).join();
    if (fault_ == Fault::stopped) ::kill(victim(), SIGKILL);
    at(kVictim).join();
    std::vector<Seen> all;
    for (int rank = 0; rank < ranks_of(carrier_); ++rank)
      all.push_back(Seen::decode(at(rank).report()));
    return all;
  }
  pid_t victim() { return at(kVictim).pid(); }

 private:
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  std::string body(const CallCase& of, int rank) const {
    // Objects take the time of the group; all have joined long before that is over.
    const bool short_group = of.kind == CallCase::Kind::of_objects && fault_ != Fault::killed;
    std::shared_ptr<Store> own = std::make_shared<FileStore>(dir_ / "store");
    const auto hosts = hosts_of(carrier_);
    if (hosts.back() != 0) own = std::make_shared<test::HostsStore>(hosts, own);
    const auto world =
        test::join_by_file(dir_, rank, ranks_of(carrier_), short_group ? 6s : 60s, own);
    world->barrier();
    const bool victim = rank == kVictim;
    const bool timed = fault_ == Fault::stopped || fault_ == Fault::late;
    CallOptions options;
    // Who is late has time enough himself.
    if (timed && !(victim && fault_ == Fault::late)) options.timeout = kTime;
    FileStore store(dir_ / "store", -1, 60s);
    if (victim) {
      if (fault_ == Fault::killed) signal_this_process_soon(SIGKILL, dir_ / "store");
      if (fault_ == Fault::stopped) signal_this_process_soon(SIGSTOP, dir_ / "store");
      if (fault_ == Fault::late) store.wait({"failed"});
    }
    const Seen seen =
        call_until_failure(*world, of, victim && fault_ == Fault::wrong ? 1 : 0, options);
    if (rank == 0) store.set("failed", "1");
    return seen.encode();
  }

  const Fault fault_;
  const Carrier carrier_;
  test::TempFolder dir_;
  std::vector<Rank> ranks_;
};

struct Outcome {
  std::vector<Seen> seen;
  pid_t victim = 0;
};

std::vector<CallCase> all_calls() {
  auto calls = test::collective_calls();
  for (auto more : {test::calls_between_two(), test::calls_of_objects()})
    calls.insert(calls.end(), more.begin(), more.end());
  return calls;
}
const CallCase& call_named(const std::string& name) {
  static const std::vector<CallCase> all = all_calls();
  for (const CallCase& call : all)
    if (call.name == name) return call;
  throw std::out_of_range(name);
}

using Param = std::tuple<Fault, Carrier, std::string>;

// Much of their time they wait, so a few run at once: when one is asked for, also those that will
// be next.
std::vector<Param> cases();
const Outcome& outcome_of(const Param& of) {
  constexpr std::size_t kAtOnce = 6;
  static std::map<Param, Outcome> known;
  if (const auto found = known.find(of); found != known.end()) return found->second;
  const auto& [fault, carrier, name] = of;
  ::setenv("DISTRUN_SHARED_MEMORY", carrier == Carrier::gloo ? "0" : "1", 1);
  std::vector<std::pair<Param, std::unique_ptr<Trial>>> trials;
  const auto all = cases();
  for (auto at = std::find(all.begin(), all.end(), of); at != all.end(); ++at) {
    if (std::get<Fault>(*at) != fault || std::get<Carrier>(*at) != carrier) break;
    if (trials.size() == kAtOnce) break;
    trials.emplace_back(
        *at, std::make_unique<Trial>(call_named(std::get<std::string>(*at)), fault, carrier));
  }
  for (auto& [which, trial] : trials) {
    Outcome& outcome = known[which];
    outcome.victim = trial->victim();
    outcome.seen = trial->seen();
  }
  return known.at(of);
}

class FaultInCall : public ::testing::TestWithParam<Param> {};

TEST_P(FaultInCall, IsToldToTheOtherRanks) {
  const auto& [fault, carrier, name] = GetParam();
  const Outcome& outcome = outcome_of(GetParam());
  const std::string victim = "rank " + std::to_string(kVictim);
  // Who would have sent, nobody knows.
  const bool from_any = name == "recv_from_any";
  constexpr const char* kNobody = ": nobody sent anything within ";
  for (int rank = 0; rank < ranks_of(carrier); ++rank) {
    const Seen& seen = outcome.seen[static_cast<std::size_t>(rank)];
    if (rank == kVictim && (fault == Fault::killed || fault == Fault::stopped)) continue;
    std::printf("%s | %s | %s | rank %d: %s, peer %d, %ld ms: %s\n", name.c_str(), to_string(fault),
                to_string(carrier), rank, seen.error.c_str(), seen.peer, seen.ms,
                seen.text.c_str());
    SCOPED_TRACE("rank " + std::to_string(rank) + ": " + seen.text);
    EXPECT_LT(std::chrono::milliseconds(seen.ms), kTime + kMargin);
    switch (fault) {
      case Fault::killed:
        EXPECT_EQ(seen.error, "DistBackendError");
        EXPECT_EQ(seen.peer, kVictim);
        EXPECT_THAT(seen.text, HasSubstr(victim + " (pid " + std::to_string(outcome.victim)));
        EXPECT_THAT(seen.text, HasSubstr(" is gone"));
        break;
      case Fault::stopped:
        EXPECT_EQ(seen.error, "DistTimeoutError");
        if (seen.text.find(kNobody) != std::string::npos && from_any) break;
        EXPECT_EQ(seen.peer, kVictim);
        EXPECT_THAT(seen.text,
                    HasSubstr(": " + victim + " (pid " + std::to_string(outcome.victim)));
        EXPECT_THAT(seen.text, HasSubstr(" did not take part within "));
        break;
      case Fault::late:
        // The one that comes too late hears that it is the reason, and has none else to name.
        EXPECT_THAT(seen.error, AnyOf("DistTimeoutError", "DistBackendError"));
        if (from_any) {
          EXPECT_THAT(seen.text, HasSubstr(kNobody));
          break;
        }
        EXPECT_EQ(seen.peer, rank == kVictim ? -1 : kVictim);
        EXPECT_THAT(seen.text,
                    HasSubstr(": " + victim + " (pid " + std::to_string(outcome.victim)));
        EXPECT_THAT(seen.text, HasSubstr(" did not take part within "));
        break;
      case Fault::wrong:
        EXPECT_EQ(seen.error, "DistBackendError");
        // The calls of two ranks, one of which is this or does not fit the others'.
        EXPECT_NE(seen.peer, -1);
        EXPECT_NE(seen.peer, rank);
        EXPECT_THAT(seen.text, ContainsRegex(": rank [0-3] called .* rank [0-3], which called |"
                                             ": rank [0-3] called .*, rank [0-3] called "));
        EXPECT_THAT(seen.text, HasSubstr(victim));
        EXPECT_THAT(seen.text, HasSubstr("they differ in "));
        break;
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<Param>& info) {
  const auto& [fault, carrier, name] = info.param;
  return std::string(to_string(fault)) + "_" + to_string(carrier) + "_" + name;
}

bool carries(Carrier carrier, const CallCase& call) {
  // Sends and receives go over Gloo, whatever the collectives do.
  if (carrier == Carrier::gloo) return true;
  if (call.kind != CallCase::Kind::collective) return false;
  if (carrier == Carrier::shared_memory) return true;
  // On two levels go these; the others over Gloo.
  const auto is = [&](const char* name) { return call.name == name; };
  if (is("broadcast") || call.name.starts_with("all_reduce")) return true;
  return carrier == Carrier::even_hosts &&
         (is("reduce") || is("all_gather") || is("reduce_scatter"));
}

std::vector<Param> cases() {
  std::vector<Param> all;
  for (const Fault fault : {Fault::killed, Fault::stopped, Fault::late, Fault::wrong})
    for (const Carrier carrier :
         {Carrier::shared_memory, Carrier::gloo, Carrier::two_levels, Carrier::even_hosts}) {
      for (const CallCase& call : all_calls()) {
        if (!carries(carrier, call)) continue;
        // Of objects the library itself agrees on the sizes.
        if (call.kind == CallCase::Kind::of_objects && fault == Fault::wrong) continue;
        all.emplace_back(fault, carrier, call.name);
      }
    }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Calls, FaultInCall, ::testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace distrun
