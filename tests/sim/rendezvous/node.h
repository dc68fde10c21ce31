// Node: an agent's process: the real Member, a model of an agent above it, and a Coordinator if the
// agent hosts one.  It is the edge of all three.
#pragma once

#include "rendezvous/core/member.h"
#include "tests/sim/rendezvous/model_agent.h"
#include "tests/sim/rendezvous/seat.h"
#include "tests/sim/rendezvous/stage.h"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace distrun::rendezvous::sim {

inline constexpr std::uint16_t kPort = 29400;
inline constexpr char kJob[] = "job";

class Node final : public Program {
 public:
  // REQUIRES: its host is up.  The agent begins at once.
  Node(Stage& stage, const NodePlan& plan, const NodeId& id, const Contact& endpoint);
  ~Node() override;

  void begin();
  void stop() { agent_.stop(); }
  void infected() { agent_.infected(); }
  void fail_now() { agent_.fail_now(); }
  void died() { seat_.reset(); }  // its process is gone

  const NodeId& id() const { return id_; }
  const NodePlan& plan() const { return plan_; }
  HostId host() const { return plan_.host; }
  ProcessId process() const { return process_; }
  const Member& member() const { return member_; }
  const ModelAgent& agent() const { return agent_; }
  const std::optional<Exit>& exit() const { return exit_; }
  bool alive() const { return stage_.network.alive(process_); }
  Seat* seat() { return seat_.get(); }
  bool hosts() const { return seat_ != nullptr; }
  const std::optional<Waiting>& progress() const { return progress_; }

  void accepted(SocketId socket, std::uint16_t port) override;
  void connected(int dial, SocketId socket) override;
  void not_connected(int dial, NoAnswer reason) override;
  void received(SocketId socket, const Payload& payload) override;
  void closed(SocketId socket) override;

 private:
  MemberLimits limits(const Contact& endpoint);
  ModelAgent::Surroundings surroundings();
  void feed(member::Event event);
  void arm();
  void apply(const member::Dial& dial);
  void apply(const member::Send& send);
  void apply(const member::HangUp& hang_up);
  void apply(const member::Host& host);
  void apply(const member::StopHosting&);
  void apply(const member::Direct& direct) { direct_ = direct.answer; }
  void apply(const member::Placed& placed);
  void apply(const member::Disbanded& disbanded) { agent_.on(disbanded); }
  void apply(const member::JobOver& over) { agent_.on(over); }
  void apply(const member::NoRound& none) { agent_.on(none); }
  void apply(const member::Say&) {}
  void apply(const member::Progress& progress) { progress_ = progress.waiting; }
  void leave_when_others_know();

  Stage& stage_;
  NodePlan plan_;
  NodeId id_;
  ProcessId process_;
  Duration skew_;
  std::uint16_t takeover_port_ = 0;
  bool owns_endpoint_ = false;
  std::unique_ptr<Seat> seat_;
  Member member_;
  ModelAgent agent_;

  std::deque<member::Event> inbox_;
  bool busy_ = false;
  std::map<int, SocketId> socket_of_;
  std::map<SocketId, int> dial_of_;
  std::set<int> dialing_;
  std::set<SocketId> askers_;  // at the takeover port, while this node does not host
  Refused direct_;
  std::optional<TimePoint> armed_;
  int timer_ = 0;
  std::optional<Exit> exit_;
  TimePoint linger_until_{};
  std::optional<Waiting> progress_;
};

}  // namespace distrun::rendezvous::sim
