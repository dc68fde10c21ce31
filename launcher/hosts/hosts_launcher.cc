#include "launcher/hosts/hosts_launcher.h"

#include "agent/process/console.h"
#include "agent/process/descendants.h"
#include "agent/process/guard.h"
#include "agent/process/signals.h"
#include "launcher/exit_code.h"
#include "launcher/hosts/ssh_line.h"
#include "launcher/machine.h"
#include "launcher/text.h"
#include "runtime/base/log.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>
#include <signal.h>
#include <string>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace distrun::launcher {
namespace {

std::string find_client(const std::string& name, const Environment& environment) {
  if (name.find('/') != std::string::npos) {
    return ::access(name.c_str(), X_OK) == 0 ? name : std::string();
  }
  for (const std::string_view folder : split(lookup(environment, "PATH").value_or(""), ':')) {
    std::string path = std::string(folder.empty() ? "." : folder) + "/" + name;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

class HostsLauncher {
 public:
  HostsLauncher(const HostsJob& job, const std::string& client, const std::vector<int>& signals,
                int guard_fd)
      : job_(job),
        client_(client),
        console_(io_),
        core_(job.plan),
        told_(job.orders.size()),
        signals_(io_, guard_fd, signals, job.stop_signals,
                 {.stop = [this](int signo) { stop(signo); },
                  .notice = [this](int signo) { feed(HostsNotice{signo}); },
                  .child_ended = [this] { reap(); },
                  .guard_lost = [this] { die_with_the_guard(); }}),
        timer_(io_),
        beat_timer_(io_) {
    for (const auto& [name, value] : job.ssh_environment) {
      variables_.push_back(name);
      variables_.back().append("=").append(value);
    }
    for (const std::string& variable : variables_) envp_.push_back(variable.c_str());
    envp_.push_back(nullptr);
  }

  int run() {
    log::set_sink([this](std::string_view line) { console_.write_log(line); });
    const int status = run_job();
    console_.wind_up();
    wait_for_the_reader();
    log::set_sink({});
    const bool all_written = console_.empty() && !console_.lost_output();
    return all_written || status != kExitSuccess ? status : kExitSystem;
  }

 private:
  // What is known of a host's end before its ssh has ended.
  struct Told {
    std::optional<int> status;
    bool ran = false;
  };

  int run_job() {
    if (const auto started = signals_.start(); !started) {
      log::error(started.error().detail);
      return kExitSystem;
    }
    console_.on_room([this] {
      for (const auto& line : lines_) {
        if (line) line->resume();
      }
    });
    console_.forbid_status_line();
    lines_.resize(job_.orders.size());
    beat();
    feed(HostsBegin{});
    io_.run();
    return status_.value_or(kExitInternal);
  }

  void stop(int signo) {
    if (!status_) return feed(HostsStop{signo});
    io_.stop();  // only what nobody reads is left
  }

  // As in a job of one machine: output is not ours to drop, unless a stop signal says so.
  void wait_for_the_reader() {
    if (console_.empty()) return;
    console_.on_empty([this] { io_.stop(); });
    io_.restart();
    io_.run();
  }

  void feed(HostsEvent event) {
    inbox_.push_back(std::move(event));
    if (busy_) return;  // the loop below comes to it
    busy_ = true;
    while (!inbox_.empty()) {
      const HostsEvent next = std::move(inbox_.front());
      inbox_.pop_front();
      for (const HostsEffect& effect : core_.handle(next, Clock::now())) {
        std::visit([this](const auto& e) { apply(e); }, effect);
      }
    }
    busy_ = false;
    rearm();
  }

  void rearm() {
    const auto deadline = core_.next_deadline();
    timer_.cancel();
    if (!deadline) return;
    timer_.expires_at(*deadline);
    timer_.async_wait([this](const boost::system::error_code& ec) {
      if (!ec) feed(HostsTick{});
    });
  }

  void apply(const ConnectHost& effect) {
    const std::size_t host = effect.host;
    const HostOrder& order = job_.orders[host];
    lines_[host] = std::make_shared<SshLine>(
        io_, console_, static_cast<int>(host), job_.prefix_lines ? order.name + ": " : "",
        order.mark,
        SshLine::Handlers{.word = [this, host](const HostWord& word) { on_word(host, word); },
                          .ended = [this, host](const SshLine::Ended& end) { on_end(host, end); }});
    const auto started = lines_[host]->start(client_, job_.ssh[host], envp_.data());
    if (!started) feed(HostEnded{host, {}, false, kExitSystem, false, started.error().detail});
  }

  void apply(const OrderHost& effect) {
    const HostOrder& order = job_.orders[effect.host];
    const std::string frames =
        to_frames(effect.meeting_place ? at(order, *effect.meeting_place) : order);
    if (effect.meeting_place && !said_where_) {
      said_where_ = true;
      log::debug("the hosts meet at " + effect.meeting_place->host + ":" +
                 std::to_string(effect.meeting_place->port.value_or(0)));
    }
    if (!lines_[effect.host]->send(frames)) lines_[effect.host]->hang_up();
  }

  void apply(const SignalHost& effect) {
    lines_[effect.host]->send(to_frame("signal", std::to_string(effect.signo)));
  }

  void apply(const HangUpHost& effect) { lines_[effect.host]->hang_up(); }

  void apply(const HostsSay& effect) {
    switch (effect.level) {
      case HostsLevel::info:
        return log::info(effect.text);
      case HostsLevel::warning:
        return log::warn(effect.text);
      case HostsLevel::error:
        return log::error(effect.text);
    }
  }

  void apply(const HostsFinish& effect) {
    status_ = effect.status;
    io_.stop();
  }

  void on_word(std::size_t host, const HostWord& word) {
    switch (word.kind) {
      case HostWord::Kind::greeting:
        return feed(HostGreeted{host, word.greeting});
      case HostWord::Kind::running:
        told_[host].ran = true;
        return feed(HostRunning{host});
      case HostWord::Kind::log:
        return console_.write_log(labelled(host, word.text));
      case HostWord::Kind::report:
        // The same on all: once is enough.
        if (!reporter_) reporter_ = host;
        if (*reporter_ == host) console_.write_log(word.text + "\n");
        return;
      case HostWord::Kind::end:
        told_[host].status = word.status;
        return;
    }
  }

  std::string labelled(std::size_t host, const std::string& line) const {
    constexpr std::string_view kOwn = "distrun: ";
    const std::string& name = job_.orders[host].name;
    if (job_.log.format == log::Format::json && line.starts_with("{")) {
      return R"({"from":")" + name + "\"," + line.substr(1) + "\n";
    }
    if (job_.prefix_lines || !line.starts_with(kOwn)) return name + ": " + line + "\n";
    return std::string(kOwn) + name + ": " + line.substr(kOwn.size()) + "\n";
  }

  void on_end(std::size_t host, const SshLine::Ended& end) {
    feed(HostEnded{host, told_[host].status, told_[host].ran, end.status, end.killed, end.words});
  }

  void beat() {
    beat_timer_.expires_after(kBeat);
    beat_timer_.async_wait([this](const boost::system::error_code& ec) {
      if (ec) return;
      for (std::size_t i = 0; i < lines_.size(); ++i) {
        const HostPhase phase = core_.phase(i);
        if (phase == HostPhase::greeted || phase == HostPhase::working) {
          lines_[i]->send(to_frame("beat", ""));
        }
      }
      beat();
    });
  }

  // What a client left behind became our child.
  void reap() {
    std::vector<pid_t> clients;
    for (const auto& line : lines_) {
      if (line) clients.push_back(line->pid());
    }
    agent::reap_orphans(clients);
  }

  [[noreturn]] void die_with_the_guard() {
    agent::kill_descendants();
    ::_exit(exit_for_signal(SIGKILL));
  }

  const HostsJob& job_;
  const std::string& client_;
  boost::asio::io_context io_{1};
  agent::Console console_;
  FanOut core_;
  std::vector<std::shared_ptr<SshLine>> lines_;
  std::vector<Told> told_;
  agent::Signals signals_;
  std::deque<HostsEvent> inbox_;
  bool busy_ = false;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer beat_timer_;
  std::vector<std::string> variables_;
  std::vector<const char*> envp_;
  std::optional<std::size_t> reporter_;
  bool said_where_ = false;
  std::optional<int> status_;
};

int explain(const Error& error) {
  log::error(error.detail);
  return exit_for_start_error(error.code);
}

std::string random_hex(std::size_t bytes) {
  std::string raw(bytes, '\0');
  if (::getrandom(raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size())) return {};
  std::string text;
  for (const char c : raw) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(c) >> 4U];
    text += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  return text;
}

// As the user sees it: on another host the same folder may be behind another link.
std::string working_folder(const Environment& environment, const std::string& real) {
  const std::string logical(lookup(environment, "PWD").value_or(""));
  struct stat a {};
  struct stat b {};
  const bool same = logical.starts_with('/') && ::stat(logical.c_str(), &a) == 0 &&
                    ::stat(".", &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
  return same ? logical : real;
}

}  // namespace

int run_on_hosts(const Options& options, std::span<const std::string_view> arguments,
                 const Environment& environment) {
  const Machine machine = read_machine({}, environment);
  HostsSources sources;
  std::error_code failed;
  sources.own_path = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  sources.working_folder = working_folder(environment, machine.working_folder);
  sources.version = version();
  sources.fresh_id = machine.fresh_id;
  sources.fresh_secret = random_hex(48);
  if (sources.fresh_secret.empty() || sources.working_folder.empty()) {
    log::error(sources.fresh_secret.empty() ? "the system gives no random numbers"
                                            : "the working folder is gone");
    return kExitSystem;
  }
  const auto job = make_hosts_job(options, arguments, environment, sources);
  if (!job) return explain(job.error());
  log::start(job->log);
  for (const std::string& warning : job->warnings) log::warn(warning);
  for (const std::string& note : job->notes) log::debug(note);
  const std::string& name = job->ssh.front().front();
  const std::string client = find_client(name, environment);
  if (client.empty()) {
    log::error(name +
               ": no such program; install an ssh client (openssh-client), or name "
               "yours with --ssh-command");
    return kExitNotFound;
  }
  const std::vector<int> signals = agent::guarded_signals(job->stop_signals);
  // The third one hangs up here; so the guard's own patience ends with the fourth.
  return agent::run_guarded(
      signals, [&](int guard_fd) { return HostsLauncher(*job, client, signals, guard_fd).run(); },
      FanOut::kStopsUntilHangUp + 1);
}

}  // namespace distrun::launcher
