// FanOut: one job on several hosts, from the first connection to the last one closed. It decides
// whom to connect to, where the hosts meet, what a host that is lost means for the others, and the
// exit status.
//
//   waiting --a place is free--> connecting --Greeted--> greeted --order--> working
//      |                             |                      |                  |
//      +-----------------------------+------ HostEnded -----+------------------+--> ended
//
// The hosts meet at the first one in the list that answers, at the address at which ssh reached it:
// a name may be an alias of the user's ssh configuration. If that is a loopback address (the job is
// started on that host), it is where another host saw its connection come from. That host has its
// order first, the others once the job runs there: else they would look for each other at a host
// that refused it.
//
// Pure: no ssh, no clock. The edge (hosts_launcher) carries the effects out.
#pragma once

#include "launcher/endpoint.h"
#include "launcher/hosts/host_order.h"
#include "runtime/base/time.h"

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace distrun::launcher {

// Events.
struct HostsBegin {};
struct HostGreeted {
  std::size_t host;
  Greeting greeting;
};
// Its distrun has taken the order: the job's own rules hold from here on.
struct HostRunning {
  std::size_t host;
};
// Its ssh has ended, and all it wrote has been read.
struct HostEnded {
  std::size_t host;
  std::optional<int> told;  // the status that distrun told
  bool ran = false;         // the job began there; else it was refused before
  int status = 0;           // ssh's own, 128+n for signal n
  bool killed = false;      // ssh was, by a signal
  std::string words;        // its last lines, if the host had not greeted
};
struct HostsStop {
  int signo;
};
struct HostsNotice {
  int signo;
};
struct HostsTick {};
using HostsEvent = std::variant<HostsBegin, HostGreeted, HostRunning, HostEnded, HostsStop,
                                HostsNotice, HostsTick>;

// Effects.
struct ConnectHost {
  std::size_t host;
  bool operator==(const ConnectHost&) const = default;
};
// Gives it the job. nullopt: what the user said of the meeting place is in its arguments already.
struct OrderHost {
  std::size_t host;
  std::optional<Endpoint> meeting_place;
  bool operator==(const OrderHost&) const = default;
};
struct SignalHost {
  std::size_t host;
  int signo;
  bool operator==(const SignalHost&) const = default;
};
// Ends its ssh at once. HostEnded follows.
struct HangUpHost {
  std::size_t host;
  bool operator==(const HangUpHost&) const = default;
};
enum class HostsLevel { info, warning, error };
struct HostsSay {
  HostsLevel level;
  std::string text;
  bool operator==(const HostsSay&) const = default;
};
struct HostsFinish {
  int status;
  bool operator==(const HostsFinish&) const = default;
};
using HostsEffect =
    std::variant<ConnectHost, OrderHost, SignalHost, HangUpHost, HostsSay, HostsFinish>;
using HostsEffects = std::vector<HostsEffect>;

struct FanOutPlan {
  std::vector<std::string> names;  // in the order of node ranks
  std::size_t min_hosts = 1;       // with fewer the job cannot go on
  bool find_meeting_place = true;
  std::string version;  // of this distrun
  Duration grace = std::chrono::seconds(30);
};

enum class HostPhase { waiting, connecting, greeted, working, ended };

// Every legal change of phase.
inline constexpr std::array<std::pair<HostPhase, HostPhase>, 7> kHostEdges{{
    {HostPhase::waiting, HostPhase::connecting},
    {HostPhase::connecting, HostPhase::greeted},
    {HostPhase::greeted, HostPhase::working},
    {HostPhase::waiting, HostPhase::ended},
    {HostPhase::connecting, HostPhase::ended},
    {HostPhase::greeted, HostPhase::ended},
    {HostPhase::working, HostPhase::ended},
}};

class FanOut {
 public:
  // So many clients at most are on their way at the same time.
  static constexpr std::size_t kConnectingMax = 32;
  // The first asks, the second is final for the workers, this one is for what is stuck.
  static constexpr int kStopsUntilHangUp = 3;
  static constexpr Duration kGreetMax = std::chrono::seconds(60);
  // From the end of the grace to hanging up: for the last words, and what is stuck.
  static constexpr Duration kFarewell = std::chrono::seconds(15);

  explicit FanOut(FanOutPlan plan);

  // REQUIRES: `now` never goes backwards; HostsBegin is first; HostEnded comes once for each host
  // that was connected to.
  HostsEffects handle(const HostsEvent& event, TimePoint now);
  // When to send the next tick; nullopt: nothing is pending.
  std::optional<TimePoint> next_deadline() const;

  HostPhase phase(std::size_t host) const { return hosts_[host].phase; }
  bool finished() const { return finished_; }

 private:
  struct State {
    HostPhase phase = HostPhase::waiting;
    TimePoint since{};
    Greeting greeting;
    std::optional<int> told;
    int order_of_end = 0;
    bool running = false;  // it has taken the order
    bool failed = false;   // no part of the job any more, and not by having done its work
    bool hung_up = false;
  };

  void on(const HostsBegin&);
  void on(const HostGreeted&);
  void on(const HostRunning&);
  void on(const HostEnded&);
  void on(const HostsStop&);
  void on(const HostsNotice&);
  void on(const HostsTick&);

  void enter(std::size_t host, HostPhase next);
  void connect_more();
  void choose_meeting_place();
  void give_orders();
  void fail(std::size_t host, std::string why, int status);
  void hang_up(std::size_t host);
  void stop_all(int signo, int status);
  void settle();
  std::size_t count(HostPhase phase) const;
  std::size_t possible() const;
  int status() const;
  void say(HostsLevel level, std::string text);

  FanOutPlan plan_;
  std::vector<State> hosts_;
  TimePoint now_{};
  HostsEffects out_;
  std::optional<std::size_t> meets_at_;  // the host with the meeting place, once it is known
  std::optional<Endpoint> meeting_place_;
  int stops_ = 0;                         // by the operator
  std::optional<int> cause_;              // why the job was ended from here, as an exit status
  std::optional<int> first_failure_;      // of a host that never took part, or was lost
  bool job_ended_ = false;                // the last host that went, went with the job's own end
  std::optional<TimePoint> stop_others_;  // one ended by itself; the others have until then
  std::optional<TimePoint> hang_up_at_;
  int ends_ = 0;
  bool finished_ = false;
};

// Why a host that never greeted could not take part: ssh's own words, what they mean, what to do.
struct HostTrouble {
  std::string text;
  int status;  // for the program (exit_code.h)
};
HostTrouble explain_host_trouble(const std::string& name, int ssh_status, const std::string& words);

}  // namespace distrun::launcher
