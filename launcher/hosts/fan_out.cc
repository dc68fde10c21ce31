#include "launcher/hosts/fan_out.h"

#include "launcher/exit_code.h"
#include "launcher/text.h"
#include "runtime/base/check.h"

#include <algorithm>
#include <map>
#include <signal.h>
#include <string_view>

namespace distrun::launcher {
namespace {

constexpr int kSshFailed = 255;

bool is_loopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1";
}

std::string number_of(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " host" : " hosts");
}

}  // namespace

FanOut::FanOut(FanOutPlan plan) : plan_(std::move(plan)), hosts_(plan_.names.size()) {
  DISTRUN_CHECK(!hosts_.empty());
}

HostsEffects FanOut::handle(const HostsEvent& event, TimePoint now) {
  DISTRUN_CHECK(now >= now_);
  now_ = now;
  if (!finished_) {
    std::visit([this](const auto& e) { on(e); }, event);
    settle();
  }
  return std::exchange(out_, {});
}

std::optional<TimePoint> FanOut::next_deadline() const {
  if (finished_) return std::nullopt;
  std::optional<TimePoint> next;
  const auto consider = [&next](std::optional<TimePoint> time) {
    if (time && (!next || *time < *next)) next = time;
  };
  consider(stop_others_);
  consider(hang_up_at_);
  for (const State& host : hosts_) {
    if (host.phase == HostPhase::connecting && !host.hung_up) consider(host.since + kGreetMax);
  }
  return next;
}

void FanOut::on(const HostsBegin&) {
  connect_more();
}

void FanOut::on(const HostGreeted& event) {
  State& host = hosts_[event.host];
  if (host.phase != HostPhase::connecting || host.hung_up) return;
  host.greeting = event.greeting;
  enter(event.host, HostPhase::greeted);
  if (event.greeting.version != plan_.version) {
    fail(event.host,
         "has distrun " + event.greeting.version + ", and here is " + plan_.version +
             "; install the same on all hosts, or name it with --remote-distrun PATH",
         kExitRefused);
  }
}

void FanOut::on(const HostRunning& event) {
  hosts_[event.host].running = true;
}

void FanOut::on(const HostEnded& event) {
  State& host = hosts_[event.host];
  if (host.phase == HostPhase::ended) return;
  const HostPhase before = host.phase;
  host.told = event.told;
  // The word may not have come through; ssh ends with distrun's status if it does not fail itself.
  const bool by_itself = !event.killed && !host.hung_up && event.status != kSshFailed;
  if (before == HostPhase::working && !host.told && by_itself) {
    host.told = event.status;
  }
  host.order_of_end = ++ends_;
  enter(event.host, HostPhase::ended);
  if (host.failed || host.hung_up) return;  // it was said
  if (before == HostPhase::working) {
    if (!host.told) {
      fail(event.host,
           "the connection is lost; ssh ended with status " + std::to_string(event.status),
           kExitJobOver);
    } else if (*host.told != kExitSuccess) {
      host.failed = true;
      job_ended_ = event.ran;
      if (!event.ran && !first_failure_) first_failure_ = *host.told;  // it said why itself
    }
    return;
  }
  const HostTrouble trouble =
      explain_host_trouble(plan_.names[event.host], event.status, event.words);
  fail(event.host, trouble.text, trouble.status);
}

void FanOut::on(const HostsStop& event) {
  ++stops_;
  if (stops_ < kStopsUntilHangUp) return stop_all(event.signo, exit_for_signal(event.signo));
  for (std::size_t i = 0; i < hosts_.size(); ++i) hang_up(i);
}

void FanOut::on(const HostsNotice& event) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].phase == HostPhase::working) out_.push_back(SignalHost{i, event.signo});
  }
}

void FanOut::on(const HostsTick&) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const State& host = hosts_[i];
    if (host.phase != HostPhase::connecting || host.hung_up || now_ < host.since + kGreetMax) {
      continue;
    }
    fail(i, "no distrun answered within " + duration_text(kGreetMax), kExitNotInTime);
  }
  if (hang_up_at_ && now_ >= *hang_up_at_) {
    hang_up_at_.reset();
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      if (hosts_[i].phase == HostPhase::ended) continue;
      say(HostsLevel::error, plan_.names[i] + ": does not end; hanging up");
      hang_up(i);
    }
  }
  if (stop_others_ && now_ >= *stop_others_) {
    stop_others_.reset();
    say(HostsLevel::warning, number_of(possible()) + " left, and the job needs " +
                                 std::to_string(plan_.min_hosts) + "; stopping");
    stop_all(SIGTERM, kExitJobOver);
  }
}

