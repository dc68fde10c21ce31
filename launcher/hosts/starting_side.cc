#include "launcher/hosts/starting_side.h"

#include "agent/own_addresses.h"
#include "launcher/exit_code.h"
#include "launcher/options.h"
#include "launcher/stop_signals.h"
#include "launcher/text.h"
#include "runtime/base/log.h"

#include <boost/asio/ip/address_v4.hpp>
#include <boost/asio/ip/address_v6.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/error_code.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <random>
#include <signal.h>
#include <unistd.h>
#include <vector>

namespace distrun::launcher {
namespace {

using boost::asio::posix::stream_descriptor;
using boost::system::error_code;

// Below the ports that Linux gives out by itself. Not kept open until the job listens there, but
// nobody else draws from here.
constexpr int kFirstPort = 20000;
constexpr int kPorts = 10007;
constexpr int kTries = 64;

std::uint16_t free_port() {
  std::random_device random;
  for (int i = 0; i < kTries; ++i) {
    const auto port = static_cast<std::uint16_t>(kFirstPort + static_cast<int>(random() % kPorts));
    if (!agent::port_is_taken(boost::asio::ip::address_v4::any(), port) &&
        !agent::port_is_taken(boost::asio::ip::address_v6::any(), port)) {
      return port;
    }
  }
  return kFirstPort;
}

// To stderr, waiting for room a moment at most: whoever should read it may be gone for good.
void write_patiently(std::string_view text) {
  constexpr Duration kPatience = std::chrono::seconds(2);
  const TimePoint deadline = Clock::now() + kPatience;
  while (!text.empty()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd writable{STDERR_FILENO, POLLOUT, 0};
    if (left.count() <= 0 || ::poll(&writable, 1, static_cast<int>(left.count())) <= 0) return;
    const std::string_view piece = text.substr(0, 512);  // so much is free if any is
    const ssize_t n = ::write(STDERR_FILENO, piece.data(), piece.size());
    if (n < 0 && errno != EAGAIN && errno != EINTR) return;
    if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
  }
}

Result<HostOrder> read_order(int fd, FrameReader& frames) {
  OrderReader order;
  TimePoint heard = Clock::now();
  std::array<char, 65536> buffer;
  for (;;) {
    for (;;) {
      const auto frame = frames.next();
      if (!frame) return frame.error();
      if (!*frame) break;
      const auto complete = order.take(**frame);
      if (!complete) return complete.error();
      if (*complete) return order.order();
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(heard + kSilenceMax - Clock::now());
    if (left.count() <= 0) {
      return Error{Errc::timeout, "no order came within " + duration_text(kSilenceMax)};
    }
    pollfd readable{fd, POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(left.count())) <= 0) continue;
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return Error{Errc::closed, "the starting side is gone; nothing was started"};
    frames.feed({buffer.data(), static_cast<std::size_t>(n)});
    heard = Clock::now();
  }
}

// Whatever reads stdin from here on finds nothing there.
int take_stdin() {
  const int fd = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (fd < 0 || nothing < 0) return -1;
  ::dup2(nothing, STDIN_FILENO);
  ::close(nothing);
  return fd;
}

int carry_out(const HostOrder& order, Environment environment, const StartingSide& side,
              const RunOrder& run) {
  if (::chdir(order.folder.c_str()) != 0) {
    const int why = errno;
    log::error("cannot go to the folder in which the job was started: " + quote(order.folder) +
               ": " + std::strerror(why) + "; start it in a folder that all hosts have");
    return why == ENOENT || why == ENOTDIR ? kExitNotFound : kExitNotExecutable;
  }
  environment["PWD"] = order.folder;
  for (const auto& [name, value] : order.environment) environment[name] = value;
  environment.erase("DISTRUN_TOKEN");
  if (!order.token.empty()) environment["DISTRUN_TOKEN"] = order.token;
  const std::vector<std::string_view> arguments(order.arguments.begin(), order.arguments.end());
  return run(arguments, environment, side);
}

}  // namespace

int run_from_stdin(const Environment& environment, const RunOrder& run) {
  ::signal(SIGPIPE, SIG_IGN);
  StartingSide side;
  side.fd = take_stdin();
  if (side.fd < 0) {
    log::error("stdin cannot be kept: " + std::string(std::strerror(errno)));
    return kExitSystem;
  }
  write_patiently(to_line(greeting_of(environment, version(), free_port())));
  const auto order = read_order(side.fd, side.frames);
  if (!order) {
    log::error(order.error().detail);
    return kExitJobOver;
  }
  side.mark = order->mark;
  log::set_sink(
      [&side](std::string_view lines) { write_patiently(marked(side.mark, "log", lines)); });
  const int status = carry_out(*order, environment, side, run);
  log::set_sink({});
  write_patiently(marked(side.mark, "end", std::to_string(status)));
  return status;
}

StartingLine::StartingLine(boost::asio::io_context& io, const StartingSide& side, Handlers handlers,
                           Duration silence_max)
    : channel_(io, side.fd),
      silence_(io),
      silence_max_(silence_max),
      frames_(side.frames),
      handlers_(std::move(handlers)) {
  ::fcntl(side.fd, F_SETFL, ::fcntl(side.fd, F_GETFL) | O_NONBLOCK);
  // What came with the order is here already, and nobody is ready for it yet.
  boost::asio::post(io, [this] { take_frames(); });
  rearm();
  wait();
}

void StartingLine::wait() {
  channel_.async_wait(stream_descriptor::wait_read, [this](const error_code& ec) {
    if (ec || !channel_.is_open()) return;
    std::array<char, 4096> buffer;
    const ssize_t n = ::read(channel_.native_handle(), buffer.data(), buffer.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return wait();
    if (n <= 0) return lost("the connection to the starting side is closed");
    frames_.feed({buffer.data(), static_cast<std::size_t>(n)});
    rearm();
    take_frames();
    if (channel_.is_open()) wait();
  });
}

void StartingLine::take_frames() {
  while (channel_.is_open()) {
    const auto frame = frames_.next();
    if (!frame) return lost(frame.error().detail);
    if (!*frame) return;
    if ((*frame)->kind != "signal") continue;  // a beat
    const auto signo = parse_int((*frame)->value, 1, 64);
    if (!signo) return lost("not a signal: " + quote((*frame)->value));
    handlers_.signal(static_cast<int>(*signo));
  }
}

void StartingLine::rearm() {
  silence_.expires_after(silence_max_);
  silence_.async_wait([this](const error_code& ec) {
    if (!ec) lost("nothing was heard of the starting side for " + duration_text(silence_max_));
  });
}

void StartingLine::lost(const std::string& why) {
  if (!channel_.is_open()) return;
  error_code ignored;
  channel_.close(ignored);
  silence_.cancel();
  handlers_.lost(why);
}

}  // namespace distrun::launcher
