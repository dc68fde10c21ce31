// A fixture with a console of two pipes (or whatever the test gives it), real children, and an
// Output between them.  Children are forked functions: they write with write(2) and end with _exit.
#pragma once

#include "agent/process/console.h"
#include "agent/process/output.h"
#include "runtime/base/log.h"

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <poll.h>
#include <signal.h>
#include <sstream>
#include <stdlib.h>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace distrun::agent {

inline void write_fully(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n <= 0) ::_exit(99);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

inline std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

class OutputTest : public ::testing::Test {
 protected:
  using Stream = Output::Stream;
  static constexpr StreamSet kBoth{true, true};
  static constexpr Duration kLimit = std::chrono::seconds(30);

  void SetUp() override {
    char path[] = "/tmp/distrun_output_XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    folder_ = path;
    ASSERT_EQ(::pipe2(out_, O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(err_, O_CLOEXEC), 0);
    log::set_sink([this](std::string_view line) { told_ += line; });
    resize(1);
  }

  void TearDown() override {
    for (const pid_t child : children_) {
      ::kill(-child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    output_.reset();
    console_.reset();
    log::set_sink({});
    for (const int fd : {out_[0], out_[1], err_[0], err_[1]}) ::close(fd);
    std::filesystem::remove_all(folder_);
  }

  void resize(int nproc) {
    const auto size = static_cast<std::size_t>(nproc);
    spec_.nproc = nproc;
    spec_.log.redirects.assign(size, {});
    spec_.log.tee.assign(size, {});
    spec_.log.on_console.assign(size, true);
  }
  void tee_all() {
    for (StreamSet& set : spec_.log.tee) set = kBoth;
  }

  void open(ConsoleMode mode = ConsoleMode::lines) {
    if (spec_.log.base_dir.empty()) spec_.environment = {{"TMPDIR", folder_}};
    console_.emplace(io_, out_[1], err_[1]);
    output_.emplace(io_, spec_, *console_, mode);
    ASSERT_TRUE(output_->open_round(0));
  }

  pid_t start(int local_rank, const std::function<void()>& body) {
    const auto streams = output_->open_streams(LocalRank(local_rank), Rank(local_rank));
    EXPECT_TRUE(streams) << (streams ? "" : streams.error().detail);
    const pid_t child = ::fork();
    if (child == 0) {
      ::setpgid(0, 0);
      ::signal(SIGPIPE, SIG_DFL);
      ::dup2(streams->out, 1);
      ::dup2(streams->err, 2);
      ::closefrom(3);
      body();
      ::_exit(0);
    }
    ::setpgid(child, child);
    output_->close_child_ends(LocalRank(local_rank));
    children_.push_back(child);
    return child;
  }

  // Reaps without running the loop; what it knows afterwards, it knows from worker_exited alone.
  int wait_for(pid_t child, int local_rank) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    std::erase(children_, child);
    output_->worker_exited(LocalRank(local_rank));
    return status;
  }

  // What the console's reader has; called by run_until on the way.
  void read_console() {
    read_some(out_[0], console_out_);
    read_some(err_[0], console_err_);
  }
  static void read_some(int fd, std::string& to) {
    pollfd ready{fd, POLLIN, 0};
    while (::poll(&ready, 1, 0) > 0 && (ready.revents & POLLIN) != 0) {
      char buffer[65536];
      const ssize_t n = ::read(fd, buffer, sizeof buffer);
      if (n <= 0) return;
      to.append(buffer, static_cast<std::size_t>(n));
    }
  }

  // Runs the loop, and the console's reader beside it, until `done`.  False: not within kLimit.
  bool run_until(const std::function<bool()>& done, bool read = true) {
    const TimePoint deadline = Clock::now() + kLimit;
    while (true) {
      if (read) read_console();
      if (done()) return true;
      if (Clock::now() > deadline) return false;
      io_.restart();
      io_.run_one_for(std::chrono::milliseconds(5));
    }
  }
  bool run_until_drained(bool read = true) {
    bool drained = false;
    output_->when_drained([&drained] { drained = true; });
    const bool done = run_until([&drained] { return drained; }, read);
    if (read) read_console();
    return done;
  }

  boost::asio::io_context io_{1};
  Spec spec_;
  std::optional<Console> console_;
  std::optional<Output> output_;
  int out_[2] = {-1, -1};
  int err_[2] = {-1, -1};
  std::string folder_;
  std::string console_out_;
  std::string console_err_;
  std::string told_;
  std::vector<pid_t> children_;
};

}  // namespace distrun::agent
