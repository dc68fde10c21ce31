#include "agent/process/console.h"

#include "agent/process/console_sink.h"
#include "runtime/base/log.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cerrno>
#include <cstring>
#include <signal.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace distrun::agent {
namespace {

constexpr Duration kQuiet = std::chrono::milliseconds(100);  // before the progress line comes back
constexpr std::size_t kLogMax = std::size_t{1} << 20;        // of log text that nobody takes
constexpr std::string_view kEraseLine = "\r\x1b[K";

bool same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  if (::fstat(a, &first) != 0 || ::fstat(b, &second) != 0) return false;
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino &&
         first.st_rdev == second.st_rdev;
}

std::size_t columns_of(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

void append_prefixed(std::string& to, std::string_view prefix, std::string_view text,
                     bool at_line_start) {
  while (!text.empty()) {
    const void* newline = std::memchr(text.data(), '\n', text.size());
    const std::size_t length =
        newline == nullptr
            ? text.size()
            : static_cast<std::size_t>(static_cast<const char*>(newline) - text.data()) + 1;
    if (at_line_start) to += prefix;
    to += text.substr(0, length);
    text.remove_prefix(length);
    at_line_start = true;
  }
}

}  // namespace

struct Console::State : std::enable_shared_from_this<Console::State> {
  State(boost::asio::io_context& io_context, int stderr_fd)
      : io(io_context), timer(io_context), err_fd(stderr_fd) {}

  boost::asio::io_context& io;
  boost::asio::steady_timer timer;  // brings the progress line back
  int err_fd;
  std::shared_ptr<ConsoleSink> out;
  std::shared_ptr<ConsoleSink> err;  // the same as out if both are one file
  std::function<void()> on_room;
  std::function<void()> on_empty;

  bool terminal = false;      // stderr
  bool out_terminal = false;  // stdout
  bool lost_output = false;
  bool status_allowed = false;
  bool status_shown = false;
  bool timer_runs = false;
  bool closed = false;
  std::string status;

  std::size_t log_waiting = 0;  // log text since stderr last took everything
  int log_dropped = 0;

  ConsoleSink& sink(Stream stream) { return stream == Stream::out ? *out : *err; }
  ConsoleSink::Events events(const char* name);
  void on_sink_empty();
  void complete_line(ConsoleSink& sink);
  void erase_status(ConsoleSink& sink);
  void draw_status();
  void draw_when_quiet();
};

ConsoleSink::Events Console::State::events(const char* name) {
  ConsoleSink::Events events;
  events.room = [this] {
    if (on_room) on_room();
  };
  events.empty = [this] { on_sink_empty(); };
  events.broken = [this, name](int why) {
    if (why != EPIPE) lost_output = true;
    log::warn(std::string(name) + " cannot be written any more; workers go on, their log files too",
              {{"reason", std::strerror(why)}});
  };
  return events;
}

void Console::State::on_sink_empty() {
  if (err->empty()) {
    log_waiting = 0;
    if (log_dropped > 0) {
      const int dropped = std::exchange(log_dropped, 0);
      log::warn("stderr was not read; lines of this log were dropped",
                {{"lines", std::to_string(dropped)}});
    }
  }
  if (out->empty() && err->empty() && on_empty) on_empty();
}

void Console::State::complete_line(ConsoleSink& sink) {
  if (sink.open_owner == ConsoleSink::kNobody) return;
  sink.buffer() += '\n';
  sink.open_owner = ConsoleSink::kNobody;
}

void Console::State::erase_status(ConsoleSink& sink) {
  if (!status_shown || &sink != err.get()) return;
  sink.buffer() += kEraseLine;
  status_shown = false;
}

void Console::State::draw_status() {
  if (!status_allowed || status.empty() || closed) return;
  // Never behind an unfinished line, and never ahead of text that waits.
  if (err->broken() || !err->empty() || err->open_owner != ConsoleSink::kNobody) return;
  const std::string_view line(status);
  err->buffer().append(kEraseLine).append(line.substr(0, columns_of(err_fd) - 1));
  status_shown = true;
  err->pump();
}

