#include "agent/leftovers.h"

#include "agent/process/descendants.h"
#include "runtime/base/log.h"

#include <algorithm>
#include <signal.h>

namespace distrun::agent {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(1);
constexpr Duration kLongestPause = std::chrono::milliseconds(50);
constexpr Duration kSilence = std::chrono::seconds(1);
constexpr std::size_t kNamesMax = 5;

std::string name_them(const std::vector<Process>& processes) {
  std::string text;
  for (std::size_t i = 0; i < std::min(processes.size(), kNamesMax); ++i) {
    text += (i == 0 ? "" : ", ") + processes[i].name + " (pid " + std::to_string(processes[i].pid) +
            ")";
  }
  return processes.size() > kNamesMax ? text + ", …" : text;
}

bool contains(const std::vector<pid_t>& all, pid_t one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

void Leftovers::stop(Request request, std::function<std::vector<pid_t>()> workers_now,
                     std::function<void()> gone) {
  cancel();
  request_ = std::move(request);
  workers_now_ = std::move(workers_now);
  gone_ = std::move(gone);
  signalled_ = false;
  pause_ = kFirstPause;
  asked_ = Clock::now();
  look();
}

void Leftovers::cancel() {
  ++serial_;
  timer_.cancel();
}

bool Leftovers::find_and_signal(const std::vector<pid_t>& workers) {
  if (!has_children()) return false;
  const bool killing = request_.signo == SIGKILL;
  std::vector<Process> left = descendants();
  std::erase_if(left, [&](const Process& process) { return contains(workers, process.pid); });
  bool any = !left.empty();
  if (any && !named_ && Clock::now() - asked_ > kSilence) {
    named_ = true;
    log::info("waiting for what the workers left behind: " + name_them(left));
  }
  for (const Process& process : left) {
    if (!killing && (signalled_ || contains(request_.told, process.group))) continue;
    ::kill(process.pid, request_.signo);
  }
  // One that forks and exits faster than /proc can be read is a child of ours at every moment.
  reap_orphans(workers);
  for (const pid_t pid : children()) {
    if (contains(workers, pid)) continue;
    any = true;
    if (killing) ::kill(pid, SIGKILL);
  }
  return any;
}

void Leftovers::look() {
  const std::vector<pid_t> workers = workers_now_();
  reap_orphans(workers);
  const bool any = find_and_signal(workers);
  signalled_ = true;
  if (!any) {
    ++serial_;
    return gone_();
  }
  timer_.expires_after(pause_);
  pause_ = std::min(pause_ * 2, kLongestPause);
  timer_.async_wait([this, serial = serial_](const boost::system::error_code& ec) {
    if (!ec && serial == serial_) look();
  });
}

}  // namespace distrun::agent
