// Network: hosts, processes on them and connections between them, in virtual time.
//
// A connection is what TCP makes of a bad network.  Packets are late, lost, sent again: after 200
// ms and a round trip, doubling, or at once when a later one got through.  The receiver sees an
// ordered stream, or the end of it.
//
//   a process dies         its kernel closes its connections, towards whoever can be reached
//   a host dies            it says nothing; once it is back it resets what it does not know
//   a path is cut          one way or both; what is sent is sent again after it heals
//   nobody listens         a connection is refused at once; by a dead or cut host never answered
//   a process is paused    its kernel goes on: it accepts, and keeps what comes, in order
#pragma once

#include "rendezvous/core/member.h"
#include "rendezvous/core/messages.h"
#include "tests/sim/random.h"
#include "tests/sim/rendezvous/agenda.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace distrun::rendezvous::sim {

using member::NoAnswer;

struct Garbage {};  // bytes that no decoder takes
using Payload = std::variant<Garbage, AgentMessage, CoordinatorMessage>;

using HostId = int;
using ProcessId = int;
// One end of a connection: its number, doubled, plus the side.
using SocketId = std::int64_t;

// What a process is told.
class Program {
 public:
  virtual ~Program() = default;
  virtual void accepted(SocketId socket, std::uint16_t port) = 0;
  virtual void connected(int dial, SocketId socket) = 0;
  virtual void not_connected(int dial, NoAnswer reason) = 0;
  virtual void received(SocketId socket, const Payload& payload) = 0;
  virtual void closed(SocketId socket) = 0;
};

struct Weather {
  Duration delay = std::chrono::microseconds(100);
  Duration jitter{};
  double loss = 0;
};

class Network {
 public:
  Network(Agenda& agenda, distrun::sim::Random& random, Weather weather);

  HostId add_host(std::string address);
  int hosts() const { return static_cast<int>(hosts_.size()); }
  const std::string& address(HostId host) const { return hosts_[index(host)].address; }
  bool is_up(HostId host) const { return hosts_[index(host)].up; }
  void crash(HostId host);
  void boot(HostId host);
  void cut(HostId from, HostId to) { cuts_.insert({from, to}); }
  void heal(HostId from, HostId to) { cuts_.erase({from, to}); }
  void heal_all() { cuts_.clear(); }
  bool open(HostId from, HostId to) const { return cuts_.empty() || !cuts_.contains({from, to}); }
  void set_weather(Weather weather) { weather_ = weather; }

  // `program` outlives the process.
  ProcessId start(HostId host, Program& program);
  int processes() const { return static_cast<int>(processes_.size()); }
  void kill(ProcessId process);
  void pause(ProcessId process);
  void resume(ProcessId process);
  bool alive(ProcessId process) const { return processes_[index(process)].alive; }
  bool paused(ProcessId process) const { return processes_[index(process)].paused; }
  HostId host_of(ProcessId process) const { return processes_[index(process)].host; }
  // Runs `action` at that time, or once the process is continued; never if it is dead by then.
  void wake(ProcessId process, TimePoint when, std::function<void()> action);

  bool listen(ProcessId process, std::uint16_t port);  // false: in use
  void stop_listening(ProcessId process, std::uint16_t port);
  std::uint16_t free_port() { return next_port_++; }
  // Owed: connected or not_connected, unless hang_up comes first.
  void dial(ProcessId process, int dial, const Contact& contact, Duration timeout);
  void hang_up(ProcessId process, int dial);
  void send(SocketId socket, Payload payload);
  // Once all that was sent is written; nothing more is told about it.
  void close(SocketId socket);
  // Both ends hear that it is gone; what was on its way is, too.
  void sever(SocketId socket);
  HostId peer_host(SocketId socket) const;

  long packets() const { return packets_; }

 private:
  struct Host {
    std::string address;
    bool up = true;
    std::map<std::uint16_t, ProcessId> listeners;
  };
  struct Process {
    Program* program = nullptr;
    HostId host = 0;
    bool alive = true;
    bool paused = false;
    std::deque<std::function<void()>> inbox;  // of a paused one
    std::set<SocketId> sockets;
    std::set<int> dials;
  };
  struct Packet {
    Payload payload;
    bool fin = false;
    bool lost = false;
    bool arrived = false;
  };
  struct Stream {             // from one end to the other
    std::uint64_t first = 0;  // number of window.front()
    std::deque<Packet> window;
    Duration retry{};  // the retransmission timer's present value
    bool retrying = false;
    int progress = 0;        // a timer set before the last progress is void
    TimePoint not_before{};  // packets of one flow hardly ever overtake each other
  };
  struct End {
    ProcessId process = 0;
    HostId host = 0;
    bool open = true;   // the program has it
    bool gone = false;  // its host has forgotten it: what comes is answered by a reset
  };
  struct Connection {
    End ends[2];
    Stream streams[2];  // [side]: sent by that side
  };

  static std::size_t index(std::int64_t id) { return static_cast<std::size_t>(id); }
  Connection* find(SocketId socket);
  Duration flight(HostId from, HostId to);
  bool gets_through(HostId from, HostId to);
  void try_dial(ProcessId process, int dial, const Contact& contact, TimePoint until,
                Duration retry);
  void answer_dial(ProcessId process, int dial, const Contact& contact);
  void append(SocketId from, Packet packet);
  void attempt(SocketId from, std::uint64_t number);
  void arrive(SocketId from, std::uint64_t number);
  void mark_lost(SocketId from, std::uint64_t number);
  void arm_retry(SocketId from);
  void retry(SocketId from, int progress);
  void send_lost_again(SocketId from, std::uint64_t before);
  bool reset(SocketId from);  // tell the peer of `from` that there is no such end
  void shut(SocketId socket, bool tell_program);
  void tidy(SocketId socket);
  void tell(ProcessId process, std::function<void()> news);

  Agenda& agenda_;
  distrun::sim::Random& random_;
  Weather weather_;
  std::vector<Host> hosts_;
  std::map<std::string, HostId> by_address_;
  std::vector<Process> processes_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::set<std::pair<HostId, HostId>> cuts_;
  std::uint16_t next_port_ = 30000;
  long packets_ = 0;
};

}  // namespace distrun::rendezvous::sim