void Console::State::draw_when_quiet() {
  if (!status_allowed || status.empty() || timer_runs) return;
  timer_runs = true;
  timer.expires_after(kQuiet);
  timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    self->timer_runs = false;
    if (!error) self->draw_status();
  });
}

Console::Console(boost::asio::io_context& io, int out_fd, int err_fd)
    : state_(std::make_shared<State>(io, err_fd)) {
  ::signal(SIGPIPE, SIG_IGN);
  state_->out = std::make_shared<ConsoleSink>(io, out_fd, state_->events("stdout"));
  state_->err = same_file(out_fd, err_fd)
                    ? state_->out
                    : std::make_shared<ConsoleSink>(io, err_fd, state_->events("stderr"));
  state_->terminal = ::isatty(err_fd) != 0;
  state_->out_terminal = ::isatty(out_fd) != 0;
  state_->status_allowed = state_->terminal;
}

Console::~Console() {
  state_->closed = true;
  state_->on_room = {};
  state_->on_empty = {};
  state_->timer.cancel();
  state_->out->close();
  state_->err->close();
}

void Console::write(Stream stream, int owner, std::string_view prefix, std::string_view text) {
  ConsoleSink& sink = state_->sink(stream);
  if (sink.broken() || text.empty()) return;
  state_->erase_status(sink);
  const bool goes_on = sink.open_owner == owner;
  if (!goes_on) state_->complete_line(sink);
  if (prefix.empty()) {
    sink.buffer() += text;
  } else {
    append_prefixed(sink.buffer(), prefix, text, !goes_on);
  }
  sink.open_owner = text.back() == '\n' ? ConsoleSink::kNobody : owner;
  sink.pump();
  if (&sink == state_->err.get()) state_->draw_when_quiet();
}

void Console::write_log(std::string_view lines) {
  ConsoleSink& sink = *state_->err;
  if (sink.broken()) return;
  if (!sink.empty() && state_->log_waiting + lines.size() > kLogMax) {
    ++state_->log_dropped;
    return;
  }
  state_->log_waiting = sink.empty() ? 0 : state_->log_waiting + lines.size();
  state_->erase_status(sink);
  state_->complete_line(sink);
  sink.buffer() += lines;
  sink.pump();
  state_->draw_when_quiet();
}

void Console::set_status_line(std::string_view text) {
  if (!state_->status_allowed || state_->status == text) return;
  state_->status = text;
  if (text.empty()) {
    state_->erase_status(*state_->err);
    state_->err->pump();
  } else if (!state_->timer_runs) {
    state_->draw_status();
  }
}

void Console::forbid_status_line() {
  set_status_line({});
  state_->status_allowed = false;
}

bool Console::on_terminal() const {
  return state_->terminal;
}

bool Console::full(Stream stream) const {
  return state_->sink(stream).full();
}

bool Console::empty() const {
  return state_->out->empty() && state_->err->empty();
}

std::size_t Console::waiting() const {
  const bool one = state_->out == state_->err;
  return state_->out->waiting() + (one ? 0 : state_->err->waiting());
}

void Console::on_room(std::function<void()> call) {
  state_->on_room = std::move(call);
}

void Console::on_empty(std::function<void()> call) {
  state_->on_empty = std::move(call);
}

void Console::wind_up() {
  state_->status.clear();
  state_->erase_status(*state_->err);
  if (state_->out_terminal) state_->complete_line(*state_->out);
  if (state_->terminal) state_->complete_line(*state_->err);
  state_->out->pump();
  state_->err->pump();
}

bool Console::lost_output() const {
  return state_->lost_output;
}

bool Console::finish(Duration limit) {
  wind_up();
  const TimePoint deadline = Clock::now() + limit;
  const bool out = state_->out->write_all(deadline);
  const bool err = state_->err->write_all(deadline);
  return out && err;
}

}  // namespace distrun::agent
