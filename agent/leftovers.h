// Leftovers: ends what a round's workers left behind, and tells when nothing of it is alive.
//
// A round's processes are all descendants of the agent (process/descendants.h) that are not live
// workers.  There is no event for "a stranger's last process has ended", so this looks again and
// again, quickly at first.  In the common case, no child at all, the first look is one system call.
#pragma once

#include "runtime/base/time.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <vector>

namespace distrun::agent {

class Leftovers {
 public:
  struct Request {
    int signo = 0;
    std::vector<pid_t> told;  // process groups that have had this signal
  };

  explicit Leftovers(boost::asio::io_context& io) : timer_(io) {}

  // Those that stay are named in the log after a second.
  //
  // Sends the signal (SIGKILL: to whatever appears, until nothing does; others: once) and calls
  // `gone` when a look finds none, perhaps at once.  Replaces an earlier request.  `workers_now` is
  // asked at each look.
  void stop(Request request, std::function<std::vector<pid_t>()> workers_now,
            std::function<void()> gone);
  void cancel();

 private:
  void look();
  bool find_and_signal(const std::vector<pid_t>& workers);  // whether anything was there

  boost::asio::steady_timer timer_;
  Request request_;
  std::function<std::vector<pid_t>()> workers_now_;
  std::function<void()> gone_;
  bool signalled_ = false;
  Duration pause_{};
  TimePoint asked_{};
  bool named_ = false;
  int serial_ = 0;
};

}  // namespace distrun::agent
