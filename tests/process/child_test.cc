// Real children: spawn's stages, and the order of deaths.
#include "agent/process/child.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fcntl.h>
#include <memory>
#include <numeric>
#include <random>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

namespace distrun::agent {
namespace {

SpawnRequest scripted(std::vector<std::string> arguments) {
  static const bool prepared = (prepare_process(), true);
  EXPECT_TRUE(prepared);
  SpawnRequest request;
  request.executable = SCRIPTED_WORKER;
  request.argv = {SCRIPTED_WORKER};
  request.envp = environ;
  request.argv.insert(request.argv.end(), arguments.begin(), arguments.end());
  return request;
}

ExitStatus run(const SpawnRequest& request) {
  boost::asio::io_context io(1);
  Exits exits(io);
  auto spawned = spawn(request, exits.epoll());
  EXPECT_TRUE(spawned.has_value());
  ExitStatus status;
  Child child(exits, *spawned, [&](ExitStatus s) { status = s; });
  io.run_for(std::chrono::seconds(20));
  EXPECT_FALSE(child.running());
  return status;
}

TEST(Child, TellsExitStatusAndSignalApart) {
  EXPECT_EQ(run(scripted({"exit", "13"})), ExitStatus(ExitedWith{13}));
  EXPECT_EQ(run(scripted({"die", "9"})), ExitStatus(KilledBy{SIGKILL}));
}

TEST(Child, LeadsItsOwnGroupSoThatASignalReachesItsChildren) {
  boost::asio::io_context io(1);
  Exits exits(io);
  auto spawned = spawn(scripted({"child", "forever"}), exits.epoll());
  ASSERT_TRUE(spawned.has_value());
  bool ended = false;
  Child child(exits, *spawned, [&](ExitStatus) { ended = true; });
  child.signal(SIGKILL, Target::group);
  io.run_for(std::chrono::seconds(20));
  EXPECT_TRUE(ended);
  // The worker's child belongs to init by now, which may take its time to reap it.
  const TimePoint deadline = Clock::now() + std::chrono::seconds(20);
  while (::kill(-spawned->pid, 0) == 0 && Clock::now() < deadline) ::usleep(1000);
  EXPECT_NE(::kill(-spawned->pid, 0), 0);
}

TEST(Child, DeathsAreReportedInTheKernelsOrderNotInTheirNumbers) {
  constexpr int kCount = 40;
  boost::asio::io_context io(1);
  Exits exits(io);
  std::vector<std::unique_ptr<Child>> children;
  std::vector<int> reported;
  for (int i = 0; i < kCount; ++i) {
    auto spawned = spawn(scripted({"forever"}), exits.epoll());
    ASSERT_TRUE(spawned.has_value());
    children.push_back(
        std::make_unique<Child>(exits, *spawned, [&, i](ExitStatus) { reported.push_back(i); }));
  }
  std::vector<int> order(kCount);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
  // All die before the loop looks once.  A child counts as dead when the kernel made it a zombie.
  for (const int i : order) {
    ::kill(children[static_cast<std::size_t>(i)]->pid(), SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(children[static_cast<std::size_t>(i)]->pid()), &info,
             WEXITED | WNOWAIT);
  }
  io.run_for(std::chrono::seconds(20));
  EXPECT_EQ(reported, order);
}

// Who starts it may be held up between its start and the first look at it.
TEST(Child, ADeathThatCameBeforeTheChildWasWatchedHasItsPlaceInTheOrder) {
  boost::asio::io_context io(1);
  Exits exits(io);
  std::vector<int> reported;
  const auto wait_for_death = [](pid_t pid) {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  };
  auto victim = spawn(scripted({"forever"}), exits.epoll());
  ASSERT_TRUE(victim.has_value());
  Child first(exits, *victim, [&](ExitStatus) { reported.push_back(0); });
  auto culprit = spawn(scripted({"exit", "13"}), exits.epoll());
  ASSERT_TRUE(culprit.has_value());
  wait_for_death(culprit->pid);
  first.signal(SIGKILL, Target::process);
  wait_for_death(victim->pid);
  Child second(exits, *culprit, [&](ExitStatus) { reported.push_back(1); });
  io.run_for(std::chrono::seconds(20));
  EXPECT_EQ(reported, (std::vector<int>{1, 0}));
}

TEST(Spawn, SaysAtWhichStageItFailed) {
  boost::asio::io_context io(1);
  Exits exits(io);
  SpawnRequest request = scripted({});
  request.executable = "/nowhere/at/all";
  auto missing = spawn(request, exits.epoll());
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().stage, ExecStage::exec);
  EXPECT_EQ(missing.error().errno_value, ENOENT);

  request = scripted({});
  request.cpus = {1000};
  auto no_cpu = spawn(request, exits.epoll());
  ASSERT_FALSE(no_cpu.has_value());
  EXPECT_EQ(no_cpu.error().stage, ExecStage::cpus);

  request = scripted({});
  request.out = 999;
  auto no_stream = spawn(request, exits.epoll());
  ASSERT_FALSE(no_stream.has_value());
  EXPECT_EQ(no_stream.error().stage, ExecStage::streams);
  EXPECT_EQ(no_stream.error().errno_value, EBADF);
}

TEST(Spawn, AScriptWhoseInterpreterIsMissingIsExplained) {
  boost::asio::io_context io(1);
  Exits exits(io);
  char path[] = "/tmp/distrun_script_XXXXXX";
  const int fd = ::mkstemp(path);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, "#! /no/such/interpreter -x\n", 27), 27);
  ::fchmod(fd, 0700);
  ::close(fd);
  SpawnRequest request = scripted({});
  request.executable = path;
  auto spawned = spawn(request, exits.epoll());
  ASSERT_FALSE(spawned.has_value());
  EXPECT_EQ(spawned.error().errno_value, ENOENT);
  EXPECT_NE(explain_exec(path, ENOENT).find(", /no/such/interpreter, does not exist"),
            std::string::npos);
  ::unlink(path);
  EXPECT_EQ(explain_exec(path, ENOENT), "");
}

}  // namespace
}  // namespace distrun::agent
