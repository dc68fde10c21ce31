// SshLine: one ssh client, and through it the distrun on a host. Carries bytes both ways, picks
// distrun's own words out of stderr, and gives all the rest to the console in whole lines.
//
//   order, signals, beats ──► stdin      stdout ──► console
//                                        stderr ──► words (host_order.h); the rest: console
//
// What comes on stderr before the host has greeted is held: ssh's warnings, or why it failed. Reads
// only as fast as the console writes. Decides nothing.
#pragma once

#include "agent/process/child.h"
#include "agent/process/console.h"
#include "agent/process/worker_stream.h"
#include "launcher/hosts/host_order.h"
#include "runtime/base/result.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

class SshLine : public std::enable_shared_from_this<SshLine> {
 public:
  struct Ended {
    int status = 0;       // the client's; 128+n for signal n
    bool killed = false;  // by a signal
    std::string words;    // held stderr, if the host had not greeted
  };
  struct Handlers {
    std::function<void(const HostWord&)> word;
    std::function<void(const Ended&)> ended;  // once; all output has been given to the console
  };

  // `owner` tells its lines from other hosts'; `prefix` stands before each. Console outlives it.
  SshLine(boost::asio::io_context& io, agent::Console& console, int owner, std::string prefix,
          std::string mark, Handlers handlers);

  // `executable` is a path; `envp` as for spawn().
  Result<void> start(const std::string& executable, const std::vector<std::string>& argv,
                     const char* const* envp);

  // What does not fit into kOutboxMax means that nobody reads: false, and nothing is sent.
  bool send(std::string_view bytes);
  void hang_up();
  void resume();  // the console has room again
  pid_t pid() const { return child_ ? child_->pid() : 0; }

 private:
  static constexpr std::size_t kOutboxMax = std::size_t{16} << 20;
  static constexpr std::size_t kHeldMax = 65536;

  void write();
  void read_errors();
  bool take_errors();  // false: nothing was there, or the end
  void take(std::string_view bytes);
  void take_line(std::string_view line);
  void pass_on(std::string_view text);
  void pass_on_unfinished();
  void on_exit(agent::ExitStatus status);

  agent::Console& console_;
  int owner_;
  std::string prefix_;
  std::string mark_;
  Handlers handlers_;
  agent::Exits exits_;
  std::optional<agent::Child> child_;
  boost::asio::io_context& io_;
  boost::asio::posix::stream_descriptor in_;
  boost::asio::posix::stream_descriptor err_;
  std::shared_ptr<agent::WorkerStream> out_;
  boost::asio::steady_timer unfinished_timer_;
  std::string outbox_;
  bool writes_ = false;
  bool reads_ = false;
  std::string line_;  // of stderr, its end not seen yet
  bool greeted_ = false;
  std::string early_;  // stderr until the greeting
};

}  // namespace distrun::launcher
