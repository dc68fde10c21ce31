// The host's side of a job that another machine starts through ssh: takes the order from stdin,
// tells the starting side what it has to know, and notices when nobody is there any more.
//
//   greeting ──► order ──► run (launcher.h) ──► end
//
// ssh without a terminal ends nothing when its connection closes: whoever is not told lives on. So
// the channel is watched: its end, or kSilenceMax without a word, is taken as a SIGTERM.
#pragma once

#include "launcher/environment.h"
#include "launcher/hosts/host_order.h"
#include "runtime/base/time.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace distrun::launcher {

// Six beats of the starting side.
inline constexpr Duration kSilenceMax = std::chrono::seconds(30);

struct StartingSide {
  int fd = -1;  // close-on-exec
  FrameReader frames;
  std::string mark;
};

// Carries the order out by `run` and returns the status for the program. Workers' stdin is
// /dev/null.
using RunOrder = std::function<int(std::span<const std::string_view> arguments,
                                   const Environment& environment, const StartingSide& side)>;
int run_from_stdin(const Environment& environment, const RunOrder& run);

// Watches the channel while the job runs.
class StartingLine {
 public:
  struct Handlers {
    std::function<void(int signo)> signal;
    std::function<void(const std::string& why)> lost;  // once; nothing is read after it
  };
  StartingLine(boost::asio::io_context& io, const StartingSide& side, Handlers handlers,
               Duration silence_max = kSilenceMax);

 private:
  void wait();
  void take_frames();
  void rearm();
  void lost(const std::string& why);

  boost::asio::posix::stream_descriptor channel_;
  boost::asio::steady_timer silence_;
  Duration silence_max_;
  FrameReader frames_;
  Handlers handlers_;
};

}  // namespace distrun::launcher
