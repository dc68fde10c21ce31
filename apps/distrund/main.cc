// distrund: coordinates jobs, and is a store, until it is told to stop.
#include "apps/distrund/daemon.h"
#include "apps/distrund/options.h"
#include "runtime/base/log.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <csignal>
#include <exception>
#include <sys/resource.h>

namespace {

// Each agent is a connection, and the usual soft limit is 1024.
void allow_many_connections() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &files);  // if it cannot be, the log says so when it matters
}

}  // namespace

int main(int argc, char** argv) try {
  using namespace distrun;
  int exit_code = daemon::kStopped;
  const auto options = daemon::parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  log::start(options->log);
  std::signal(SIGPIPE, SIG_IGN);  // nobody reads the log any more: no reason to end all jobs
  allow_many_connections();

  boost::asio::io_context io(1);
  boost::asio::signal_set signals(io, SIGINT, SIGTERM);
  auto running = daemon::Daemon::start(io, *options, [&] {
    exit_code = daemon::kCannotListen;
    signals.cancel();
  });
  if (!running) {
    log::error(running.error().detail);
    return running.error().code == Errc::invalid_argument ? daemon::kUsage : daemon::kCannotListen;
  }
  log::info("listening on " + (*running)->endpoint());

  exit_code = daemon::kStopped;
  signals.async_wait([&](const boost::system::error_code&, int) { (*running)->close(); });
  io.run();
  return exit_code;
} catch (const std::exception& fault) {
  distrun::log::error(fault.what());
  return distrun::daemon::kInternal;
}
