#include "tests/runtime/worker/shm/ranks.h"

#include "runtime/worker/shm/shared_memory.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace distrun::shm::test {
namespace {

int report_fd = -1;  // of a process that is a rank

std::string run_body(const Body& body, int rank, Store& store) {
  try {
    return body(rank, store);
  } catch (const std::exception& error) {
    return std::string("threw: ") + error.what();
  }
}

}  // namespace

TemporaryFile::TemporaryFile() {
  std::string name = "/tmp/distrun-shm-test-XXXXXX";
  const int fd = ::mkstemp(name.data());
  if (fd < 0) throw std::runtime_error("mkstemp");
  ::close(fd);
  path_ = name;
}

TemporaryFile::~TemporaryFile() {
  ::unlink(path_.c_str());
}

Processes::Processes(int ranks, const Body& body) {
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(ends[0]);
      report_fd = ends[1];
      {
        FileStore store(file_.path(), -1, std::chrono::seconds(20));
        say(run_body(body, rank, store));
      }
      ::_exit(0);
    }
    ::close(ends[1]);
    ranks_.push_back({pid, ends[0], ""});
  }
}

Processes::~Processes() {
  for (Rank& rank : ranks_) {
    if (rank.pid > 0) {
      ::kill(rank.pid, SIGKILL);
      ::waitpid(rank.pid, nullptr, 0);
    }
    ::close(rank.said);
  }
}

void Processes::signal(int rank, int number) const {
  ::kill(pid(rank), number);
}

bool Processes::read_some(Rank& rank, std::chrono::milliseconds at_most) {
  pollfd polled{rank.said, POLLIN, 0};
  if (::poll(&polled, 1, static_cast<int>(at_most.count())) <= 0) return false;
  char bytes[4096];
  const ssize_t size = ::read(rank.said, bytes, sizeof bytes);
  if (size > 0) rank.text.append(bytes, static_cast<std::size_t>(size));
  return size > 0;
}

bool Processes::has_said(int rank, const std::string& text) {
  Rank& its = ranks_[static_cast<std::size_t>(rank)];
  const TimePoint deadline = soon();
  while (its.text.find(text) == std::string::npos) {
    if (Clock::now() >= deadline) return false;
    read_some(its, 50ms);
  }
  return true;
}

std::vector<std::string> Processes::reports(std::chrono::seconds at_most) {
  const TimePoint deadline = Clock::now() + at_most;
  std::vector<std::string> reports;
  for (Rank& rank : ranks_) {
    int status = 0;
    while (::waitpid(rank.pid, &status, WNOHANG) == 0 && Clock::now() < deadline)
      read_some(rank, 5ms);
    if (::kill(rank.pid, 0) == 0) {
      reports.push_back(rank.text + "hung");
      continue;  // the destructor ends it
    }
    rank.pid = -1;
    while (read_some(rank, 0ms)) {
    }
    if (WIFSIGNALED(status)) rank.text += "killed by " + std::to_string(WTERMSIG(status));
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) rank.text += "failed";
    reports.push_back(rank.text);
  }
  return reports;
}

void say(const std::string& text) {
  if (::write(report_fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) ::_exit(9);
}

std::vector<std::string> run_processes(int ranks, const Body& body) {
  return Processes(ranks, body).reports();
}

std::vector<std::string> run_threads(int ranks, const Body& body) {
  HashStore store;
  std::vector<std::string> reports(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  threads.reserve(reports.size());
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto own = store.clone();
      reports[static_cast<std::size_t>(rank)] = run_body(body, rank, *own);
    });
  for (std::thread& thread : threads) thread.join();
  return reports;
}

std::unique_ptr<CallRunner> connect(Store& store, int rank, int size) {
  SharedMemory shared = connect_shared_memory(store, rank, size, soon());
  if (!shared.runner) throw std::runtime_error("no shared memory: " + shared.why_not);
  return std::move(shared.runner);
}

std::string outcome_of(const std::function<void()>& step) {
  try {
    step();
  } catch (const PeerLost& lost) {
    return "lost " + std::to_string(lost.peer) + ": " + lost.what();
  } catch (const PeersLate& late) {
    std::string text = "late";
    for (const int peer : late.peers) text += " " + std::to_string(peer);
    return text;
  } catch (const CallsDiffer& differ) {
    return "differ " + std::to_string(differ.peer) + ": " + differ.what();
  }
  return "";
}

TimePoint soon(std::chrono::milliseconds after) {
  return Clock::now() + after;
}

Call all_reduce_call(std::vector<float>& data, std::uint64_t sequence) {
  Call call;
  call.op = OpType::all_reduce;
  call.count = data.size();
  call.sequence = sequence;
  call.in = reinterpret_cast<const std::byte*>(data.data());
  call.out = reinterpret_cast<std::byte*>(data.data());
  return call;
}

Call barrier_call(std::uint64_t sequence) {
  Call call;
  call.op = OpType::barrier;
  call.sequence = sequence;
  return call;
}

}  // namespace distrun::shm::test
