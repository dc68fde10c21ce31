// Ranks for tests of shared memory: as processes, which can be killed, or as threads.
#pragma once

#include "runtime/worker/call.h"
#include <distrun/store.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

namespace distrun::shm::test {

using namespace std::chrono_literals;

// What a rank does, given a store that it shares with the others; what it returns is its report.
using Body = std::function<std::string(int rank, Store& store)>;

// A file that is gone at the end of the test.
class TemporaryFile {
 public:
  TemporaryFile();
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// One process for each rank.  An exception of a body is its report.
class Processes {
 public:
  Processes(int ranks, const Body& body);
  ~Processes();  // kills what is left
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  pid_t pid(int rank) const { return ranks_[static_cast<std::size_t>(rank)].pid; }
  void signal(int rank, int number) const;
  // What a rank has said so far by say(), waiting for `text` to be in it.  False: it did not come.
  bool has_said(int rank, const std::string& text);
  // Waits for all, but at most so long; "killed by 9" of one that was, "hung" of one that hangs.
  std::vector<std::string> reports(std::chrono::seconds at_most = 60s);

 private:
  struct Rank {
    pid_t pid = -1;
    int said = -1;  // the reading end of a pipe
    std::string text;
  };
  bool read_some(Rank& rank, std::chrono::milliseconds at_most);
  TemporaryFile file_;
  std::vector<Rank> ranks_;
};

// In a body that runs in a process: part of its report, at once.
void say(const std::string& text);

std::vector<std::string> run_processes(int ranks, const Body& body);
std::vector<std::string> run_threads(int ranks, const Body& body);

// By the deadline that every test has; fails the body if there is no shared memory.
std::unique_ptr<CallRunner> connect(Store& store, int rank, int size);

// "lost 1: its process ended", "late 1 2", "differ 1: rank 0 called …" or "" for what it throws.
std::string outcome_of(const std::function<void()>& step);

TimePoint soon(std::chrono::milliseconds after = 20s);

// An all_reduce sum in place, or a barrier.
Call all_reduce_call(std::vector<float>& data, std::uint64_t sequence = 0);
Call barrier_call(std::uint64_t sequence = 0);

}  // namespace distrun::shm::test
