#include "tests/sim/rendezvous/seat.h"

#include "tests/sim/rendezvous/referee.h"
#include "tests/sim/rendezvous/transcript.h"

#include <algorithm>
#include <ctime>
#include <utility>

namespace distrun::rendezvous::sim {

using distrun::sim::between;
using distrun::sim::chance;
using distrun::sim::micros;
using distrun::sim::millis;

namespace {

// What reading the clock twice adds to what lies between: about this much, here and there.
constexpr double kClockCost = 250e-9;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

Seat::Seat(Stage& stage, ProcessId process, std::string name, CoordinatorLimits limits,
           Authority authority, Journal* journal)
    : stage_(stage),
      process_(process),
      name_(std::move(name)),
      authority_(authority),
      journal_(journal),
      skew_(millis(stage.random, 0, 1'000'000)),
      core_(std::move(limits), std::move(authority)) {
  stage_.referee.seat_opens(*this);
}

Seat::~Seat() {
  *alive_ = false;
  stage_.referee.seat_closes(*this);
  std::set<SocketId> all = std::move(fresh_);
  for (const auto& [socket, session] : sessions_) all.insert(socket);
  for (const SocketId socket : all) stage_.network.close(socket);
}

void Seat::restore(const Record& record) {
  core_.restore(record, stage_.agenda.now() + skew_);
  stage_.referee.seat_takes_over(*this);
  if (stage_.careful) {
    for (const RendezvousState& state : core_.jobs()) states_[state.job] = state;
  }
  arm();
}

void Seat::accepted(SocketId socket) {
  fresh_.insert(socket);
}

bool Seat::received(SocketId socket, const Payload& payload) {
  const auto session = sessions_.find(socket);
  const bool fresh = fresh_.contains(socket);
  if (!fresh && session == sessions_.end()) return false;
  const auto* message = std::get_if<AgentMessage>(&payload);
  const bool join = message && std::holds_alternative<Join>(*message);
  if (!message || (fresh && !join)) {  // what the edge itself refuses
    stage_.network.close(socket);
    closed(socket);
    return true;
  }
  if (fresh) {
    fresh_.erase(socket);
    const SessionId id{next_session_++};
    sessions_[socket] = id;
    sockets_[id] = socket;
  }
  feed(Received{sessions_.at(socket), *message});
  return true;
}

bool Seat::closed(SocketId socket) {
  if (fresh_.erase(socket) > 0) return true;
  const auto found = sessions_.find(socket);
  if (found == sessions_.end()) return false;
  const SessionId session = found->second;
  sessions_.erase(found);
  sockets_.erase(session);
  feed(Closed{session});
  return true;
}

void Seat::reached_at(const std::string& address) {
  feed(ReachedAt{address});
}

void Seat::feed(const Event& event) {
  if (stage_.transcript.on()) stage_.transcript.line(name_ + " > " + to_line(event));
  const double begin = stage_.careful ? 0 : thread_seconds();
  const Effects effects = core_.handle(event, stage_.agenda.now() + skew_);
  if (!stage_.careful) core_seconds_ += thread_seconds() - begin - kClockCost;
  if (stage_.transcript.on()) {
    for (const Effect& effect : effects) {
      stage_.transcript.line(name_ + "     " + to_line(effect));
    }
  }
  if (stage_.careful) {
    std::map<std::string, RendezvousState> before = std::move(states_);
    states_.clear();
    for (RendezvousState& state : core_.jobs()) states_[state.job] = std::move(state);
    stage_.referee.seat_handled(*this, before, event, effects);
  }
  const std::shared_ptr<bool> alive = alive_;
  apply(effects);
  if (*alive) arm();
}

void Seat::break_connections(const Effects& effects) {
  const bool seals = std::any_of(effects.begin(), effects.end(), [](const Effect& effect) {
    const auto* send = std::get_if<Send>(&effect);
    return send && std::holds_alternative<Welcome>(send->message);
  });
  if (!seals) return;
  const double each = std::exchange(breaks_at_seal_, 0);
  for (const auto& [socket, session] : sessions_) {
    if (!chance(stage_.random, each)) continue;
    stage_.referee.connection_breaks(stage_.network.peer_host(socket));
    stage_.referee.connection_breaks(stage_.network.host_of(process_));
    stage_.network.sever(socket);
  }
  stage_.referee.seen("connections break at a seal");
}

void Seat::apply(const Effects& effects) {
  if (breaks_at_seal_ > 0) break_connections(effects);
  // Somewhere between two effects, or after all of them.
  const int dies_at = die_ ? between(stage_.random, 0, static_cast<int>(effects.size())) : -1;
  int number = 0;
  for (const Effect& effect : effects) {
    if (number++ == dies_at) break;
    if (const auto* send = std::get_if<Send>(&effect)) {
      const auto socket = sockets_.find(send->session);
      if (socket == sockets_.end()) continue;
      stage_.referee.coordinator_says(*this, send->message);
      stage_.network.send(socket->second, send->message);
    } else if (const auto* drop = std::get_if<Drop>(&effect)) {
      const auto socket = sockets_.find(drop->session);
      if (socket == sockets_.end()) continue;
      stage_.network.close(socket->second);
      sessions_.erase(socket->second);
      sockets_.erase(socket);
    } else if (const auto* save = std::get_if<Save>(&effect)) {
      if (journal_) (*journal_)[save->record->job] = *save->record;
    } else if (const auto* forget = std::get_if<Forget>(&effect)) {
      if (journal_) journal_->erase(forget->job);
    }
  }
  if (die_) std::exchange(die_, nullptr)();
}

void Seat::arm() {
  const auto deadline = core_.next_deadline();
  if (!deadline || (armed_ && *armed_ <= *deadline)) return;
  armed_ = deadline;
  const Duration slack = stage_.careful ? micros(stage_.random, 0, 500) : Duration{};
  stage_.network.wake(process_, *deadline - skew_ + slack,
                      [this, alive = alive_, timer = ++timer_] {
                        if (!*alive || timer != timer_) return;
                        armed_.reset();
                        const auto due = core_.next_deadline();
                        if (due && *due <= stage_.agenda.now() + skew_) return feed(Tick{});
                        arm();
                      });
}

}  // namespace distrun::rendezvous::sim