void FanOut::enter(std::size_t host, HostPhase next) {
  State& state = hosts_[host];
  const auto edge = std::pair(state.phase, next);
  DISTRUN_CHECK(std::find(kHostEdges.begin(), kHostEdges.end(), edge) != kHostEdges.end());
  state.phase = next;
  state.since = now_;
}

void FanOut::connect_more() {
  if (cause_) return;
  std::size_t busy = count(HostPhase::connecting);
  for (std::size_t i = 0; i < hosts_.size() && busy < kConnectingMax; ++i) {
    if (hosts_[i].phase != HostPhase::waiting) continue;
    enter(i, HostPhase::connecting);
    out_.push_back(ConnectHost{i});
    ++busy;
  }
}

void FanOut::choose_meeting_place() {
  // Another one, if the host refused its order: nobody has been told of it yet.
  if (meets_at_ && hosts_[*meets_at_].failed && !hosts_[*meets_at_].running) meets_at_.reset();
  if (meets_at_ || !plan_.find_meeting_place) return;
  const auto first =
      std::find_if(hosts_.begin(), hosts_.end(), [](const State& host) { return !host.failed; });
  if (first == hosts_.end() || first->phase != HostPhase::greeted) return;
  std::string address = first->greeting.address;
  if (address.empty()) {  // not through ssh, but something like it
    const std::string& name = plan_.names[static_cast<std::size_t>(first - hosts_.begin())];
    address = name.substr(name.rfind('@') + 1);
  }
  if (is_loopback(address)) {
    // This machine. Others can only tell by which address it reached them; if they are all this
    // machine, too, loopback will do.
    bool all_known = true;
    for (auto other = first + 1; other != hosts_.end(); ++other) {
      if (other->failed) continue;
      if (other->phase != HostPhase::greeted) {
        all_known = false;
      } else if (!other->greeting.client.empty() && !is_loopback(other->greeting.client)) {
        address = other->greeting.client;
        all_known = true;
        break;
      }
    }
    if (!all_known) return;
  }
  meets_at_ = static_cast<std::size_t>(first - hosts_.begin());
  meeting_place_ = Endpoint{address, first->greeting.port};
}

void FanOut::give_orders() {
  if (plan_.find_meeting_place && !meets_at_) return;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].phase != HostPhase::greeted || hosts_[i].hung_up) continue;
    if (meets_at_ && i != *meets_at_ && !hosts_[*meets_at_].running) continue;
    enter(i, HostPhase::working);
    out_.push_back(OrderHost{i, meeting_place_});
  }
}

void FanOut::fail(std::size_t host, std::string why, int status) {
  State& state = hosts_[host];
  state.failed = true;
  job_ended_ = false;
  if (!first_failure_) first_failure_ = status;
  if (!cause_) say(HostsLevel::error, plan_.names[host] + ": " + std::move(why));
  hang_up(host);
}

void FanOut::hang_up(std::size_t host) {
  State& state = hosts_[host];
  if (state.phase == HostPhase::ended || state.hung_up) return;
  if (state.phase == HostPhase::waiting) return enter(host, HostPhase::ended);
  state.hung_up = true;
  out_.push_back(HangUpHost{host});
}

void FanOut::stop_all(int signo, int status) {
  if (!cause_) cause_ = status;
  stop_others_.reset();
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].phase == HostPhase::working && !hosts_[i].hung_up) {
      out_.push_back(SignalHost{i, signo});
    } else {
      hang_up(i);
    }
  }
  // The second one is final over there: no grace any more.
  const Duration grace = stops_ > 1 ? Duration::zero() : plan_.grace;
  hang_up_at_ = std::min(hang_up_at_.value_or(TimePoint::max()), now_ + grace + kFarewell);
}

