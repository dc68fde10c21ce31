// Ranks as processes, which can die as processes do.
#pragma once

#include "tests/support/run_program.h"
#include <distrun/process_group.h>

#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace distrun::test {

// A rank in a process of its own.  What `body` returns, or the error that ends it, is its report.
class Rank {
 public:
  Rank(const TempFolder& dir, int rank, const std::function<std::string()>& body)
      : report_(dir / ("report" + std::to_string(rank))) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    std::string text;
    try {
      text = body();
    } catch (const DistError& error) {
      text = "peer " + std::to_string(error.peer_rank().value_or(-1)) + ": " + error.what();
    }
    std::ofstream(report_) << text;
    ::_exit(0);
  }
  pid_t pid() const { return pid_; }
  // Its wait status, once it has ended.
  int join() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return status;
  }
  std::string report() const {
    std::ostringstream out;
    out << std::ifstream(report_).rdbuf();
    return out.str();
  }

 private:
  std::string report_;
  pid_t pid_;
};

// `store`: null: a FileStore there.
inline std::shared_ptr<ProcessGroup> join_by_file(const TempFolder& dir, int rank, int size,
                                                  Timeout timeout = std::chrono::seconds(20),
                                                  std::shared_ptr<Store> store = nullptr) {
  if (!store) store = std::make_shared<FileStore>(dir / "store");
  return init_process_group("gloo", {.timeout = timeout,
                                     .store = std::move(store),
                                     .rank = rank,
                                     .world_size = size,
                                     .name = "g"});
}

}  // namespace distrun::test
