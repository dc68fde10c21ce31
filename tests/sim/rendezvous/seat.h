// Seat: where a Coordinator sits: the edge of its core in a simulated process.  Connections become
// sessions, effects become packets, and what has to be saved goes into a journal that outlives it.
#pragma once

#include "rendezvous/core/coordinator.h"
#include "tests/sim/rendezvous/stage.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace distrun::rendezvous::sim {

using Journal = std::map<std::string, Record>;  // by job

class Seat {
 public:
  // `name` is for the transcript; `journal` may be null.
  Seat(Stage& stage, ProcessId process, std::string name, CoordinatorLimits limits,
       Authority authority, Journal* journal);
  ~Seat();
  Seat(const Seat&) = delete;

  void restore(const Record& record);
  void accepted(SocketId socket);
  // False: not a connection of this seat.
  bool received(SocketId socket, const Payload& payload);
  bool closed(SocketId socket);
  void reached_at(const std::string& address);

  // Dies in the middle of what it does next.
  void die_soon(std::function<void()> die) { die_ = std::move(die); }
  // At the next seal connections break, each with that chance, before their Welcome is on its way.
  void break_at_seal(double chance) { breaks_at_seal_ = chance; }
  bool empty() const { return sessions_.empty(); }
  double core_seconds() const { return core_seconds_; }  // of CPU, if not careful
  const std::string& name() const { return name_; }
  ProcessId process() const { return process_; }
  const Authority& authority() const { return authority_; }
  const std::map<std::string, RendezvousState>& states() const { return states_; }
  const Coordinator& core() const { return core_; }
  // Makes states() speak of this moment.
  void refresh() { feed(Tick{}); }

 private:
  void feed(const Event& event);
  void apply(const Effects& effects);
  void break_connections(const Effects& effects);
  void arm();

  Stage& stage_;
  ProcessId process_;
  std::string name_;
  Authority authority_;
  Journal* journal_;
  Duration skew_;  // its clock is its own
  Coordinator core_;
  std::set<SocketId> fresh_;  // connected, nothing said yet
  std::map<SocketId, SessionId> sessions_;
  std::map<SessionId, SocketId> sockets_;
  int next_session_ = 1;
  std::optional<TimePoint> armed_;
  int timer_ = 0;
  std::function<void()> die_;
  double breaks_at_seal_ = 0;
  double core_seconds_ = 0;
  std::map<std::string, RendezvousState> states_;  // after the last event
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace distrun::rendezvous::sim
