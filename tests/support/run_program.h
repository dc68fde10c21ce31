// run_program: starts a real program, feeds nothing, collects what it writes, and gives up after a
// bound.  For the end-to-end tests.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace distrun::test {

struct Ran {
  int status = -1;  // as a shell shows it: n, or 128 + signal
  std::string out;
  std::string err;
  std::chrono::milliseconds took{};
  bool timed_out = false;
};

struct RunOptions {
  std::map<std::string, std::string> environment{};  // beside the test's own
  std::vector<std::string> unset{};                  // names taken out of it
  std::string folder{};                              // working directory
  std::chrono::seconds limit{60};
  // Called in the parent once the program is running, for a test that sends signals.
  std::function<void(pid_t)> meanwhile{};
  bool own_group = false;  // its own process group, as an interactive shell gives it
};

Ran run_program(const std::vector<std::string>& argv, const RunOptions& options = {});

// A program that runs beside the test.  Killed at the end if it is still there.
class Background {
 public:
  explicit Background(const std::vector<std::string>& argv, const RunOptions& options = {});
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  pid_t pid() const { return pid_; }
  // Its status as above; nullopt: it did not end within the limit.
  std::optional<int> wait(std::chrono::milliseconds limit);
  std::string out() const;
  std::string err() const;

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
  std::string folder_;
};

// A fresh folder, removed with all that is in it at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string read_file(const std::string& path);
bool wait_for(const std::function<bool()>& condition, std::chrono::milliseconds limit);
// pids of living processes (not zombies) whose /proc/PID/environ or command line holds `marker`.
std::vector<pid_t> processes_with(const std::string& marker);

}  // namespace distrun::test