// After every event: what follows from where all hosts are now?
void FanOut::settle() {
  if (!cause_ && possible() < plan_.min_hosts) {
    if (job_ended_) {
      // The others hear how the job ended from its coordinator, and their workers have their grace.
      if (!stop_others_) stop_others_ = now_ + plan_.grace + kFarewell;
    } else {
      if (possible() > 0 && count(HostPhase::ended) < hosts_.size()) {
        say(HostsLevel::error, number_of(possible()) + " of " + std::to_string(hosts_.size()) +
                                   " left, and the job needs " + std::to_string(plan_.min_hosts) +
                                   ": it is stopped everywhere");
      }
      stop_all(SIGTERM, first_failure_.value_or(kExitJobOver));
    }
  }
  if (!cause_) {
    connect_more();
    choose_meeting_place();
    give_orders();
  }
  if (count(HostPhase::ended) == hosts_.size()) {
    finished_ = true;
    out_.push_back(HostsFinish{status()});
  }
}

std::size_t FanOut::count(HostPhase phase) const {
  return static_cast<std::size_t>(std::count_if(
      hosts_.begin(), hosts_.end(), [phase](const State& host) { return host.phase == phase; }));
}

std::size_t FanOut::possible() const {
  return static_cast<std::size_t>(
      std::count_if(hosts_.begin(), hosts_.end(), [](const State& host) { return !host.failed; }));
}

int FanOut::status() const {
  // All nodes of a job end with the job's status; those that were lost on the way have their own.
  struct Told {
    int times = 0;
    int first = 0;  // by order of ends
  };
  std::map<int, Told> told;
  for (const State& host : hosts_) {
    if (!host.told) continue;
    Told& entry = told[*host.told];
    if (entry.times == 0 || host.order_of_end < entry.first) entry.first = host.order_of_end;
    ++entry.times;
  }
  if (told.count(kExitSuccess) != 0) return kExitSuccess;
  if (cause_ && stops_ == 0) told.erase(exit_for_signal(SIGTERM));  // we told them to stop
  if (told.empty()) return cause_.value_or(first_failure_.value_or(kExitSystem));
  const auto most = std::max_element(told.begin(), told.end(), [](const auto& a, const auto& b) {
    if (a.second.times != b.second.times) return a.second.times < b.second.times;
    return a.second.first > b.second.first;
  });
  return most->first;
}

void FanOut::say(HostsLevel level, std::string text) {
  out_.push_back(HostsSay{level, std::move(text)});
}

HostTrouble explain_host_trouble(const std::string& name, int ssh_status,
                                 const std::string& words) {
  struct Known {
    std::string_view words;
    std::string_view advice;
  };
  static constexpr std::array kKnown{
      Known{"Permission denied (",
            "no key of yours opens it without a question: ssh-copy-id, or ssh-agent"},
      Known{"Host key verification failed", "connect once by hand and accept its key"},
      Known{"REMOTE HOST IDENTIFICATION HAS CHANGED", "its key is another than it was"},
      Known{"Could not resolve hostname", "nobody knows that name"},
      Known{"Connection refused", "no ssh server listens there"},
      Known{"timed out", "nothing answers there: is the host up, is a firewall between?"},
      Known{"No route to host", "nothing answers there: is the host up?"},
  };
  // Banners and warnings of ssh may stand before; what ended it is last.
  constexpr std::size_t kLinesShown = 5;
  std::vector<std::string_view> lines;
  for (const std::string_view line : split(words, '\n')) {
    if (!trim(line).empty()) lines.push_back(trim(line));
  }
  std::string said;
  for (std::size_t i = lines.size() - std::min(lines.size(), kLinesShown); i < lines.size(); ++i) {
    said += (said.empty() ? "" : "; ") + printable(lines[i]);
  }
  if (ssh_status == kExitNotFound || ssh_status == kExitNotExecutable) {
    return {"there is no distrun that can be run there (" +
                (said.empty() ? "status " + std::to_string(ssh_status) : said) +
                "); install it at the same path as here or in PATH, or give --remote-distrun PATH",
            ssh_status};
  }
  if (ssh_status == kExitUsage) {
    return {"the distrun there does not know --from-stdin: it is of another version (" + said +
                "); install the same on all hosts, or name it with --remote-distrun PATH",
            kExitRefused};
  }
  std::string text = "ssh cannot start anything there: " +
                     (said.empty() ? "it ended with status " + std::to_string(ssh_status) : said);
  for (const Known& known : kKnown) {
    if (words.find(known.words) == words.npos) continue;
    text += "; " + std::string(known.advice);
    break;
  }
  if (ssh_status == kSshFailed) text += "; try: ssh -o BatchMode=yes " + name + " true";
  const bool none_ran = ssh_status == kSshFailed || ssh_status == kExitSystem;
  return {text, none_ran ? kExitSystem : kExitJobOver};
}

}  // namespace distrun::launcher
