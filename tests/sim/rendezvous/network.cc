#include "tests/sim/rendezvous/network.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <optional>

namespace distrun::rendezvous::sim {

using namespace std::chrono_literals;
using distrun::sim::chance;
using distrun::sim::micros;

namespace {

constexpr Duration kRetryMin = 200ms;  // beside the round trip
constexpr Duration kRetryMax = 120s;
constexpr Duration kSynRetry = 1s;

int side(SocketId socket) {
  return static_cast<int>(socket & 1);
}
SocketId peer(SocketId socket) {
  return socket ^ 1;
}

}  // namespace

Network::Network(Agenda& agenda, distrun::sim::Random& random, Weather weather)
    : agenda_(agenda), random_(random), weather_(weather) {}

// ---- hosts and processes -----------------------------------------------------------------------

HostId Network::add_host(std::string address) {
  const HostId host = static_cast<HostId>(hosts_.size());
  by_address_[address] = host;
  hosts_.push_back({std::move(address), true, {}});
  return host;
}

void Network::crash(HostId host) {
  hosts_[index(host)].up = false;
  hosts_[index(host)].listeners.clear();
  for (Process& process : processes_) {
    if (process.host != host || !process.alive) continue;
    process.alive = false;
    process.inbox.clear();
    for (const SocketId socket : process.sockets) {
      if (Connection* connection = find(socket)) {
        connection->ends[side(socket)].open = false;
        connection->ends[side(socket)].gone = true;
      }
    }
    process.sockets.clear();
    process.dials.clear();
  }
}

void Network::boot(HostId host) {
  hosts_[index(host)].up = true;
}

ProcessId Network::start(HostId host, Program& program) {
  DISTRUN_CHECK(is_up(host));
  Process process;
  process.program = &program;
  process.host = host;
  processes_.push_back(std::move(process));
  return static_cast<ProcessId>(processes_.size()) - 1;
}

void Network::kill(ProcessId id) {
  Process& process = processes_[index(id)];
  if (!process.alive) return;
  process.alive = false;
  process.inbox.clear();
  process.dials.clear();
  std::erase_if(hosts_[index(process.host)].listeners,
                [id](const auto& listener) { return listener.second == id; });
  const std::set<SocketId> sockets = std::move(process.sockets);
  process.sockets.clear();
  for (const SocketId socket : sockets) shut(socket, false);
}

void Network::pause(ProcessId process) {
  processes_[index(process)].paused = true;
}

void Network::resume(ProcessId id) {
  processes_[index(id)].paused = false;
  while (processes_[index(id)].alive && !processes_[index(id)].paused &&
         !processes_[index(id)].inbox.empty()) {
    const auto news = std::move(processes_[index(id)].inbox.front());
    processes_[index(id)].inbox.pop_front();
    news();
  }
}

void Network::wake(ProcessId process, TimePoint when, std::function<void()> action) {
  agenda_.at(when, [this, process, action = std::move(action)]() mutable {
    if (!processes_[index(process)].paused) {
      tell(process, std::move(action));
      return;
    }
    // Whether a program that is continued sees its timer or its sockets first is nobody's promise.
    auto& inbox = processes_[index(process)].inbox;
    if (chance(random_, 0.5)) {
      inbox.push_front(std::move(action));
    } else {
      inbox.push_back(std::move(action));
    }
  });
}

void Network::tell(ProcessId id, std::function<void()> news) {
  Process& process = processes_[index(id)];
  if (!process.alive) return;
  if (process.paused) {
    process.inbox.push_back(std::move(news));
  } else {
    news();
  }
}

// ---- listening and dialing ---------------------------------------------------------------------

bool Network::listen(ProcessId process, std::uint16_t port) {
  return hosts_[index(host_of(process))].listeners.emplace(port, process).second;
}

void Network::stop_listening(ProcessId process, std::uint16_t port) {
  hosts_[index(host_of(process))].listeners.erase(port);
}

void Network::dial(ProcessId process, int dial, const Contact& contact, Duration timeout) {
  processes_[index(process)].dials.insert(dial);
  try_dial(process, dial, contact, agenda_.now() + timeout, kSynRetry);
}

void Network::hang_up(ProcessId process, int dial) {
  processes_[index(process)].dials.erase(dial);
}

void Network::try_dial(ProcessId process, int dial, const Contact& contact, TimePoint until,
                       Duration retry) {
  const auto target = by_address_.find(contact.address);
  const HostId from = host_of(process);
  ++packets_;
  const bool arrives = target != by_address_.end() && gets_through(from, target->second) &&
                       gets_through(target->second, from);
  if (arrives) {
    agenda_.after(flight(from, target->second),
                  [this, process, dial, contact] { answer_dial(process, dial, contact); });
    return;
  }
  if (agenda_.now() + retry < until) {
    agenda_.after(retry, [this, process, dial, contact, until, retry] {
      const Process& dialer = processes_[index(process)];
      if (dialer.alive && dialer.dials.contains(dial)) {
        try_dial(process, dial, contact, until, retry * 2);
      }
    });
    return;
  }
  wake(process, until, [this, process, dial] {
    if (processes_[index(process)].dials.erase(dial) == 0) return;
    processes_[index(process)].program->not_connected(dial, NoAnswer::unreachable);
  });
}

void Network::answer_dial(ProcessId process, int dial, const Contact& contact) {
  const Process& dialer = processes_[index(process)];
  if (!dialer.alive || !dialer.dials.contains(dial)) return;
  const HostId from = dialer.host;
  const HostId to = by_address_.at(contact.address);
  const auto listener = hosts_[index(to)].listeners.find(contact.port);
  if (!is_up(to) || listener == hosts_[index(to)].listeners.end()) {
    agenda_.after(flight(to, from), [this, process, dial] {
      tell(process, [this, process, dial] {
        if (processes_[index(process)].dials.erase(dial) == 0) return;
        processes_[index(process)].program->not_connected(dial, NoAnswer::refused);
      });
    });
    return;
  }
  const ProcessId server = listener->second;
  auto connection = std::make_unique<Connection>();
  connection->ends[0] = {process, from, true, false};
  connection->ends[1] = {server, to, true, false};
  connections_.push_back(std::move(connection));
  const SocketId client_end = (static_cast<SocketId>(connections_.size()) - 1) * 2;
  const SocketId server_end = peer(client_end);
  processes_[index(process)].sockets.insert(client_end);
  processes_[index(server)].sockets.insert(server_end);
  tell(server, [this, server, server_end, port = contact.port] {
    if (processes_[index(server)].sockets.contains(server_end)) {
      processes_[index(server)].program->accepted(server_end, port);
    }
  });
  const TimePoint answered = agenda_.now() + flight(to, from);
  // The client's end of the stream comes after the news that there is a stream.
  if (find(client_end)) find(client_end)->streams[1].not_before = answered;
  agenda_.at(answered, [this, process, dial, client_end] {
    if (!processes_[index(process)].alive) return;
    tell(process, [this, process, dial, client_end] {
      if (processes_[index(process)].dials.erase(dial) == 0) {
        shut(client_end, false);  // hung up meanwhile
        return;
      }
      processes_[index(process)].program->connected(dial, client_end);
    });
  });
}

// ---- streams -----------------------------------------------------------------------------------

Network::Connection* Network::find(SocketId socket) {
  return connections_[index(socket / 2)].get();
}

HostId Network::peer_host(SocketId socket) const {
  const auto& connection = connections_[index(socket / 2)];
  return connection ? connection->ends[side(peer(socket))].host : 0;
}

Duration Network::flight(HostId from, HostId to) {
  if (from == to) return 30us;
  const auto jitter = std::chrono::duration_cast<std::chrono::microseconds>(weather_.jitter);
  return weather_.delay + micros(random_, 0, static_cast<int>(jitter.count()));
}

bool Network::gets_through(HostId from, HostId to) {
  if (!is_up(from) || !is_up(to)) return false;
  return from == to || (open(from, to) && !(weather_.loss > 0 && chance(random_, weather_.loss)));
}

void Network::send(SocketId socket, Payload payload) {
  Connection* connection = find(socket);
  if (!connection || !connection->ends[side(socket)].open) return;
  append(socket, {std::move(payload), false, false, false});
}

void Network::close(SocketId socket) {
  Connection* connection = find(socket);
  if (!connection || !connection->ends[side(socket)].open) return;
  processes_[index(connection->ends[side(socket)].process)].sockets.erase(socket);
  shut(socket, false);
}

void Network::sever(SocketId socket) {
  for (const SocketId one : {socket, peer(socket)}) {
    Connection* connection = find(one);
    if (!connection || !connection->ends[side(one)].open) continue;
    End& end = connection->ends[side(one)];
    end.open = false;
    end.gone = true;
    // Not at once: whoever severs it may be one of the two.
    agenda_.after(0s, [this, id = end.process, one] {
      tell(id, [this, id, one] {
        if (processes_[index(id)].sockets.erase(one) > 0) {
          processes_[index(id)].program->closed(one);
        }
      });
    });
  }
  if (Connection* connection = find(socket)) {
    for (End& end : connection->ends) end.gone = true;
    tidy(socket);
  }
}

void Network::append(SocketId from, Packet packet) {
  Stream& stream = find(from)->streams[side(from)];
  stream.window.push_back(std::move(packet));
  attempt(from, stream.first + stream.window.size() - 1);
}

void Network::attempt(SocketId from, std::uint64_t number) {
  Connection& connection = *find(from);
  Stream& stream = connection.streams[side(from)];
  const End& end = connection.ends[side(from)];
  const End& other = connection.ends[side(peer(from))];
  ++packets_;
  Packet& packet = stream.window[index(static_cast<std::int64_t>(number - stream.first))];
  packet.lost = false;
  if (!gets_through(end.host, other.host)) return mark_lost(from, number);
  // A little reordering within a flow is left: a retransmission does not wait for what follows it.
  stream.not_before = std::max(agenda_.now() + flight(end.host, other.host), stream.not_before);
  agenda_.at(stream.not_before, [this, from, number] { arrive(from, number); });
}

void Network::mark_lost(SocketId from, std::uint64_t number) {
  Stream& stream = find(from)->streams[side(from)];
  stream.window[index(static_cast<std::int64_t>(number - stream.first))].lost = true;
  arm_retry(from);
}

void Network::arm_retry(SocketId from) {
  Stream& stream = find(from)->streams[side(from)];
  if (stream.retrying) return;
  stream.retrying = true;
  const Duration first = kRetryMin + 2 * weather_.delay + weather_.jitter;
  stream.retry = stream.retry == Duration{} ? first : std::min(stream.retry * 2, kRetryMax);
  agenda_.after(stream.retry, [this, from, progress = stream.progress] { retry(from, progress); });
}

void Network::retry(SocketId from, int progress) {
  Connection* connection = find(from);
  if (!connection) return;
  Stream& stream = connection->streams[side(from)];
  if (!stream.retrying || stream.progress != progress) return;
  stream.retrying = false;
  if (connection->ends[side(from)].gone) return tidy(from);
  if (stream.window.empty()) return;
  arm_retry(from);
  if (stream.window.front().lost) attempt(from, stream.first);
}

void Network::arrive(SocketId from, std::uint64_t number) {
  Connection* connection = find(from);
  if (!connection) return;
  Stream& stream = connection->streams[side(from)];
  if (number < stream.first) return;  // a second copy
  End& target = connection->ends[side(peer(from))];
  const HostId sender = connection->ends[side(from)].host;
  if (!is_up(target.host) || (sender != target.host && !open(sender, target.host))) {
    return mark_lost(from, number);
  }
  Packet& packet = stream.window[index(static_cast<std::int64_t>(number - stream.first))];
  if (target.gone || !target.open) {
    if (packet.fin) {  // both have closed it
      stream.first += stream.window.size();
      stream.window.clear();
      return tidy(from);
    }
    if (!reset(peer(from))) mark_lost(from, number);
    return;
  }
  packet.arrived = true;
  if (!stream.window.front().arrived) return send_lost_again(from, number);
  stream.retry = Duration{};
  stream.retrying = false;
  ++stream.progress;
  while (!stream.window.empty() && stream.window.front().arrived) {
    Packet next = std::move(stream.window.front());
    stream.window.pop_front();
    ++stream.first;
    if (next.fin) return shut(peer(from), true);
    tell(target.process,
         [this, id = target.process, socket = peer(from), payload = std::move(next.payload)] {
           if (processes_[index(id)].sockets.contains(socket)) {
             processes_[index(id)].program->received(socket, payload);
           }
         });
    if (!find(from)) return;
    if (!target.open) {  // the program closed it
      if (!stream.window.empty()) reset(peer(from));
      return;
    }
  }
  if (stream.window.empty()) return;
  arm_retry(from);
  send_lost_again(from, stream.first + stream.window.size());
}

// The receiver has told what is missing.
void Network::send_lost_again(SocketId from, std::uint64_t before) {
  Connection& connection = *find(from);
  const HostId host = connection.ends[side(from)].host;
  const HostId other = connection.ends[side(peer(from))].host;
  if (!gets_through(other, host)) return;  // the timer will do it
  agenda_.after(flight(other, host), [this, from, before] {
    Connection* found = find(from);
    if (!found || found->ends[side(from)].gone) return;
    Stream& stream = found->streams[side(from)];
    for (std::uint64_t n = stream.first; n < before && n < stream.first + stream.window.size();
         ++n) {
      if (stream.window[index(static_cast<std::int64_t>(n - stream.first))].lost) attempt(from, n);
    }
  });
}

bool Network::reset(SocketId from) {
  const Connection& connection = *find(from);
  const HostId host = connection.ends[side(from)].host;
  const HostId other = connection.ends[side(peer(from))].host;
  if (!gets_through(host, other)) return false;  // the next packet makes another
  // Behind what was sent before it.
  const TimePoint at =
      std::max(agenda_.now() + flight(host, other), connection.streams[side(from)].not_before);
  agenda_.at(at, [this, socket = peer(from)] {
    Connection* found = find(socket);
    if (!found) return;
    found->ends[side(socket)].gone = true;
    shut(socket, true);
  });
  return true;
}

// This end is closed: by its own program, or because the stream towards it has ended.
void Network::shut(SocketId socket, bool tell_program) {
  Connection* connection = find(socket);
  if (!connection) return;
  End& end = connection->ends[side(socket)];
  if (!end.open) return tidy(socket);
  end.open = false;
  const ProcessId id = end.process;
  if (!end.gone) append(socket, {Garbage{}, true, false, false});
  if (tell_program && processes_[index(id)].sockets.contains(socket)) {
    tell(id, [this, id, socket] {
      if (processes_[index(id)].sockets.erase(socket) > 0) {
        processes_[index(id)].program->closed(socket);
      }
    });
  } else {
    processes_[index(id)].sockets.erase(socket);
  }
  tidy(socket);
}

// Forgets a connection that neither end has and nothing travels on.
void Network::tidy(SocketId socket) {
  Connection* connection = find(socket);
  if (!connection) return;
  for (const int s : {0, 1}) {
    if (connection->ends[s].open) return;
    if (!connection->ends[s].gone && !connection->streams[s].window.empty()) return;
  }
  connections_[index(socket / 2)].reset();
}

}  // namespace distrun::rendezvous::sim
