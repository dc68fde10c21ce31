#include "agent/process/worker_stream.h"

#include <boost/system/error_code.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

namespace distrun::agent {
namespace {

constexpr std::size_t kRead = 262144;

// The buffers of C's and Python's files are multiples of it.
constexpr std::size_t kBlock = 4096;

// One for all streams: there is one thread, and nothing is left in it between two reads.
std::array<char, kRead>& read_buffer() {
  static std::array<char, kRead> buffer;
  return buffer;
}

}  // namespace

WorkerStream::WorkerStream(boost::asio::io_context& io, Console& console, Ways ways,
                           std::function<void()> ended)
    : console_(console),
      ways_(std::move(ways)),
      ended_(std::move(ended)),
      pipe_(io),
      hold_timer_(io) {}

Result<bool> WorkerStream::open(int size) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return os_error("cannot make a pipe for a worker", errno);
  // Only our end: the flag belongs to what the child shares with its own children.
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  // Refused beyond pipe-user-pages-soft; the default of 64 KiB does too.
  ::fcntl(ends[0], F_SETPIPE_SZ, size);
  pipe_.assign(ends[0]);
  child_end_ = ends[1];
  wait();
  return true;
}

void WorkerStream::close_child_end() {
  if (child_end_ >= 0) ::close(std::exchange(child_end_, -1));
}

void WorkerStream::wait() {
  if (waits_ || closed_) return;
  waits_ = true;
  pipe_.async_wait(pipe_.wait_read,
                   [self = shared_from_this()](const boost::system::error_code& error) {
                     self->waits_ = false;
                     if (!error && !self->closed_) self->on_readable();
                   });
}

void WorkerStream::on_readable() {
  if (ways_.on_console && console_.full(ways_.stream)) return;  // resume() comes
  std::size_t taken = 0;
  if (read_once(taken) == Took::end) return at_end();
  wait();
}

void WorkerStream::resume() {
  wait();
}

WorkerStream::Took WorkerStream::read_once(std::size_t& taken) {
  auto& buffer = read_buffer();
  const ssize_t n = ::read(pipe_.native_handle(), buffer.data(), buffer.size());
  if (n == 0) return Took::end;
  if (n < 0) return errno == EAGAIN || errno == EINTR ? Took::nothing : Took::end;
  taken = static_cast<std::size_t>(n);
  take({buffer.data(), taken});
  return Took::something;
}

void WorkerStream::take(std::string_view bytes) {
  tail_.append(bytes);
  ways_.file.write(bytes);
  if (ways_.filter != nullptr) {
    filter_lines_.feed(bytes, [this](std::string_view lines) { match(lines); });
  }
  if (!ways_.on_console) return;
  const bool same_line = lines_.holding() && bytes.find('\n') == bytes.npos;
  lines_.feed(bytes, [this](std::string_view text) { to_console(text); });
  if (!lines_.holding()) return;
  if (!same_line) held_since_ = Clock::now();
  held_for_ = bytes.size() % kBlock == 0 ? ways_.hold_block : kHold;
  hold();
}

void WorkerStream::to_console(std::string_view text) {
  console_.write(ways_.stream, ways_.owner, ways_.prefix, text);
}

void WorkerStream::match(std::string_view lines) {
  std::string matching;
  while (!lines.empty()) {
    const std::size_t newline = lines.find('\n');
    const std::string_view line = lines.substr(0, newline);
    lines.remove_prefix(newline == lines.npos ? lines.size() : newline + 1);
    const auto in_line = [line](const std::string& word) { return line.find(word) != line.npos; };
    if (std::any_of(ways_.filter->words.begin(), ways_.filter->words.end(), in_line)) {
      matching.append(ways_.prefix).append(line).append("\n");
    }
  }
  ways_.filter->file.write(matching);
}

// An unfinished line is passed on some time after its first held byte, so that one that grows
// slowly is seen growing; but not while its rest is in the pipe and only waits for us.
void WorkerStream::hold() {
  const TimePoint until = held_since_ + held_for_;
  if (hold_runs_ && hold_timer_.expiry() <= until) return;
  hold_runs_ = true;
  hold_timer_.expires_at(until);
  hold_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (error) return;  // replaced by an earlier one, or closed
    self->hold_runs_ = false;
    if (!self->closed_) self->on_held();
  });
}

void WorkerStream::on_held() {
  if (!lines_.holding()) return;
  const TimePoint now = Clock::now();
  if (in_pipe() > 0) held_since_ = now;
  if (now < held_since_ + held_for_) return hold();
  pass_on_held();
}

void WorkerStream::pass_on_held() {
  lines_.flush([this](std::string_view text) { to_console(text); });
}

std::size_t WorkerStream::in_pipe() {
  int bytes = 0;
  return ::ioctl(pipe_.native_handle(), FIONREAD, &bytes) == 0 ? static_cast<std::size_t>(bytes)
                                                               : 0;
}

// What a dead worker wrote is in the pipe in full.  No more than that is taken: a grandchild may go
// on writing for ever.  One byte more, to see the end.
WorkerStream::Took WorkerStream::take_present() {
  for (std::size_t left = in_pipe() + 1;;) {
    std::size_t taken = 0;
    const Took took = read_once(taken);
    if (took != Took::something || taken >= left) return took;
    left -= taken;
  }
}

void WorkerStream::drain() {
  if (closed_) return;
  if (take_present() == Took::end) return at_end();
  pass_on_held();
}

void WorkerStream::at_end() {
  const auto ended = std::exchange(ended_, {});
  release();
  if (ended) ended();
}

void WorkerStream::close() {
  if (closed_) return;
  take_present();
  release();
}

void WorkerStream::release() {
  pass_on_held();
  if (ways_.filter != nullptr) {
    filter_lines_.flush([this](std::string_view line) { match(line); });
  }
  closed_ = true;
  close_child_end();
  hold_timer_.cancel();
  boost::system::error_code ignored;
  pipe_.close(ignored);
  ways_.file.close();
}

}  // namespace distrun::agent
