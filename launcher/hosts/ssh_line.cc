#include "launcher/hosts/ssh_line.h"

#include "agent/process/spawn.h"

#include <boost/asio/buffer.hpp>
#include <boost/system/error_code.hpp>

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
#include <variant>

namespace distrun::launcher {

using agent::Console;
using boost::asio::posix::stream_descriptor;
using boost::system::error_code;

namespace {

constexpr int kPipe = 1 << 18;
constexpr Duration kHold = std::chrono::milliseconds(100);

}  // namespace

SshLine::SshLine(boost::asio::io_context& io, Console& console, int owner, std::string prefix,
                 std::string mark, Handlers handlers)
    : console_(console),
      owner_(owner),
      prefix_(std::move(prefix)),
      mark_(std::move(mark)),
      handlers_(std::move(handlers)),
      exits_(io),
      io_(io),
      in_(io),
      err_(io),
      unfinished_timer_(io) {}

Result<void> SshLine::start(const std::string& executable, const std::vector<std::string>& argv,
                            const char* const* envp) {
  agent::WorkerStream::Ways ways;
  ways.stream = Console::Stream::out;
  ways.owner = owner_;
  ways.prefix = prefix_;
  out_ = std::make_shared<agent::WorkerStream>(io_, console_, std::move(ways), [] {});
  if (auto opened = out_->open(kPipe); !opened) return opened.error();
  int in[2];
  int err[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return os_error("cannot make a pipe for ssh", errno);
  in_.assign(in[1]);
  if (::pipe2(err, O_CLOEXEC) != 0) {
    const int why = errno;
    ::close(in[0]);
    return os_error("cannot make a pipe for ssh", why);
  }
  err_.assign(err[0]);
  ::fcntl(in[1], F_SETFL, O_NONBLOCK);
  ::fcntl(err[0], F_SETFL, O_NONBLOCK);

  agent::SpawnRequest request;
  request.executable = executable;
  request.argv = argv;
  request.envp = envp;
  request.in = in[0];
  request.out = out_->child_end();
  request.err = err[1];
  const auto spawned = agent::spawn(request, exits_.epoll());
  ::close(in[0]);
  ::close(err[1]);
  out_->close_child_end();
  if (!spawned) {
    out_->close();
    return os_error(executable + ": " + std::string(agent::to_string(spawned.error().stage)),
                    spawned.error().errno_value);
  }
  child_.emplace(exits_, *spawned, [this](agent::ExitStatus status) { on_exit(status); });
  read_errors();
  return {};
}

bool SshLine::send(std::string_view bytes) {
  if (outbox_.size() + bytes.size() > kOutboxMax) return false;
  outbox_ += bytes;
  write();
  return true;
}

void SshLine::write() {
  if (writes_ || outbox_.empty() || !in_.is_open()) return;
  writes_ = true;
  in_.async_wait(stream_descriptor::wait_write, [self = shared_from_this()](const error_code& ec) {
    self->writes_ = false;
    if (ec || !self->in_.is_open()) return;
    const ssize_t n =
        ::write(self->in_.native_handle(), self->outbox_.data(), self->outbox_.size());
    if (n < 0 && errno != EAGAIN && errno != EINTR) {  // it has ended: its exit is on the way
      self->outbox_.clear();
      return;
    }
    if (n > 0) self->outbox_.erase(0, static_cast<std::size_t>(n));
    self->write();
  });
}

void SshLine::hang_up() {
  // Its whole group: a ProxyCommand goes with it.
  if (child_) child_->signal(SIGKILL, agent::Target::group);
}

void SshLine::resume() {
  if (out_) out_->resume();
  read_errors();
}

void SshLine::read_errors() {
  if (reads_ || !err_.is_open()) return;
  reads_ = true;
  err_.async_wait(stream_descriptor::wait_read, [self = shared_from_this()](const error_code& ec) {
    self->reads_ = false;
    if (ec || !self->err_.is_open()) return;
    if (self->console_.full(Console::Stream::err)) return;  // resume() comes
    if (self->take_errors()) self->read_errors();
  });
}

bool SshLine::take_errors() {
  std::array<char, 65536> buffer;
  const ssize_t n = ::read(err_.native_handle(), buffer.data(), buffer.size());
  if (n > 0) {
    take({buffer.data(), static_cast<std::size_t>(n)});
    return true;
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    read_errors();
    return false;
  }
  error_code ignored;
  err_.close(ignored);
  return false;
}

void SshLine::take(std::string_view bytes) {
  unfinished_timer_.cancel();
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::size_t end = newline == bytes.npos ? bytes.size() : newline + 1;
    line_ += bytes.substr(0, end);
    bytes.remove_prefix(end);
    if (newline != bytes.npos || line_.size() > kHeldMax) {
      take_line(line_);
      line_.clear();
    }
  }
  if (line_.empty() || !greeted_) return;
  unfinished_timer_.expires_after(kHold);
  unfinished_timer_.async_wait([self = shared_from_this()](const error_code& ec) {
    // The rest of one of distrun's own lines is on its way.
    if (!ec && self->line_.find('\x1e') == std::string::npos) self->pass_on_unfinished();
  });
}

void SshLine::take_line(std::string_view line) {
  const auto [workers, word] = parse_host_line(line, mark_);
  const bool greets = word && word->kind == HostWord::Kind::greeting;
  if (!word || (greets && greeted_)) return pass_on(line);
  pass_on(workers);
  if (greets) {
    greeted_ = true;
    pass_on(std::exchange(early_, {}));
  }
  handlers_.word(*word);
}

void SshLine::pass_on(std::string_view text) {
  if (text.empty()) return;
  if (greeted_) return console_.write(Console::Stream::err, owner_, prefix_, text);
  early_ += text;
  if (early_.size() > kHeldMax) early_.erase(0, early_.size() - kHeldMax);
}

void SshLine::pass_on_unfinished() {
  if (line_.empty()) return;
  pass_on(line_);
  line_.clear();
}

void SshLine::on_exit(agent::ExitStatus status) {
  const auto self = shared_from_this();  // ended() may let go of us
  // What it wrote is in the pipes in full.
  while (err_.is_open() && take_errors()) {
  }
  pass_on_unfinished();
  unfinished_timer_.cancel();
  error_code ignored;
  err_.close(ignored);
  in_.close(ignored);
  out_->close();
  handlers_.ended({agent::process_exit_code(status),
                   std::holds_alternative<agent::KilledBy>(status), std::exchange(early_, {})});
}

}  // namespace distrun::launcher
